"""A schedule: an immutable program of cache operations, with its tokens.

It is the only input of a property. What must be in each cache after each operation follows from the schedule alone.

Caches are numbered in the order in which `Start` and `Fork` make them, from 0.
"""

import json
import math
from collections.abc import Iterator
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


def in_that_order(schedule: Schedule, end: int) -> Schedule:
    """The operations on one cache up to step `end`, without its reorders, on rows that have the last order at once."""
    order = list(range(len(schedule.contents[end][0].rows)))
    ops: list[Op] = []
    for op in reversed(schedule.ops[: end + 1]):
        match op:
            case Reorder(rows):
                order = [rows[row] for row in order]
            case Start():
                ops.append(replace(op, rows=len(order)))
            case Extend(tokens):
                ops.append(replace(op, tokens=tuple(tokens[row] for row in order)))
            case Prefill(tokens, padding):
                kept = tuple(tokens[row] for row in order)
                wider = max(map(len, tokens)) - max(map(len, kept))
                ops.append(replace(op, tokens=kept, padding=padding + wider))
            case CropRows(lengths):
                ops.append(replace(op, lengths=tuple(lengths[row] for row in order)))
            case Crop() | Reset():
                ops.append(op)
            case _:
                raise ScheduleError(f"rows have no order of their own in a schedule with the step: {op}")
    return Schedule(tuple(reversed(ops)))


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
