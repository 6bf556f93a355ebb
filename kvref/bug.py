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
from typing import Any

from kvref.errors import BugError, one_line
from kvref.targets.base import Bench
from kvref.targets.reference import PARTS, Part, ReferenceTarget, kind_of


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

    def page(self) -> str:
        """All that the file says, with the diff."""
        seen = "".join(f"  seen      {witness}\n" for witness in self.witnesses)
        told = f"  wrong     {self.wrong}\n  trigger   {self.trigger}\n  hint      {self.hint}"
        return f"{self.name} ({self.family})\n{told}\n{seen}\n{self.diff()}"

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
    """Every bug of `kvref.bugs` by name. Raises `BugError` for a file without one."""
    package = import_module("kvref.bugs")
    bugs = [read_bug(f"kvref.bugs.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
    return {bug.name: bug for bug in bugs}


def read_bug(name: str) -> Bug:
    """The bug of a module, which must define its class itself, and override one method of one of the reference's."""
    file = f"{name.removeprefix('kvref.').replace('.', '/')}.py"
    try:
        bug = getattr(import_module(name), "bug", None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BugError(f"{file} cannot be imported ({one_line(error)})") from error
    if not isinstance(bug, Bug):
        raise BugError(f"{file} has no `bug`; end it with `bug = Bug(...)`, as the others do")
    part: Any = bug.part
    if not isinstance(part, type) or part.__module__ != name or not issubclass(part, PARTS):
        raise BugError(f"{file}: its class must be defined there, and derive from one of the reference's")
    if len(names := overridden(part)) != 1:
        raise BugError(f"{file}: {part.__name__} must override one method, not {', '.join(names) or 'none'}")
    return bug
