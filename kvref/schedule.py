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
from typing import Any

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


Op = Start | Extend | Crop | Fork | Reorder | Reset | Overflow | Poison
OPS: dict[str, type[Op]] = {
    op.__name__.lower(): op for op in (Start, Extend, Crop, Fork, Reorder, Reset, Overflow, Poison)
}


@dataclass(frozen=True)
class Content:
    """What must be in one cache: the tokens of each row, and the room it was started with."""

    rows: tuple[Row, ...]
    capacity: int | None = None

    @property
    def length(self) -> int:
        """Tokens in each row."""
        return len(self.rows[0])


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
    """The same schedule for one row of each batch. It must not reorder, since then rows have no fixed place."""
    ops: list[Op] = []
    for op in schedule.ops:
        match op:
            case Start():
                ops.append(Start(1, op.capacity))
            case Extend() | Overflow():
                ops.append(replace(op, tokens=(op.tokens[row],)))
            case Reorder():
                raise ScheduleError("a row of a schedule that reorders has no fixed place")
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


def change(op: Extend | Crop | Reorder | Reset | Overflow | Poison, content: Content) -> Content:
    """What is in the one cache that an operation is about, after it."""
    match op:
        case Extend(tokens):
            require_fitting(tokens, content)
            room = content.capacity is None or content.length + len(tokens[0]) <= content.capacity
            require(room, f"a cache with room for {content.capacity} tokens cannot take them")
            rows = tuple(past + new for past, new in zip(content.rows, tokens, strict=True))
            return Content(rows, content.capacity)
        case Overflow(tokens):
            require_fitting(tokens, content)
            return content
        case Crop(length):
            require(0 <= length <= content.length, f"the cache has {count(content.length, 'token')}")
            return Content(tuple(row[:length] for row in content.rows), content.capacity)
        case Reorder(rows):
            require(len(rows) >= 1, "at least one row must stay")
            require(
                all(0 <= row < len(content.rows) for row in rows),
                f"the rows are 0 to {len(content.rows) - 1}",
            )
            return Content(tuple(content.rows[row] for row in rows), content.capacity)
        case Reset():
            return Content(((),) * len(content.rows), content.capacity)
        case Poison():
            return content


def require(holds: bool, otherwise: str) -> None:
    """Raise `ScheduleError` unless something holds."""
    if not holds:
        raise ScheduleError(otherwise)


def require_fitting(tokens: Sequence[Row], content: Content) -> None:
    """Tokens must come for every row, as many for each, and at least one."""
    require(len(tokens) == len(content.rows), f"{count(len(tokens), 'row')} for a cache of {len(content.rows)}")
    require(len({len(row) for row in tokens}) == 1, "every row must get the same number of tokens")
    require(len(tokens[0]) >= 1, "at least one token is needed")
    require(all(token >= 0 for row in tokens for token in row), "a token is a number from 0 up")


def read_op(data: dict[str, Any]) -> Op:
    """One operation from its JSON form."""
    name = data.pop("op")
    if name not in OPS:
        raise ScheduleError(f"there is no operation {name!r}; there are {', '.join(OPS)}")
    kind = OPS[name]
    if unknown := data.keys() - {field.name for field in fields(kind)}:
        raise ScheduleError(f"operation {name!r} has no {', '.join(sorted(unknown))}")
    if "tokens" in data:
        data["tokens"] = tuple(tuple(int(token) for token in row) for row in data["tokens"])
    if name == "reorder":
        data["rows"] = tuple(int(row) for row in data["rows"])
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
