"""What a law reaches: a bug in a method that is never called under it cannot show there."""

import functools
import inspect
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kvref.bug import Bug


@dataclass(frozen=True)
class Seam:
    """A method of the reference that bugs replace, and the class that defines it."""

    owner: type
    name: str

    def __str__(self) -> str:
        return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.name}"


def seams(bug: Bug) -> frozenset[Seam] | None:
    """Methods that a bug replaces; None where its class has anything else of its own, which may show anywhere."""
    found = set[Seam]()
    for name, value in vars(bug.part).items():
        if not inspect.isfunction(value):
            if name.startswith("_"):  # what Python itself gives every class
                continue
            return None
        owner = next((base for base in bug.part.__mro__[1:] if name in vars(base)), None)
        if owner is None or owner is object:
            return None
        found.add(Seam(owner, name))
    return frozenset(found)


@contextmanager
def noting(watched: Iterable[Seam]) -> Generator[set[str]]:
    """Context in which every watched method that is called is noted, by the name of its seam."""
    called, before = set[str](), [(seam, vars(seam.owner)[seam.name]) for seam in watched]
    for seam, method in before:
        setattr(seam.owner, seam.name, noted(method, str(seam), called))
    try:
        yield called
    finally:
        for seam, method in before:
            setattr(seam.owner, seam.name, method)


def noted(method: Callable[..., Any], name: str, called: set[str]) -> Callable[..., Any]:
    """A method that says when it is called."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        called.add(name)
        return method(*args, **kwargs)

    return call
