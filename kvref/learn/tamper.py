"""What a student's file may not touch: what is there before it is imported is looked at again afterwards."""

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from sysconfig import get_paths
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

WHOLE = ("kvref",)
"""Packages of which everything is looked at, data too: a constant decides as much as a function."""

CODE = ("hypothesis", "jaxtyping")
"""Packages of which only code is looked at, for they keep what they note in globals."""

TORCH = [
    "torch",
    "torch._C",
    "torch._C._nn",
    "torch._ops",
    "torch._tensor",
    "torch.functional",
    "torch.overrides",
    "torch.random",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.modules.module",
    "torch.nn.modules.linear",
    "torch.nn.modules.normalization",
    "torch.nn.modules.sparse",
    "torch.nn.modules.container",
    "torch.nn.modules.activation",
    "torch.testing",
    "torch.testing._comparison",
    "torch.utils._python_dispatch",
    "torch.utils._pytree",
    "torch.autograd.grad_mode",
]
STANDARD = [
    "builtins",
    "abc",
    "ast",
    "atexit",
    "codecs",
    "collections",
    "contextlib",
    "contextvars",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "gc",
    "hashlib",
    "hmac",
    "importlib",
    "importlib.util",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "inspect",
    "io",
    "itertools",
    "json",
    "json.decoder",
    "json.encoder",
    "math",
    "multiprocessing.connection",
    "multiprocessing.process",
    "operator",
    "os",
    "pathlib",
    "posixpath",
    "pytest",
    "random",
    "re",
    "secrets",
    "struct",
    "sys",
    "textwrap",
    "threading",
    "time",
    "types",
    "typing",
    "unittest",
    "unittest.case",
    "_thread",
]
"""Modules, of which code is looked at too."""

NOISE = frozenset(
    [
        "__dict__",
        "__weakref__",
        "__doc__",
        "__annotations__",
        "__abstractmethods__",
        "_abc_impl",
        "__warningregistry__",
        "__builtins__",
        "__cached__",
        "__path__",
        "__file__",
        "__spec__",
        "__loader__",
        "__subclasshook__",
        "__slotnames__",
        "__dynamo_disable",
    ]
)
"""What a class or module has that decides nothing, or that changes by itself."""

PLAIN = frozenset({str, int, float, bool, bytes, frozenset, type(None), CodeType, ModuleType, BuiltinFunctionType})
"""Kinds of things with nothing in them that could be replaced."""

Parts = dict[str, object]


class Snapshot:
    """What code and constants are there, each held by itself, so that what is replaced is seen whatever it is."""

    def __init__(self, roots: Mapping[str, object], states: Mapping[str, Callable[[], object]]) -> None:
        self.states = {name: (state, state()) for name, state in states.items()}
        self.modules = {name: module for name, module in list(sys.modules.items()) if watched(name)}
        self.nodes: dict[int, tuple[str, Any, bool, Parts]] = {}
        todo = list[tuple[str, object, bool]]()
        todo += [(name, module, name.partition(".")[0] in WHOLE) for name, module in self.modules.items()]
        todo += [(name, value, True) for name, value in roots.items()]
        while todo:
            name, value, whole = todo.pop()
            if id(value) in self.nodes:
                continue
            found = parts(value, whole)
            self.nodes[id(value)] = name, value, whole, found
            todo += [(f"{name}.{key}", part, inside(part, whole)) for key, part in found.items() if ours(part, whole)]

    def changed(self) -> str:
        """The first thing that is another than it was, in words; nothing where all is as before."""
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                return f"the module {name} was replaced"
        for name, (state, before) in self.states.items():
            if state() != before:
                return f"{name} is another than before"
        for name, value, whole, before in self.nodes.values():
            if key := difference(value, before, parts(value, whole)):
                return f"{name}.{key}".replace(".[", "[") + " was replaced"
        return ""


def watched(module: str) -> bool:
    """Whether a module is looked at."""
    return module.partition(".")[0] in (*WHOLE, *CODE) or module in TORCH or module in STANDARD


def inside(value: object, whole: bool) -> bool:
    """Whether data counts in what was found: not in what belongs to another package than where it was found."""
    return whole and (not isinstance(value, type) or value.__module__.partition(".")[0] in WHOLE)


def ours(value: object, whole: bool) -> bool:
    """Whether to look into what was found in a module that is looked at."""
    if type(value) in PLAIN:  # modules that are looked at are so by themselves
        return False
    if isinstance(value, FunctionType | type):
        return watched(str(value.__module__))
    if isinstance(value, staticmethod | classmethod | property | CellType | MethodType):
        return True
    if isinstance(value, dict | list | tuple | set):
        return whole
    return (whole and type(value).__module__.partition(".")[0] in WHOLE) or hasattr(type(value), "cache_clear")


def parts(value: Any, whole: bool) -> Parts:
    """What a thing is made of, by name."""
    if isinstance(value, ModuleType):
        return {key: part for key, part in vars(value).items() if key not in NOISE and (whole or callable(part))}
    if isinstance(value, type):
        found = {key: part for key, part in vars(value).items() if key not in NOISE and (whole or callable_in(part))}
        return {**found, "__bases__": value.__bases__}
    if isinstance(value, FunctionType):
        return {**of_function(value), **{key: part for key, part in vars(value).items() if key not in NOISE}}
    if isinstance(value, property):
        return {"fget": value.fget, "fset": value.fset}
    if isinstance(value, staticmethod | classmethod | MethodType):
        return {"__func__": cast("Any", value).__func__}
    if isinstance(value, CellType):
        return {"contents": value.cell_contents} if filled(value) else {}
    return of_data(value)


