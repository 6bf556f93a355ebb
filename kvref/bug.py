"""A bug: the reference with exactly one thing wrong, and the catalogue of them."""

import ast
import difflib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from kvref.targets.base import Bench
from kvref.targets.reference import Part, ReferenceTarget, kind_of


@dataclass(frozen=True)
class Bug:
    """What a bug file says about the class in it, which overrides one method of the reference.

    `wrong` is one sentence; `trigger` says when it shows; `witnesses` are public threads where it shipped; `hint` helps
    a student without giving it away.
    """

    part: Part
    family: str
    wrong: str
    trigger: str
    witnesses: tuple[str, ...]
    hint: str

    @property
    def name(self) -> str:
        """The name of its file: what is wrong, in kebab case."""
        return self.part.__module__.rpartition(".")[2].replace("_", "-")

    def target(self, bench: Bench, kind: str | None = None) -> ReferenceTarget:
        """The bug as something to check."""
        kind = kind_of(self.part, kind, self.name)
        return ReferenceTarget(f"bug:{self.name}:{kind}", kind, bench, self.part)

    def diff(self) -> str:
        """The overridden method against the reference's, as a unified diff."""
        (name,) = overridden(self.part)
        theirs, ours = (source(getattr(owner, name)) for owner in (self.part.__base__, self.part))
        return "\n".join(difflib.unified_diff(theirs, ours, "reference", self.name, lineterm=""))


def overridden(part: type) -> list[str]:
    """Names of the methods that a class overrides."""
    return [name for name, value in vars(part).items() if inspect.isfunction(value)]


def source(method: Callable[..., object]) -> list[str]:
    """Lines of a method without decorators, annotations and docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None
    if ast.get_docstring(function):
        function.body = function.body[1:]
    return ast.unparse(function).splitlines()


@cache
def catalogue() -> dict[str, Bug]:
    """Every bug of `kvref.bugs` by name."""
    package = import_module("kvref.bugs")
    modules = [import_module(f"kvref.bugs.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
    return {module.bug.name: module.bug for module in modules}
