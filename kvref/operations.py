"""The cache operations that schedules are made of, each with its tokens: in words, and read from JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, get_args

from kvref.errors import ScheduleError

Row = tuple[int, ...]


@dataclass(frozen=True)
class Start:
    """A new empty cache for some rows, with room for `capacity` tokens each (None: as many as the model takes)."""

    rows: int = 1
    capacity: int | None = None

    def __str__(self) -> str:
        room = "" if self.capacity is None else f" with room for {count(self.capacity, 'token')}"
        return f"start a cache of {count(self.rows, 'row')}{room}"


@dataclass(frozen=True)
class Extend:
    """The next tokens of every row, the same number in each."""

    tokens: tuple[Row, ...]
    cache: int = 0

    def __str__(self) -> str:
        return f"extend cache {self.cache} by {count(len(self.tokens[0]), 'token')}{show(self.tokens)}"


@dataclass(frozen=True)
class Prefill:
    """The first tokens of every row, not as many in each: filled up at the left with the token `pad`.

    `padding` counts the columns that even the longest row is filled up by.
    """

    tokens: tuple[Row, ...]
    padding: int = 0
    pad: int = 0
    cache: int = 0

    def __str__(self) -> str:
        lengths = ", ".join(str(len(row)) for row in self.tokens)
        more = f" and {count(self.padding, 'more column')}" if self.padding else ""
        return f"prefill cache {self.cache} with {lengths} tokens, padded with {self.pad}{more}{show(self.tokens)}"

    @property
    def width(self) -> int:
        """Columns, padding included."""
        return self.padding + max(len(row) for row in self.tokens)

    @property
    def columns(self) -> tuple[int, ...]:
        """Columns of padding in each row."""
        return tuple(self.width - len(row) for row in self.tokens)

    @property
    def padded(self) -> tuple[Row, ...]:
        """The tokens with their padding."""
        return tuple((self.pad,) * (self.width - len(row)) + row for row in self.tokens)


@dataclass(frozen=True)
class Peek:
    """The logits of tokens that are not to be kept: the cache stays as it was."""

    tokens: tuple[Row, ...]
    cache: int = 0

    def __str__(self) -> str:
        return (
            f"look at {count(len(self.tokens[0]), 'token')} behind cache {self.cache}, kept as it is{show(self.tokens)}"
        )


@dataclass(frozen=True)
class Abort:
    """Tokens whose pass dies when it reaches a layer: the cache stays as it was."""

    tokens: tuple[Row, ...]
    layer: int = 0
    cache: int = 0

    def __str__(self) -> str:
        tokens = count(len(self.tokens[0]), "token")
        return f"extend cache {self.cache} by {tokens}, but fail in layer {self.layer}{show(self.tokens)}"


@dataclass(frozen=True)
class CropRows:
    """Keep the first tokens of each row, another number in each, as when drafts are accepted in part."""

    lengths: tuple[int, ...]
    cache: int = 0

    def __str__(self) -> str:
        return f"crop the rows of cache {self.cache} to {list(self.lengths)} tokens"


@dataclass(frozen=True)
class Refill:
    """Give a row to another request, which begins with these tokens; the other rows stay."""

    row: int
    tokens: Row
    cache: int = 0

    def __str__(self) -> str:
        tokens = count(len(self.tokens), "token")
        return f"give row {self.row} of cache {self.cache} to a request of {tokens}{show((self.tokens,))}"


@dataclass(frozen=True)
class Restore:
    """Save to a file, and go on from what is read back."""

    cache: int = 0

    def __str__(self) -> str:
        return f"save cache {self.cache}, and restore it"


@dataclass(frozen=True)
class Crop:
    """Keep the first `length` tokens."""

    length: int
    cache: int = 0

    def __str__(self) -> str:
        return f"crop cache {self.cache} to {count(self.length, 'token')}"


@dataclass(frozen=True)
class Fork:
    """An independent copy of a cache, under the next number."""

    cache: int = 0

    def __str__(self) -> str:
        return f"fork cache {self.cache}"


@dataclass(frozen=True)
class Reorder:
    """The batch of these rows of the present one; they may repeat or be left out."""

    rows: tuple[int, ...]
    cache: int = 0

    def __str__(self) -> str:
        return f"reorder cache {self.cache} to rows {list(self.rows)}"


@dataclass(frozen=True)
class Reset:
    """As new, for a second request of as many rows."""

    cache: int = 0

    def __str__(self) -> str:
        return f"reset cache {self.cache}"


@dataclass(frozen=True)
class Overflow:
    """Tokens that do not fit: the decoder must refuse them and stay as it was."""

    tokens: tuple[Row, ...]
    cache: int = 0

    def __str__(self) -> str:
        return f"try to extend cache {self.cache} by {count(len(self.tokens[0]), 'token')}, which must be refused"


@dataclass(frozen=True)
class Poison:
    """A value written into every free slot."""

    value: float = math.nan
    cache: int = 0

    def __str__(self) -> str:
        return f"fill the free slots of cache {self.cache} with {self.value}"


Given = Prefill | Extend
"""Operations that put tokens into every row."""

Rejected = Overflow | Peek | Abort
"""Operations with tokens for every row that are not kept."""

Change = Given | Rejected | Crop | CropRows | Refill | Reorder | Reset | Restore | Poison
"""Operations on one cache."""

Op = Start | Fork | Change
OPS: dict[str, type[Op]] = {op.__name__.lower(): op for op in get_args(Op)}


def read_op(data: dict[str, Any]) -> Op:
    """One operation from its JSON form."""
    name = data.pop("op")
    if name not in OPS:
        raise ScheduleError(f"there is no operation {name!r}; there are {', '.join(OPS)}")
    kind = OPS[name]
    if unknown := data.keys() - {field.name for field in fields(kind)}:
        raise ScheduleError(f"operation {name!r} has no {', '.join(sorted(unknown))}")
    if name == "refill":
        data["tokens"] = tuple(int(token) for token in data["tokens"])
    elif "tokens" in data:
        data["tokens"] = tuple(tuple(int(token) for token in row) for row in data["tokens"])
    for numbers in data.keys() & {"rows", "lengths"} if name in ("reorder", "croprows") else ():
        data[numbers] = tuple(int(number) for number in data[numbers])
    if "value" in data:
        value = float(data["value"])
        # One NaN object, since NaN equals only itself, and two schedules that print alike should be equal.
        data["value"] = math.nan if math.isnan(value) else value
    return kind(**data)


def count(number: int, what: str) -> str:
    """A number of things in words: 1 token, 2 tokens."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def show(tokens: Sequence[Row]) -> str:
    """The tokens of an operation, shortened when there are many."""
    rows = [f"[{' '.join(map(str, row[:12]))}{' ...' if len(row) > 12 else ''}]" for row in tokens]
    return ": " + " ".join(rows)