def of_data(value: Any) -> Parts:
    """What is in a container, or in an instance of a class of ours."""
    if isinstance(value, dict):
        pairs = list(cast("dict[Any, Any]", value).items())
        return {f"[{number}]{which}": part for number, pair in enumerate(pairs) for which, part in enumerate(pair)}
    if isinstance(value, list | tuple):
        return {f"[{number}]": part for number, part in enumerate(cast("list[Any]", value))}
    if isinstance(value, set):
        return {f"[{id(part)}]": part for part in cast("set[Any]", value)}
    return dict(getattr(value, "__dict__", {}))


def callable_in(part: object) -> bool:
    """Whether something in a class is code."""
    return callable(part) or isinstance(part, staticmethod | classmethod | property)


def of_function(function: FunctionType) -> Parts:
    """What decides what a function does."""
    cells = {f"__closure__[{n}]": cell for n, cell in enumerate(function.__closure__ or ())}
    named = {name: getattr(function, name) for name in ("__code__", "__defaults__", "__kwdefaults__")}
    return {**named, **cells}


def filled(cell: CellType) -> bool:
    """Whether there is anything in a cell yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def difference(value: object, before: Parts, now: Parts) -> str:
    """The name of a part that is another, gone, or new where nothing new may be."""
    for key, part in before.items():
        if key not in now or now[key] is not part:
            return key
    for key in now.keys() - before.keys():
        if not may_come(value, key, now[key]):
            return key
    return ""


def may_come(value: object, key: str, part: object) -> bool:
    """Whether something may be new: a submodule when it is imported, and what an instance works out once."""
    if isinstance(value, ModuleType | type):
        return isinstance(part, ModuleType)
    if isinstance(value, FunctionType | CellType | dict | list | set):
        return False
    return isinstance(getattr(type(value), key, cached_property), cached_property | type)


def private(module: ModuleType) -> dict[str, Any]:
    """A module's functions and classes run anew over names and builtins of their own, which nobody can replace."""
    file = module.__file__ or ""
    scope: dict[str, Any] = {"__name__": module.__name__, "__file__": file, "__builtins__": dict(vars(builtins))}
    exec(compile(Path(file).read_bytes(), file, "exec"), scope)
    return scope


REACHING = (
    "ctypes.",
    "gc.get_",
    "sys._getframe",
    "sys._current_frames",
    "sys.settrace",
    "sys.setprofile",
    "sys.addaudithook",
    "code.__new__",
    "compile",
    "exec",
    "os.fork",
    "os.posix_spawn",
    "os.exec",
    "os.kill",
    "os.system",
    "subprocess.",
    "socket.",
)
"""Events of Python's audit, by which a file reaches for the process that it is judged in, or for others.

To compile or to run code is one too: what that does would be done by another file in its name.
"""

WAYS = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame", "f_back"})
"""Attributes that lead to frames."""


ONCE, ALWAYS = ("traceback", "logging/__init__"), ("inspect", "bdb", "pdb", "cgitb", "trace")
"""Modules that look at frames for who calls them; what those of the first kind do further down ends in text."""


class Reached(BaseException):
    """Raised in a file that reaches for what is not its own, so that it does not get it."""


def reaching(path: Path) -> Callable[[], str]:
    """Listen to what a file calls from now on, in a way that cannot be taken back; what it reached for, when asked.

    What a library does for it is not looked at, for they look at frames for reasons of their own; but for modules of
    the standard library that give a frame to who asks.
    """
    libraries = tuple({*get_paths().values(), str(Path(__file__).resolve().parents[1])})
    file, seen, frame, busy = str(path), list[str](), vars(sys)["_getframe"], list[bool]()
    folder = Path(get_paths()["stdlib"])
    once, always = ([str(folder / f"{module}.py") for module in modules] for modules in (ONCE, ALWAYS))

    def theirs(caller: str) -> bool:
        return caller != file and caller.startswith(("<", *libraries))

    def asks() -> bool:
        at = frame(2)
        if at.f_code.co_filename in once:
            at = at.f_back
        while at is not None and at.f_code.co_filename in always:
            at = at.f_back
        return at is not None and not theirs(at.f_code.co_filename)

    def hook(event: str, args: tuple[object, ...]) -> None:
        way = event == "object.__getattr__" and len(args) > 1 and args[1] in WAYS
        if busy or not (way or event.startswith(REACHING)):
            return
        busy.append(True)  # for to ask who calls is such an event too
        found = asks()
        busy.clear()
        if found:
            seen.append(event)
            raise Reached(event)

    sys.addaudithook(hook)
    return lambda: next(iter(seen), "")


def subclasses(kind: type) -> Iterator[type]:
    """All classes that derive from one."""
    for each in type.__subclasses__(kind):
        yield each
        yield from subclasses(each)
