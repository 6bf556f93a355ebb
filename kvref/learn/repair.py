"""Repairs as files: a bug's method in a class of the student's own, and the reference's in its place as the solution.

Both are made from the sources of the catalogue and the reference, without comments and with nothing that names a bug.
"""

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kvref.bug import Bug, overridden
from kvref.learn.inline import inlined

CLASS = "Mine"
"""What the student's class is called."""


@dataclass(frozen=True)
class Method:
    """One method of a class of the reference, as a bug has it and as it should be."""

    base: type
    name: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]

    @classmethod
    def of(cls, bug: Bug) -> "Method":
        """The method that a bug overrides."""
        base: Any = bug.part.__base__
        (name,) = overridden(bug.part)
        return cls(base, name, vars(bug.part)[name], owner(base, name))


def owner(base: type, name: str) -> Callable[..., Any]:
    """The method of the reference that a class has under a name, its own or inherited."""
    return next(vars(each)[name] for each in base.__mro__ if name in vars(each))


def start(bug: Bug, heading: str) -> str:
    """The file that a student is given: with the bug's method, and what the method is meant to do."""
    method = Method.of(bug)
    function = inlined(plain(method.wrong, meant(method)), plain(method.right, meant(method)))
    return file_of(method, function, heading)


def solution(bug: Bug, heading: str) -> str:
    """The same file with the reference's method."""
    method = Method.of(bug)
    return file_of(method, plain(method.right, meant(method)), heading)


def file_of(method: Method, function: ast.FunctionDef, heading: str) -> str:
    """A module with one class that derives from the reference's, and has this method."""
    modules = [sys.modules[each.__module__] for each in (method.wrong, method.right)]
    imports = sorted({import_of(method.base), *(line for module in modules for line in imports_for(function, module))})
    about = f"The reference's {method.base.__name__}, whose `{method.name}` is yours."
    code = textwrap.indent(ast.unparse(function), "    ")
    lines = [f'"""{heading}"""', "", *imports, "", "", f"class {CLASS}({method.base.__name__}):", f'    """{about}"""']
    return "\n".join([*lines, "", code, ""])


def meant(method: Method) -> str:
    """What a method is meant to do: the start of the reference's docstring, for the rest may name the mistakes."""
    return (inspect.getdoc(method.right) or "").split("\n\n")[0]


def plain(function: Callable[..., Any], docstring: str) -> ast.FunctionDef:
    """A method without decorators, comments and annotations, and with another docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list, tree.returns = [], None
    for argument in (*tree.args.args, *tree.args.kwonlyargs):
        argument.annotation = None
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    text = textwrap.indent(docstring, "        ").strip()
    tree.body = [ast.Expr(ast.Constant(f"{text}\n        " if "\n" in text else text)), *body]
    return ast.fix_missing_locations(tree)


def imports_for(function: ast.FunctionDef, module: ModuleType) -> Iterator[str]:
    """Imports of the names that a method takes from its module."""
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    for name in sorted(used - set(dir(builtins))):
        if name in vars(module):
            yield import_called(name, vars(module)[name], module)


def import_called(name: str, value: Any, module: ModuleType) -> str:
    """How a name of a module is imported."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    found: str = getattr(value, "__module__", module.__name__)
    return f"from {found if hasattr(sys.modules.get(found), name) else module.__name__} import {name}"


def import_of(base: type) -> str:
    """Import of a class of the reference."""
    return f"from {base.__module__} import {base.__name__}"
