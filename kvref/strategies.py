"""Hypothesis strategies: which schedules a law is tried on.

Boundaries are where caches break, so they are drawn often: one token, two, the size of a chunk just seen, all the room
that is left; a batch of one and of more; a capacity that is just enough. Nothing here knows of any particular bug.

Each public function gives a `Draw`: what the schedules of a law are, once the decoder and the source of tokens are
known. Below it, everything is drawn by plain functions from strategies that are made once, since making and checking a
strategy costs more than a small model's forward pass.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Protocol, runtime_checkable

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from kvref.decoder import Capability, Decoder
from kvref.schedule import (
    Contents,
    Crop,
    Extend,
    Fork,
    Op,
    Overflow,
    Poison,
    Reorder,
    Reset,
    Row,
    Schedule,
    Start,
    apply,
)

MAX_ROWS = 3
MAX_CHUNK = 16
MAX_CACHES = 3
MAX_STEPS = 12
EXTENDS = 5
"""How many times likelier another extension is than the end of the schedule."""

POISONS = (1e9, -1e9, math.nan)
OFFERED_BY: dict[type[Op], Capability] = {
    Crop: Capability.CROP,
    Fork: Capability.FORK,
    Reorder: Capability.REORDER,
    Reset: Capability.RESET,
    Poison: Capability.POISON,
}


@runtime_checkable
class TokenSource(Protocol):
    """Where the tokens of a schedule come from."""

    def chunk(self, draw: DrawFn, past: int, new: int, rows: int) -> tuple[Row, ...]:
        """`new` tokens for each of some rows that have `past`."""
        ...


Draw = Callable[[Decoder, Sequence[TokenSource]], SearchStrategy[Schedule]]


@lru_cache(maxsize=4096)
def one_of(*options: Any) -> SearchStrategy[Any]:
    """One of these values; shrinks to the first.

    A single value is drawn all the same, as if there were two of it. Hypothesis shrinks by leaving out choices, so what
    is drawn must not depend on how many options there happen to be.
    """
    return st.sampled_from(options if len(options) > 1 else options * 2)


@lru_cache(maxsize=64)
def orders(rows: int) -> SearchStrategy[tuple[int, ...]]:
    """Every new order of some rows, with repeats and gaps."""
    return one_of(*(order for count in range(1, MAX_ROWS + 1) for order in product(range(rows), repeat=count)))


@dataclass
class Draft:
    """A schedule while it is drawn: its operations so far, and what is in the caches after them."""

    draw: DrawFn
    decoder: Decoder
    source: TokenSource
    ops: tuple[Op, ...] = ()
    state: Contents = ()

    def add(self, op: Op) -> None:
        """Append an operation."""
        self.state = apply(op, self.state)
        self.ops = (*self.ops, op)

    def room(self, cache: int = 0) -> int:
        """Tokens that each row of a cache can still take."""
        capacity, limit = self.state[cache].capacity, self.decoder.block_size
        return (limit if capacity is None else min(capacity, limit)) - self.state[cache].length

    def tokens(self, new: int, cache: int = 0) -> tuple[Row, ...]:
        """`new` tokens for each row of a cache."""
        content = self.state[cache]
        return self.source.chunk(self.draw, content.length, new, len(content.rows))

    def size(self, room: int) -> int:
        """Size of the next chunk: often 1, 2, all that fits, or a size seen before."""
        largest = min(room, MAX_CHUNK)
        seen = {len(op.tokens[0]) for op in self.ops if isinstance(op, Extend)}
        likely = sorted({size for size in {1, 2, largest, *seen} if size <= largest})
        return self.draw(one_of(*likely, *range(1, largest + 1)))

    def start(self, max_rows: int) -> None:
        """Start a new cache, where the decoder allocates in advance with any capacity that it can have."""
        capacity = None
        rows = self.draw(one_of(*range(1, max_rows + 1)))
        if getattr(self.decoder.implementation, "preallocates", False):
            capacity = self.draw(one_of(None, *range(1, min(self.decoder.block_size, 2 * MAX_CHUNK) + 1)))
        self.add(Start(rows, capacity))

    def extend(self, cache: int = 0, room: int | None = None) -> None:
        """Extend a cache by as many tokens as `room` or as it can take."""
        new = self.size(self.room(cache) if room is None else room)
        self.add(Extend(self.tokens(new, cache), cache))

    def operate(self, kind: type[Op], cache: int) -> None:
        """Do an operation of a kind that is possible now."""
        content, rows = self.state[cache], len(self.state[cache].rows)
        if kind is Start:
            self.start(rows)
        elif kind is Extend:
            self.extend(cache)
        elif kind is Crop:
            self.add(Crop(self.draw(one_of(*range(content.length + 1))), cache))
        elif kind is Reorder:
            self.add(Reorder(self.draw(orders(rows)), cache))
        elif kind is Poison:
            self.add(Poison(self.draw(one_of(*POISONS)), cache))
        elif kind is Fork:
            self.add(Fork(cache))
        elif kind is Reset:
            self.add(Reset(cache))

    def possible(self, kind: type[Op], cache: int) -> bool:
        """Whether an operation can be done now and would change anything."""
        if kind in (Start, Fork):
            return len(self.state) < MAX_CACHES
        if kind in (Extend, Poison):
            return self.room(cache) > 0
        return kind is Reorder or self.state[cache].length > 0


@st.composite
def operation(draw: DrawFn, draft: Draft, kinds: tuple[type[Op], ...]) -> bool:
    """Add one operation to a draft, or none; give whether it did. As a strategy of its own it shrinks as a whole."""
    cache = draw(one_of(*range(len(draft.state))))
    options = [*[Extend] * max(EXTENDS, len(kinds)), *kinds]
    kind = draw(one_of(None, *(kind for kind in options if draft.possible(kind, cache))))
    if kind is not None:
        draft.operate(kind, cache)
    return kind is not None


def fill(draft: Draft, kinds: tuple[type[Op], ...], max_rows: int) -> None:
    """Start a cache, and operate on it, its forks and its neighbours."""
    draft.start(max_rows)
    while len(draft.ops) < MAX_STEPS and draft.draw(operation(draft, kinds)):
        pass


def drawn(program: Callable[[Draft], None]) -> Draw:
    """Make a `Draw` of a function that fills a draft."""

    @st.composite
    def schedule(draw: DrawFn, decoder: Decoder, sources: Sequence[TokenSource]) -> Schedule:
        draft = Draft(draw, decoder, draw(one_of(*sources)))
        program(draft)
        return Schedule(draft.ops)

    return schedule


def schedules(*kinds: type[Op], max_rows: int = MAX_ROWS) -> Draw:
    """Prompts in chunks of any size, with these further kinds of operation where the decoder offers them."""

    def program(draft: Draft) -> None:
        offered = draft.decoder.capabilities
        fill(draft, tuple(kind for kind in kinds if OFFERED_BY.get(kind) in {None, *offered}), max_rows)

    return drawn(program)


def rechunked() -> Draw:
    """The same tokens twice, in two caches one after the other, cut into chunks in two ways."""

    def program(draft: Draft) -> None:
        fill(draft, (), MAX_ROWS)
        whole = draft.state[0]
        draft.add(Start(len(whole.rows), whole.capacity))
        while (past := draft.state[1].length) < whole.length:
            new = draft.size(whole.length - past)
            draft.add(Extend(tuple(row[past : past + new] for row in whole.rows), 1))

    return drawn(program)


def twins() -> Draw:
    """Two caches, one after the other, fed in the same chunks, with tokens that differ from some position on."""

    def program(draft: Draft) -> None:
        fill(draft, (), MAX_ROWS)
        first, *calls = draft.ops
        cut = draft.draw(one_of(*range(draft.state[0].length + 1)))
        draft.add(first)
        for call in calls:
            assert isinstance(call, Extend)
            past, new = draft.state[1].length, len(call.tokens[0])
            kept = min(max(cut - past, 0), new)
            fresh = draft.tokens(new, 1) if kept < new else call.tokens
            rows = zip(call.tokens, fresh, strict=True)
            draft.add(Extend(tuple(old[:kept] + other[kept:] for old, other in rows), 1))

    return drawn(program)


def overflows() -> Draw:
    """A cache filled up to a few tokens, one attempt at more than fits, then exactly what fits."""

    def program(draft: Draft) -> None:
        draft.start(2)
        spare = draft.draw(one_of(*range(min(4, draft.room()))))
        while room := draft.room() - spare:
            largest = room if room <= MAX_CHUNK else room - MAX_CHUNK // 2
            draft.add(Extend(draft.tokens(draft.draw(one_of(largest, *range(1, min(room, MAX_CHUNK) + 1))))))
        draft.add(Overflow(draft.tokens(draft.draw(one_of(1, 2, 3)) + spare)))
        if spare:
            draft.add(Extend(draft.tokens(spare)))
        elif Capability.CROP in draft.decoder.capabilities:
            draft.operate(Crop, 0)
            if draft.room():
                draft.extend()

    return drawn(program)


def conversations(reply: int) -> Draw:
    """Turns of one row, as `Extend` operations, with room for a reply of `reply` tokens after each."""

    def program(draft: Draft) -> None:
        draft.add(Start(1))
        turns, more = 0, True
        while more:
            turns += 1
            draft.extend(0, draft.room() - turns * reply)
            more = draft.room() > (turns + 1) * reply and draft.draw(one_of(False, True, True))

    return drawn(program)
