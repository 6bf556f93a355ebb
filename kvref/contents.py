"""What must be in each cache after an operation, by plain lists of tokens.

No model, no cache and no tensor is asked.
"""

from dataclasses import dataclass

from kvref.errors import ScheduleError
from kvref.operations import (
    Abort,
    Change,
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
    Rejected,
    Reorder,
    Reset,
    Restore,
    Row,
    Start,
    count,
)


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

MOST_ROWS = 65536
"""Rows of the largest batch that a schedule may ask for."""


def apply(op: Op, state: Contents) -> Contents:
    """What is in the caches after an operation. Raises `ScheduleError` when it cannot be done."""
    if isinstance(op, Start):
        require(1 <= op.rows <= MOST_ROWS, f"a cache needs at least one row, and at most {MOST_ROWS}")
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
            require(content.width > 0, "an empty cache has no rows to crop")
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
    require(min(map(len, tokens), default=0) >= 1, "at least one token is needed")
    require(all(token >= 0 for row in tokens for token in row), "a token is a number from 0 up")
    if isinstance(op, Prefill):
        require(content.width == 0, "a prefill needs an empty cache")
        require(op.padding >= 0 and op.pad >= 0, "padding is some columns of some token, numbers from 0 up")
        require_room(op.width, content)
        return
    require(len({len(row) for row in tokens}) == 1, "every row must get the same number of tokens")
    padding = op.padding if isinstance(op, Abort) else 0
    require(padding >= 0 and not (padding and content.width), "padding is some columns in an empty cache")
    if not isinstance(op, Overflow):
        require_room(content.width + padding + len(tokens[0]), content)


def require_room(width: int, content: Content) -> None:
    """So many columns must fit."""
    require(
        content.capacity is None or width <= content.capacity,
        f"a cache with room for {content.capacity} tokens cannot take them",
    )
