"""Hypothesis strategies: which schedules a law is tried on.

Boundaries are where caches break, so they are drawn often: one token, two, the size of a chunk just seen, all the room
that is left; a batch of one and of more; a capacity that is just enough. Nothing here knows of any particular bug.

A schedule is made from one string of bytes: a few for the start, then as many for each of a fixed number of slots, an
operation with its arguments. Zero means nothing, or the simplest of something. So each slot can be made small by
itself, drawing costs little beside a small forward pass, and Hypothesis, which likes to repeat parts of an example that
are alike, has none to repeat: every example is a new one.

Nothing is drawn but bytes of a fixed number. Numbers and texts Hypothesis takes at times from the source code of those
who run it, so that the same seed would draw otherwise once a line of a decoder under test has changed.

Each public function gives a `Draw`: the schedules of a law, once the decoder and the source of tokens are known.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from hypothesis import strategies as st

from kvref.capability import Capability
from kvref.choices import Choices, TokenSource, pick
from kvref.contents import Contents, apply
from kvref.decoder import Decoder
from kvref.operations import (
    Abort,
    Crop,
    CropRows,
    Extend,
    Fork,
    Given,
    Op,
    Overflow,
    Peek,
    Poison,
    Prefill,
    Refill,
    Reorder,
    Reset,
    Restore,
    Row,
    Start,
)
from kvref.schedule import Schedule

MAX_ROWS = 3
MAX_CHUNK = 16
MAX_CACHES = 3
SLOTS, SLOT = 12, 9
"""Slots of a schedule, and bytes of a slot: an operation, its cache, and what it takes, say the tokens of a chunk."""

HEAD, OPENING, BESIDES = 2, 3, 40
LENGTH = HEAD + OPENING + SLOTS * SLOT + BESIDES
"""Bytes of an example: decoder and source of tokens, the start, the slots, and what a law needs besides."""
DRAWN = st.binary(min_size=LENGTH, max_size=LENGTH)
EMPTY, EXTEND, OTHER = 3, 8, 2
"""How often a slot is left empty, extends a cache, or does one other kind of operation."""

POISONS = (1e9, -1e9, math.nan)
PADS = (0, 0, 1, 3)
"""Columns of padding that even the longest row of a prefill has."""

OFFERED_BY: dict[type[Op], frozenset[Capability]] = {
    Prefill: frozenset({Capability.PREFILL}),
    Peek: frozenset({Capability.PEEK}),
    Abort: frozenset({Capability.LAYERS, Capability.ATOMIC}),
    Crop: frozenset({Capability.CROP}),
    CropRows: frozenset({Capability.CROP_ROWS}),
    Refill: frozenset({Capability.REFILL}),
    Restore: frozenset({Capability.SAVE}),
    Fork: frozenset({Capability.FORK}),
    Reorder: frozenset({Capability.REORDER}),
    Reset: frozenset({Capability.RESET}),
    Poison: frozenset({Capability.POISON}),
}

EVERY: tuple[type[Op], ...] = (*(kind for kind in OFFERED_BY if kind is not Poison), Start)
"""All operations that put no number of their own into a cache."""


Draw = Callable[[Decoder, TokenSource, Choices], Schedule]


@lru_cache(maxsize=16)
def orders(rows: int, largest: int) -> list[tuple[int, ...]]:
    """Every new order of some rows, with repeats and gaps, that gives a batch of at most `largest`.

    Orders that only change the places of rows are few, and come more often: they make up a third.
    """
    every = [order for count in range(1, largest + 1) for order in product(range(rows), repeat=count)]
    moves = [order for order in every if sorted(order) == [*range(rows)] != [*order]]
    return every + moves * (len(every) // (2 * len(moves)) if moves else 0)


@dataclass
class Draft:
    """A schedule while it is drawn: its operations so far, and what is in the caches after them."""

    choices: Choices
    decoder: Decoder
    source: TokenSource
    ops: tuple[Op, ...] = ()
    state: Contents = ()

    def add(self, op: Op) -> None:
        """Append an operation."""
        self.state = apply(op, self.state)
        self.ops = (*self.ops, op)

    def tokens(self, choice: tuple[int, int], new: int, cache: int = 0) -> tuple[Row, ...]:
        """`new` tokens for each row of a cache."""
        rows = enumerate(self.state[cache].lengths)
        return tuple(self.source.tokens(choice, row, past, new) for row, past in rows)

    @property
    def widest(self) -> int:
        """Rows of the largest batch."""
        return min(self.decoder.max_batch or MAX_ROWS, MAX_ROWS)

    def room(self, cache: int = 0) -> int:
        """Tokens that each row of a cache can still take."""
        capacity, limit = self.state[cache].capacity, self.decoder.block_size
        return (limit if capacity is None else min(capacity, limit)) - self.state[cache].width

    def size(self, byte: int, room: int) -> int:
        """Size of the next chunk: mostly small, so that more fit; often a size seen before; at times all that fits."""
        largest = min(room, MAX_CHUNK)
        seen = sorted({len(op.tokens[0]) for op in self.ops if isinstance(op, Given)})
        sizes = (1, 2, 3, *seen, 1, 2, largest // 2 or 1, largest)
        return pick([size for size in sizes if size <= largest], byte)

    def start(self, max_rows: int, often: int = 2) -> None:
        """Start a new cache; where the decoder allocates in advance, mostly with a capacity of its own.

        One time in `often` it has the room of the whole context.
        """
        rows, own, capacity = (self.choices.small() for _ in range(3))
        max_rows = min(max_rows, self.widest)
        limit = min(self.decoder.block_size, 2 * MAX_CHUNK)
        fixed = self.decoder.preallocates and own % often
        self.add(Start(pick(range(1, max_rows + 1), rows), 1 + capacity % limit if fixed else None))

    def extend(self, room: int, cache: int = 0) -> None:
        """Extend a cache by some of the tokens that there is room for."""
        size, choice = self.choices.small(), self.choices.pair()
        self.add(Extend(self.tokens(choice, self.size(size, room), cache), cache))

    def prefill(self, cache: int, room: int) -> None:
        """Give every row of an empty cache a prompt of its own length, with padding."""
        size, choice, shape = self.choices.small(), self.choices.pair(), self.choices.small()
        more = min(pick(PADS, shape), room - 1)
        longest = self.size(size, room - more)
        whole = self.tokens(choice, longest, cache)
        # One row keeps the whole length; the others lose from none to all but one of their tokens.
        cut = [(shape // (row + 1) + size) % longest if row else 0 for row in range(len(whole))]
        tokens = tuple(row[: longest - less] for row, less in zip(whole, cut, strict=True))
        turned = shape % len(tokens)
        pad = self.source.tokens(choice, 0, longest, 1)[0]
        self.add(Prefill((*tokens[turned:], *tokens[:turned]), more, pad, cache))

    def crop_rows(self, cache: int) -> None:
        """Keep some tokens of each row: all, all but a few, or any number, none included."""
        kept = [
            pick([length, length, max(length - 1, 0), max(length - 2, 0), *range(length + 1)], self.choices.small())
            for length in self.state[cache].lengths
        ]
        self.add(CropRows(tuple(kept), cache))

    def refill(self, cache: int) -> None:
        """Give a row to another request: shorter than its last occupant, as long, longer, or longer than all."""
        row, size, choice = self.choices.small(), self.choices.small(), self.choices.pair()
        content = self.state[cache]
        row %= len(content.rows)
        largest = content.width + self.room(cache)
        old = content.lengths[row]
        lengths = (1, max(old - 1, 1), old, old + 1, content.width, content.width + 1, 2, largest)
        new = pick([length for length in lengths if 1 <= length <= min(largest, MAX_CHUNK)], size)
        self.add(Refill(row, self.source.tokens(choice, row, 0, new), cache))

    def dying(self, tokens: tuple[Row, ...], number: int, cache: int) -> Abort:
        """A pass that dies in a layer: onto an empty cache every other one is a prefill, where its padding fits."""
        other, layer = divmod(number, self.decoder.depth)
        fits = self.state[cache].width == 0 and self.room(cache) > len(tokens[0])
        padded = fits and Capability.PREFILL in self.decoder.capabilities
        return Abort(tokens, layer, cache, other % 2 if padded else 0)

    def operate(self, kinds: Sequence[type[Op]]) -> None:
        """Add the operation that the next choices name, if they name one that is possible now."""
        kind = pick(weighted(tuple(kinds)), self.choices.small())
        cache = pick(range(len(self.state)), self.choices.small())
        if kind is Extend and Prefill in kinds and self.state[cache].width == 0 and self.choices.small() % 2:
            kind = Prefill
        if kind is not None and self.possible(kind, cache):
            self.act(kind, cache)

    def act(self, kind: type[Op], cache: int) -> None:
        """Add an operation of a kind, with arguments that the next choices name."""
        content, small = self.state[cache], self.choices.small
        if kind is Extend:
            self.extend(self.room(cache), cache)
        elif kind is Prefill:
            self.prefill(cache, self.room(cache))
        elif kind is Peek or kind is Abort:
            size, choice = small(), self.choices.pair()
            tokens = self.tokens(choice, self.size(size, self.room(cache)), cache)
            self.add(Peek(tokens, cache) if kind is Peek else self.dying(tokens, small(), cache))
        elif kind is Start:
            self.start(len(content.rows))
        elif kind is Crop:
            shortest = min(content.lengths)
            self.add(Crop(pick([*range(shortest), shortest, shortest, 0], small()), cache))
        elif kind is CropRows:
            self.crop_rows(cache)
        elif kind is Refill:
            self.refill(cache)
        elif kind is Reorder:
            self.add(Reorder(pick(orders(len(content.rows), self.widest), small()), cache))
        elif kind is Poison:
            self.add(Poison(pick(POISONS, small()), cache))
        else:
            self.add(PLAIN[kind](cache))

    def possible(self, kind: type[Op], cache: int) -> bool:
        """Whether an operation can be done now and would change anything."""
        if kind in (Start, Fork):
            return len(self.state) < MAX_CACHES
        if kind is Prefill:
            return self.state[cache].width == 0
        if kind in (Extend, Peek, Abort, Poison):
            return self.room(cache) > 0
        if kind is Crop and Capability.CROP_ROWS in self.decoder.refuses and len(set(self.state[cache].lengths)) > 1:
            return False
        return kind is Reorder or self.state[cache].length > 0


PLAIN: dict[type[Op], Callable[[int], Op]] = {Fork: Fork, Reset: Reset, Restore: Restore}
"""Operations that take nothing but a cache."""


@lru_cache(maxsize=64)
def weighted(kinds: tuple[type[Op], ...]) -> list[type[Op] | None]:
    """Kinds of operation for a slot, none first, each as often as it should come."""
    each = max(OTHER, EXTEND // max(len(kinds), 1))
    return [None] * EMPTY + [Extend] * EXTEND + [kind for kind in kinds for _ in range(each)]


def fill(draft: Draft, kinds: Sequence[type[Op]], max_rows: int) -> None:
    """Start a cache, and operate on it, its forks and its neighbours."""
    choices = draft.choices
    draft.start(max_rows)
    for _ in range(SLOTS):
        # Each slot has its own bytes, whether it needs them or not, so that one can be emptied without the others.
        draft.choices = Choices(bytes(choices.small() for _ in range(SLOT)))
        draft.operate(kinds)
    draft.choices = choices


def drawn(program: Callable[[Draft], None]) -> Draw:
    """Make a `Draw` of a function that fills a draft."""

    def schedule(decoder: Decoder, source: TokenSource, choices: Choices) -> Schedule:
        draft = Draft(choices, decoder, source)
        program(draft)
        return Schedule(draft.ops)

    return schedule


def schedules(*kinds: type[Op], max_rows: int = MAX_ROWS) -> Draw:
    """Prompts in chunks of any size, with these further kinds of operation where the decoder offers them."""

    def program(draft: Draft) -> None:
        offered = draft.decoder.capabilities
        fill(draft, [kind for kind in kinds if OFFERED_BY.get(kind, frozenset()) <= offered], max_rows)

    return drawn(program)


def rechunked() -> Draw:
    """The same tokens twice, in two caches one after the other, cut into chunks in two ways."""

    def program(draft: Draft) -> None:
        fill(draft, (), MAX_ROWS)
        whole = draft.state[0]
        draft.add(Start(len(whole.rows), whole.capacity))
        while (past := draft.state[1].length) < whole.length:
            new = draft.size(draft.choices.small(), whole.length - past)
            draft.add(Extend(tuple(row[past : past + new] for row in whole.rows), 1))

    return drawn(program)


def twins() -> Draw:
    """Two caches, one after the other, fed in the same chunks, with tokens that differ from some position on."""

    def program(draft: Draft) -> None:
        fill(draft, (), MAX_ROWS)
        first, *calls = draft.ops
        length = draft.state[0].length
        cut = pick(range(length + 1), draft.choices.small())
        draft.add(first)
        other = draft.tokens(draft.choices.pair(), length, 1)
        for call in calls:
            assert isinstance(call, Extend)
            past, new = draft.state[1].length, len(call.tokens[0])
            kept = min(max(cut - past, 0), new)
            rows = zip(call.tokens, other, strict=True)
            draft.add(Extend(tuple(old[:kept] + row[past + kept : past + new] for old, row in rows), 1))

    return drawn(program)


def overflows() -> Draw:
    """A cache filled up to a few tokens, an attempt at more than fits, what fits, and an attempt when it is full."""

    def program(draft: Draft) -> None:
        choices = draft.choices
        draft.start(2, often=4)
        spare = pick(range(min(4, draft.room())), choices.small())
        while room := draft.room() - spare:
            largest = room if room <= MAX_CHUNK else room - MAX_CHUNK // 2
            new = pick([largest, *range(1, min(room, MAX_CHUNK) + 1)], choices.small())
            draft.add(Extend(draft.tokens(choices.pair(), new)))
        draft.add(Overflow(draft.tokens(choices.pair(), pick((1, 2, 3), choices.small()) + spare)))
        if spare:
            draft.add(Extend(draft.tokens(choices.pair(), spare)))
        elif Capability.CROP in draft.decoder.capabilities:
            draft.add(Crop(pick(range(draft.state[0].length), choices.small())))
            draft.extend(draft.room())
        if not draft.room():
            draft.add(Overflow(draft.tokens(choices.pair(), pick((1, 1, 1, 2), choices.small()))))

    return drawn(program)


def prompts(new: int) -> Draw:
    """A prompt for each row of a batch, mostly of several rows, with room for `new` tokens where the context allows."""

    def program(draft: Draft) -> None:
        several = range(2, draft.widest + 1)
        draft.add(Start(pick((1, *several, *several), draft.choices.small())))
        draft.extend(max(draft.room() - new, 1))

    return drawn(program)


def ragged_prompts(new: int) -> Draw:
    """A prompt of its own length for each row of a batch, with room for `new` tokens behind the longest."""

    def program(draft: Draft) -> None:
        draft.add(Start(pick(range(1, draft.widest + 1), draft.choices.small() + 1)))
        draft.prefill(0, max(draft.room() - new, 1))

    return drawn(program)


def conversations(reply: int) -> Draw:
    """Turns of one row, as `Extend` operations, with room for a reply of `reply` tokens after each."""

    def program(draft: Draft) -> None:
        draft.add(Start(1))
        for turn in range(1, 5):
            more, room = draft.choices.small(), draft.room() - turn * reply
            if turn == 1 or (room > 0 and more % 3):
                draft.extend(max(room, 1))

    return drawn(program)
