"""What leads around an exercise rather than through it, seen in a student's file before it is run.

A repair is to be written out and not inherited, and a law is to look at what a decoder answers and not at what it is.
A file is read by its names, so whoever puts a name together out of pieces is not seen here; see `kvref.learn.apart`.
"""

import ast
import re
from collections.abc import Iterator
from inspect import unwrap
from pathlib import Path
from types import FunctionType

from kvref.errors import BadInput, one_line
from kvref.learn.repair import CLASS, Method

IMPORTS = frozenset(
    [
        "__future__",
        "collections",
        "collections.abc",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "functools",
        "hypothesis",
        "hypothesis.strategies",
        "itertools",
        "kvref.answers",
        "kvref.decoder",
        "kvref.protocol",
        "math",
        "pytest",
        "random",
        "torch",
        "torch.nn.functional",
        "torch.testing",
        "typing",
        "typing_extensions",
        "unittest",
    ]
)
"""What a law may import."""

LOOKING = frozenset(["compile", "eval", "exec", "getattr", "globals", "locals", "open", "setattr", "vars"])
"""Functions by which a law would look at more than answers, or keep something between two calls."""

DOORS = frozenset(["_os", "_sys", "builtins", "ctypes", "gc", "importlib", "inspect", "modules", "os", "sys"])
"""Modules that others have among their names, and that lead to everything."""

INSIDE = frozenset(
    [
        "__base__",
        "__bases__",
        "__class__",
        "__closure__",
        "__code__",
        "__dict__",
        "__func__",
        "__getattr__",
        "__getattribute__",
        "__globals__",
        "__mro__",
        "__self__",
        "__subclasses__",
        "__wrapped__",
    ]
)
"""Attributes that lead from a class to the reference's method, or around the student's."""

SHOWN = frozenset(["__repr__", "__str__"])
"""Methods by which a class of the student's own says what it is."""

CATALOGUE = ("kvref.bug", "kvref.learn")
"""Where wrong methods are kept, and right ones."""

SPECIAL = re.compile("__[a-z]+__")
USUAL = frozenset(["__future__", "__main__", "__name__"])


def parsed(path: Path) -> ast.Module:
    """A student's file. Raises `BadInput` where it is no Python."""
    try:
        return ast.parse(path.read_bytes(), path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"{path.name} cannot be imported ({one_line(error)})") from None


def require_law(path: Path) -> None:
    """Raise `BadInput` for a law that uses more than what a decoder answers."""
    tree = parsed(path)
    for module, line in imported(tree):
        if module not in IMPORTS:
            raise BadInput(f"{path.name}, line {line}: a law is made of torch and hypothesis, and cannot use {module}")
    for node in ast.walk(tree):
        mine = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not mine:
            raise BadInput(f"{path.name}, line {node.lineno}: a law keeps nothing, and cannot set {node.attr}")
    for name, line in [*names(tree), *texts(tree), *taken(tree)]:
        if name in LOOKING | DOORS or (special(name) and name != "__init__"):
            raise BadInput(f"{path.name}, line {line}: a law looks at what a decoder answers, and cannot use {name}")


def require_repair(path: Path, method: Method) -> None:
    """Raise `BadInput` for a file that reaches for the reference's method rather than to write one."""
    classes = {each.__name__ for each in method.base.__mro__ if each.__module__.startswith("kvref.")}
    tree = parsed(path)
    bases = {id(base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases}
    hints = {id(each) for hint in annotations(tree) for each in ast.walk(hint)}
    renamed = (node for node in ast.walk(tree) if isinstance(node, ast.alias) and node.name in classes)
    classes |= {node.asname for node in renamed if node.asname}
    borrowed = [each for each in names(tree, bases | hints | asked(tree)) if each[0] in classes]
    around = [each for each in names(tree) if each[0] in INSIDE | {"super", "mro"}]
    for name, line in [*around, *borrowed, *(each for each in imported(tree) if each[0].startswith(CATALOGUE))]:
        raise BadInput(f"{path.name}, line {line}: write out what {method.name} does, without {name}")


def require_own(found: type, path: Path, method: Method) -> None:
    """Raise `BadInput` unless a class is the reference's with this method of its own, and no other of them."""
    function = vars(found).get(method.name)
    if not isinstance(function, FunctionType):
        raise BadInput(f"{CLASS} has no {method.name}: the exercise is to write it, not to inherit it")
    if Path(unwrap(function).__code__.co_filename).resolve() != path.resolve():
        raise BadInput(f"{CLASS}.{method.name} is from another file: the exercise is to write it")
    if (kind := type(found)) is not type(method.base):
        raise BadInput(f"{CLASS} is made by a class of its own, {kind.__name__}; leave that to {method.base.__name__}")
    for name, member in vars(found).items():
        code = callable(member) or isinstance(member, property)
        if code and name not in SHOWN | {method.name} and hasattr(method.base, name):
            raise BadInput(f"{CLASS} has its own {name}, but {method.name} alone is wrong; give helpers other names")


def names(tree: ast.AST, without: frozenset[int] | set[int] = frozenset()) -> Iterator[tuple[str, int]]:
    """Names that code uses, with their lines, but for some nodes and for what is imported."""
    for node in ast.walk(tree):
        if id(node) in without or isinstance(node, ast.alias | ast.Import | ast.ImportFrom | ast.Constant):
            continue
        for _, value in ast.iter_fields(node):
            for name in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType] - what is asked is what it is
                if isinstance(name, str):
                    yield name, getattr(node, "lineno", 1)


def texts(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Special names in the texts of a file, which a format could look up, but for those that stand alone to be read."""
    read = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in read:
            yield from ((name, node.lineno) for name in SPECIAL.findall(node.value))


def asked(tree: ast.AST) -> set[int]:
    """What is called, and what an instance is looked for of: to make a cache is not to borrow its method."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    kinds = [each for call in calls if ast.unparse(call.func) == "isinstance" for each in call.args]
    return {id(each) for each in (*(call.func for call in calls), *kinds)}


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """Annotations of arguments, results and variables."""
    for node in ast.walk(tree):
        found = node.returns if isinstance(node, ast.FunctionDef) else getattr(node, "annotation", None)
        if isinstance(found, ast.expr):
            yield found


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules that a file imports, with the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ".", node.lineno


def taken(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are imported from modules, with the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.lineno) for alias in node.names)


def special(name: str) -> bool:
    """Whether a name is one by which Python shows what something is made of."""
    return SPECIAL.fullmatch(name) is not None and name not in USUAL
