"""A schedule: an immutable program of cache operations, with its tokens.

It is the only input of a property. What must be in each cache after each operation follows from the schedule alone.

Caches are numbered in the order in which `Start` and `Fork` make them, from 0.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, cast

from kvref.contents import Contents, apply
from kvref.errors import ScheduleError
from kvref.operations import (
    Abort,
    Crop,
    CropRows,
    Extend,
    Fork,
    Op,
    Overflow,
    Peek,
    Prefill,
    Refill,
    Reorder,
    Reset,
    Start,
    read_op,
)

SCHEMA = 1


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
            data: object = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ScheduleError(f"not a schedule: no JSON ({error})") from None
        head = cast("dict[str, object]", data) if isinstance(data, dict) else {}
        schema, ops = head.get("schema"), head.get("ops")
        if not isinstance(ops, list):
            raise ScheduleError('not a schedule: it must be {"schema": 1, "ops": [...]}')
        if type(schema) is not int or schema != SCHEMA:
            raise ScheduleError(f"schema {schema!r} of a schedule is unknown; this kvref reads {SCHEMA}")
        return cls(tuple(read_op(op) for op in objects(cast("list[object]", ops))))


def objects(ops: list[object]) -> Iterator[dict[str, Any]]:
    """Operations, each of which must be a JSON object."""
    for number, op in enumerate(ops, start=1):
        if not isinstance(op, dict):
            raise ScheduleError(f'operation {number} is {op!r:.40}; it must be an object with an "op"')
        yield dict(cast("dict[str, Any]", op))


def alone(schedule: Schedule, row: int) -> Schedule:
    """The same schedule for one row of each batch, without padding. Rows must have a fixed place in it."""
    ops: list[Op] = []
    for op in schedule.ops:
        match op:
            case Start():
                ops.append(Start(1, op.capacity))
            case Abort(tokens):
                ops.append(replace(op, tokens=(tokens[row],), padding=0))
            case Extend() | Overflow() | Peek():
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


def straight(schedule: Schedule, end: int) -> Schedule:
    """The calls that made what step `end` answers, in one fresh cache, and nothing else.

    There is no other cache, no fork, no look, nothing that was refused or died, and rows have their last order from the
    start. Raises `ScheduleError` where rows were given to other requests: they come from calls of their own.
    """
    last = schedule.ops[end]
    cache = len(schedule.contents[end]) - 1 if isinstance(last, Start | Fork) else last.cache
    order = list(range(len(schedule.contents[end][cache].rows)))
    ops: list[Op] = [Extend(last.tokens)] if isinstance(last, Peek) else []
    for index in range(end, -1, -1):
        op, state = schedule.ops[index], schedule.contents[index]
        if isinstance(op, Start | Fork):
            if len(state) - 1 != cache:
                continue
            if isinstance(op, Start):
                ops.append(Start(len(order), op.capacity))
                break
            cache = op.cache
        elif op.cache == cache:
            if isinstance(op, Reset):
                ops.append(Start(len(order), state[cache].capacity))
                break
            if isinstance(op, Reorder):
                order = [op.rows[row] for row in order]
            elif again := of_rows(op, order):
                ops.append(again)
    return Schedule(tuple(reversed(ops)))


def of_rows(op: Op, order: Sequence[int]) -> Op | None:
    """What an operation that stays is for these rows of cache 0; None for one that leaves a cache as it was."""
    match op:
        case Extend(tokens):
            return Extend(tuple(tokens[row] for row in order))
        case Prefill(tokens, padding):
            kept = tuple(tokens[row] for row in order)
            wider = max(map(len, tokens)) - max(map(len, kept))
            return replace(op, tokens=kept, padding=padding + wider, cache=0)
        case CropRows(lengths):
            return CropRows(tuple(lengths[row] for row in order))
        case Crop():
            return replace(op, cache=0)
        case Refill():
            raise ScheduleError("rows that were given to other requests come from calls of their own")
        case _:
            return None


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
