"""From a drawn example that fails to a small one: its bytes are made zeros, or smaller numbers, where it still fails.

Hypothesis would do so with any bytes. That it knows nothing of what they mean costs some hundred runs of a law for each
finding; here whole operations go first, for each of them has bytes of its own, and the tokens go before their number.
What comes out is a schedule from which no operation can be left out, and in which no single number can be smaller.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from kvref.strategies import HEAD, LENGTH, MAX_ROWS, OPENING, SLOT, SLOTS

Fails = Callable[[bytes], bool]

FIRST_SLOT = HEAD + OPENING
GROUPS = (
    *((at, at + SLOT) for at in range(FIRST_SLOT, FIRST_SLOT + SLOTS * SLOT, SLOT)),
    (FIRST_SLOT + SLOTS * SLOT, LENGTH),
    (HEAD, FIRST_SLOT),
    *((at, at + 1) for at in range(HEAD)),
)
"""Bytes that mean something together: each slot, what a law needs besides, the start, the decoder and the source."""

TOKENS = 4
"""Bytes of one choice of tokens, which are simplest as zeros."""

FEW = 3
"""Groups that are left when they are tried two at a time, times two."""

SIZES, MORE = (2, 3), 3
"""Where in a slot the size of a chunk may stand, and from where on no larger one is tried."""

LARGEST = 64
"""There are no more options than that to choose from with a byte."""


@dataclass
class Shrinking:
    """An example that fails, while it is made smaller."""

    fails: Fails
    best: bytes

    def run(self) -> bytes:
        """Make it smaller until nothing more can be."""
        while True:
            before = self.best
            self.cut()
            self.empty()
            self.lower()
            if self.best == before:
                return before

    def accept(self, smaller: bytes) -> bool:
        """Take a smaller example if that fails too."""
        if smaller == self.best or not self.fails(smaller):
            return False
        self.best = smaller
        return True

    def zeros(self, *parts: tuple[int, int]) -> bytes:
        """The best example with zeros in some parts of it."""
        data = bytearray(self.best)
        for begin, end in parts:
            data[begin:end] = bytes(end - begin)
        return bytes(data)

    def cut(self) -> None:
        """Leave out as many operations as can be at the end, by halves."""
        least, most, end = 0, SLOTS, FIRST_SLOT + SLOTS * SLOT
        while least < most:
            middle = (least + most) // 2
            shorter = self.zeros((FIRST_SLOT + middle * SLOT, end))
            least, most = (least, middle) if shorter == self.best or self.accept(shorter) else (middle + 1, most)

    def empty(self) -> None:
        """Make groups zeros, each alone, the last first; and of few that are left, any two.

        An operation that is needed for what it adds can go where something else adds as much: where there are more rows
        from the start, or more tokens in the operation before.
        """
        for group in reversed(self.full()):
            if not self.accept(self.zeros(group)) and FIRST_SLOT <= group[0] < FIRST_SLOT + SLOTS * SLOT:
                any(self.accept(instead) for instead in self.instead_of(group))
        if len(self.full()) <= 2 * FEW:
            for pair in combinations(self.full(), 2):
                self.accept(self.zeros(*pair))

    def instead_of(self, slot: tuple[int, int]) -> Iterator[bytes]:
        """The best example without an operation, but with a larger number where that may stand for it."""
        before = max((begin for begin, _ in self.full() if FIRST_SLOT <= begin < slot[0]), default=None)
        sizes = [] if before is None else [before + at for at in SIZES]
        empty = self.zeros(slot)
        for at, larger in [(HEAD, MAX_ROWS), *((at, MORE) for at in sizes)]:
            for number in range(empty[at] + 1, larger):
                yield empty[:at] + bytes([number]) + empty[at + 1 :]

    def full(self) -> list[tuple[int, int]]:
        """Groups that are not zeros."""
        return [(begin, end) for begin, end in GROUPS if any(self.best[begin:end])]

    def lower(self) -> None:
        """Make each number smaller: four in a row are zeros, if they may be tokens, or one is the least that does."""
        for at in range(LENGTH):
            if any(self.best[at : at + TOKENS]):
                self.accept(self.zeros((at, at + TOKENS)))
        for at in range(LENGTH):
            any(self.accept(smaller) for smaller in self.lower_at(at))

    def lower_at(self, at: int) -> Iterator[bytes]:
        """The best example with each smaller number at a place, from zero on."""
        for number in range(min(self.best[at], LARGEST)):
            yield self.best[:at] + bytes([number]) + self.best[at + 1 :]


def smallest(fails: Fails, drawn: bytes) -> bytes:
    """The smallest example that still fails, as far as single steps lead, from one that does."""
    return Shrinking(fails, drawn).run()
