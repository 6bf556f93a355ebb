"""A schedule: an immutable program of cache operations, with its tokens.

It is the only input of a property. What must be in each cache after each operation follows from the schedule alone, by
plain lists of tokens: no model, no cache and no tensor is asked.

Caches are numbered in the order in which `Start` and `Fork` make them, from 0.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, get_args

from kvref.errors import ScheduleError

SCHEMA = 1

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


@dataclass(frozen=True)
class Content:
    """What must be in one cache: the tokens of each row, and the room it was started with.

    `padding` counts the columns that even the longest row does not use.
    """

    rows: tuple[Row, ...]
    capacity: int | None = None
    padding: int = 0

    @property
    def length(self) -> int:
        """Tokens in the longest row."""
        return max(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens in each row."""
        return tuple(len(row) for row in self.rows)

    @property
    def width(self) -> int:
        """Columns that the rows take, all ending in the same one."""
        return self.padding + self.length

    @property
    def ragged(self) -> bool:
        """Whether there is padding in any row."""
        return min(self.lengths) < self.width


Contents = tuple[Content, ...]


@dataclass(frozen=True)
class Schedule:
    """Operations in order. Raises `ScheduleError` when one cannot follow those before it."""

    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        _ = self.contents  # working them out is the check

    @cached_property
    def contents(self) -> tuple[Contents, ...]:
        """What must be in every cache after each operation."""
        states: list[Contents] = []
        state: Contents = ()
        for number, op in enumerate(self.ops, start=1):
            try:
                state = apply(op, state)
            except ScheduleError as error:
                raise ScheduleError(f"step {number} ({op}): {error}") from None
            states.append(state)
        return tuple(states)

    def __str__(self) -> str:
        return "\n".join(f"{number:3}. {op}" for number, op in enumerate(self.ops, start=1))

    def __len__(self) -> int:
        return len(self.ops)

    def __iter__(self) -> Iterator[tuple[Op, Contents]]:
        """Each operation with what must be in the caches after it."""
        return zip(self.ops, self.contents, strict=True)

    def to_json(self) -> str:
        """The schedule as one line of JSON. A non-finite number is written as a string."""
        ops = [{"op": type(op).__name__.lower(), **asdict(op)} for op in self.ops]
        for op in ops:
            if isinstance(value := op.get("value"), float) and not math.isfinite(value):
                op["value"] = str(value)
        return json.dumps({"schema": SCHEMA, "ops": ops})

    @classmethod
    def from_json(cls, text: str) -> "Schedule":
        """Read what `to_json` wrote, or what someone wrote by hand; raise `ScheduleError` if it is neither."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["schema"] != SCHEMA:
                raise ScheduleError(f"schema {data['schema']} of a schedule is unknown; this kvref reads {SCHEMA}")
            return cls(tuple(read_op(dict(op)) for op in data["ops"]))
        except ScheduleError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"not a schedule: {type(error).__name__}: {error}") from None


def alone(schedule: Schedule, row: int) -> Schedule:
    """The same schedule for one row of each batch, without padding. Rows must have a fixed place in it."""
    ops: list[Op] = []
    for op in schedule.ops:
        match op:
            case Start():
                ops.append(Start(1, op.capacity))
            case Extend() | Overflow() | Peek() | Abort():
                ops.append(replace(op, tokens=(op.tokens[row],)))
            case Prefill(tokens, cache=cache):
                ops.append(Extend((tokens[row],), cache))
            case CropRows(lengths, cache):
                ops.append(Crop(lengths[row], cache))
            case Reorder() | Refill():
                raise ScheduleError("a row of a schedule that gives rows to others has no fixed place")
            case _:
                ops.append(op)
    return Schedule(tuple(ops))


def requests(schedule: Schedule) -> list[tuple[int, Schedule]]:
    """Cut a schedule of one cache at its resets.

    For each request: the index of its first step, and the request as a schedule of its own, which starts with a fresh
    cache in place of the reset.
    """
    cuts = [index for index, op in enumerate(schedule.ops) if isinstance(op, Start | Reset)]
    found: list[tuple[int, Schedule]] = []
    for begin, end in zip(cuts, [*cuts[1:], len(schedule.ops)], strict=True):
        (content,) = schedule.contents[begin]
        found.append((begin, Schedule((Start(len(content.rows), content.capacity), *schedule.ops[begin + 1 : end]))))
    return found


def apply(op: Op, state: Contents) -> Contents:
    """What is in the caches after an operation. Raises `ScheduleError` when it cannot be done."""
    if isinstance(op, Start):
        require(op.rows >= 1, "a cache needs at least one row")
        require(op.capacity is None or op.capacity >= 1, "a cache needs room for at least one token")
        return (*state, Content(((),) * op.rows, op.capacity))
    require(0 <= op.cache < len(state), f"there is no cache {op.cache}")
    content = state[op.cache]
    if isinstance(op, Fork):
        return (*state, content)
    return (*state[: op.cache], change(op, content), *state[op.cache + 1 :])


def change(op: Change, content: Content) -> Content:
    """What is in the one cache that an operation is about, after it."""
    rows, capacity = content.rows, content.capacity
    if isinstance(op, Prefill | Extend | Overflow | Peek | Abort):
        require_fitting(op, content)
    match op:
        case Prefill(tokens, padding):
            return Content(tokens, capacity, padding)
        case Extend(tokens):
            longer = tuple(past + new for past, new in zip(rows, tokens, strict=True))
            return Content(longer, capacity, content.padding)
        case Crop(length):
            require(0 <= length <= min(content.lengths), f"the shortest row has {count(min(content.lengths), 'token')}")
            return Content(tuple(row[:length] for row in rows), capacity)
        case CropRows(lengths):
            require(len(lengths) == len(rows), f"{count(len(lengths), 'length')} for {count(len(rows), 'row')}")
            fits = all(0 <= kept <= length for kept, length in zip(lengths, content.lengths, strict=True))
            require(fits, f"the rows have {list(content.lengths)} tokens")
            return Content(tuple(row[:kept] for row, kept in zip(rows, lengths, strict=True)), capacity)
        case Refill(row, tokens):
            return refilled(content, row, tokens)
        case Reorder(order):
            require(len(order) >= 1, "at least one row must stay")
            require(all(0 <= row < len(rows) for row in order), f"the rows are 0 to {len(rows) - 1}")
            kept = tuple(rows[row] for row in order)
            return Content(kept, capacity, content.width - max(map(len, kept)))
        case Reset():
            return Content(((),) * len(rows), capacity)
        case Overflow() | Peek() | Abort() | Restore() | Poison():
            return content


def refilled(content: Content, row: int, tokens: Row) -> Content:
    """What is in a cache after one of its rows has a new occupant."""
    require(0 <= row < len(content.rows), f"the rows are 0 to {len(content.rows) - 1}")
    require(len(tokens) >= 1 and min(tokens) >= 0, "at least one token is needed, a number from 0 up")
    require(content.length > 0, "a row of an empty cache is not taken yet")
    width = max(content.width, len(tokens))
    require_room(width, content)
    rows = (*content.rows[:row], tokens, *content.rows[row + 1 :])
    return Content(rows, content.capacity, width - max(map(len, rows)))


def require(holds: bool, otherwise: str) -> None:
    """Raise `ScheduleError` unless something holds."""
    if not holds:
        raise ScheduleError(otherwise)


def require_fitting(op: Given | Rejected, content: Content) -> None:
    """Tokens must come for every row, at least one, as many for each but in a prefill, and there must be room."""
    tokens = op.tokens
    require(len(tokens) == len(content.rows), f"{count(len(tokens), 'row')} for a cache of {len(content.rows)}")
    require(min(map(len, tokens)) >= 1, "at least one token is needed")
    require(all(token >= 0 for row in tokens for token in row), "a token is a number from 0 up")
    if isinstance(op, Prefill):
        require(content.width == 0, "a prefill needs an empty cache")
        require(op.padding >= 0 and op.pad >= 0, "padding is some columns of some token, numbers from 0 up")
        require_room(op.width, content)
        return
    require(len({len(row) for row in tokens}) == 1, "every row must get the same number of tokens")
    if not isinstance(op, Overflow):
        require_room(content.width + len(tokens[0]), content)


def require_room(width: int, content: Content) -> None:
    """So many columns must fit."""
    require(
        content.capacity is None or width <= content.capacity,
        f"a cache with room for {content.capacity} tokens cannot take them",
    )


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
