"""The cache operations that schedules are made of, each with its tokens: in words, and read from JSON."""

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, cast, get_args, get_type_hints

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
        return f"extend cache {self.cache} by {count(new(self.tokens), 'token')}{show(self.tokens)}"


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
        *lengths, last = (len(row) for row in self.tokens)
        rows = ", ".join([*map(str, lengths), count(last, "token")])
        more = f" and {count(self.padding, 'more column')}" if self.padding else ""
        return f"prefill cache {self.cache} with {rows}, padded with {self.pad}{more}{show(self.tokens)}"

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
        return f"look at {count(new(self.tokens), 'token')} behind cache {self.cache}, kept as it is{show(self.tokens)}"


@dataclass(frozen=True)
class Abort:
    """Tokens whose pass dies when it reaches a layer: the cache stays as it was.

    With `padding` it is a prefill, which has so many columns in front of every row.
    """

    tokens: tuple[Row, ...]
    layer: int = 0
    cache: int = 0
    padding: int = 0

    def __str__(self) -> str:
        tokens, failing = count(new(self.tokens), "token"), f"but fail in layer {self.layer}{show(self.tokens)}"
        if not self.padding:
            return f"extend cache {self.cache} by {tokens}, {failing}"
        return f"prefill cache {self.cache} with {tokens} behind {count(self.padding, 'column')} of padding, {failing}"


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
        return f"try to extend cache {self.cache} by {count(new(self.tokens), 'token')}, which must be refused"


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


LARGEST = 2**31 - 1
"""The largest number that an operation may have."""


def read_op(data: dict[str, Any]) -> Op:
    """One operation from its JSON form. Raises `ScheduleError` for what is none."""
    name = data.pop("op", None)
    if not isinstance(name, str) or name not in OPS:
        raise ScheduleError(f"there is no operation {name!r}; there are {', '.join(OPS)}")
    kind = OPS[name]
    if unknown := data.keys() - {field.name for field in fields(kind)}:
        raise ScheduleError(f"operation {name!r} has no {', '.join(sorted(unknown))}")
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if missing := needed - data.keys():
        raise ScheduleError(f"operation {name!r} needs {', '.join(sorted(missing))}")
    readers = get_type_hints(kind)
    return kind(**{field: READERS[readers[field]](field, value) for field, value in data.items()})


def whole(name: str, value: object) -> int:
    """A whole number of an operation."""
    if type(value) is not int or not -LARGEST <= value <= LARGEST:
        raise ScheduleError(f"{name!r} is {value!r:.40}; it must be a whole number of at most {LARGEST}")
    return value


def room(name: str, value: object) -> int | None:
    """A whole number, or none."""
    return None if value is None else whole(name, value)


def numbers(name: str, value: object) -> Row:
    """A list of whole numbers."""
    if not isinstance(value, list | tuple):
        raise ScheduleError(f"{name!r} is {value!r:.40}; it must be a list of whole numbers")
    return tuple(whole(name, number) for number in cast("Sequence[object]", value))


def rows(name: str, value: object) -> tuple[Row, ...]:
    """A list of numbers for each row."""
    if not isinstance(value, list | tuple):
        raise ScheduleError(f"{name!r} is {value!r:.40}; it must be a list of tokens for each row")
    return tuple(numbers(name, row) for row in cast("Sequence[object]", value))


def real(name: str, value: object) -> float:
    """A number, or the name of one that JSON does not have."""
    try:
        found = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        found = None
    if found is None or isinstance(value, bool):
        raise ScheduleError(f'{name!r} is {value!r:.40}; it must be a number, "nan", "inf" or "-inf"')
    # One NaN object, since NaN equals only itself, and two schedules that print alike should be equal.
    return math.nan if math.isnan(found) else found


READERS: dict[Any, Callable[[str, object], Any]] = {
    int: whole,
    int | None: room,
    float: real,
    Row: numbers,
    tuple[Row, ...]: rows,
}
"""How a field of an operation is read from JSON, by its type."""


def tokens_of(op: Op) -> tuple[Row, ...]:
    """Tokens of an operation, for each row; nothing where it has none."""
    match op:
        case Extend(tokens) | Prefill(tokens) | Peek(tokens) | Overflow(tokens) | Abort(tokens):
            return tokens
        case Refill(_, tokens):
            return (tokens,)
        case _:
            return ()


def with_tokens(op: Op, tokens: Sequence[Row]) -> Op:
    """An operation with other tokens; itself where it has none."""
    match op:
        case Extend() | Prefill() | Peek() | Overflow() | Abort():
            return replace(op, tokens=tuple(tokens))
        case Refill():
            return replace(op, tokens=tokens[0])
        case _:
            return op


def new(tokens: Sequence[Row]) -> int:
    """Number of tokens that each row gets."""
    return max(map(len, tokens), default=0)


def count(number: int, what: str) -> str:
    """A number of things in words: 1 token, 2 tokens."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def show(tokens: Sequence[Row]) -> str:
    """The tokens of an operation, shortened when there are many."""
    rows = [f"[{' '.join(map(str, row[:12]))}{' ...' if len(row) > 12 else ''}]" for row in tokens]
    return ": " + " ".join(rows)
