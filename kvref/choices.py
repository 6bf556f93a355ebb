"""What choices are made with: numbers, read off a drawn string of bytes, and where tokens come from."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis.strategies import SearchStrategy

from kvref.operations import Row

T = TypeVar("T")


class TokenSource(Protocol):
    """Where the tokens of a schedule come from."""

    def tokens(self, choice: tuple[int, int], row: int, past: int, new: int) -> Row:
        """`new` tokens for a row that has `past`, as two numbers below 65536 choose; zeros choose the simplest."""
        ...


Sources = Sequence["TokenSource | SearchStrategy[TokenSource]"]
"""Where tokens may come from: what is there, or is drawn."""


class Choices:
    """Numbers to choose with, read off a drawn string of bytes; zeros where it ends."""

    def __init__(self, drawn: bytes) -> None:
        self.drawn = iter(drawn)

    def small(self) -> int:
        """The next number below 256."""
        return next(self.drawn, 0)

    def pair(self) -> tuple[int, int]:
        """The next two numbers below 65536."""
        first, second, third, fourth = (self.small() for _ in range(4))
        return first * 256 + second, third * 256 + fourth


def pick(options: Sequence[T], byte: int) -> T:
    """One of the options; zero is the first."""
    return options[byte % len(options)]
