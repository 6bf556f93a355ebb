"""Probes: short fixed schedules, each about one thing that goes wrong, in a notation that can be read in a line.

They find nothing, for that is what laws are for. Played on a decoder that has failed, they tell how it fails: which of
them go wrong, at which step, and in what.
"""

from collections.abc import Iterator, Mapping

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.operations import (
    Abort,
    Crop,
    CropRows,
    Extend,
    Fork,
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
from kvref.strategies import OFFERED_BY
from kvref.tokens import AnyTokens

PROBES = {
    "a prefill": "rows 1; give 4",
    "one token": "rows 1; give 1",
    "token by token": "rows 1; give 1; give 1; give 1",
    "decode": "rows 1; give 3; give 1; give 1",
    "a chunk onto a past": "rows 1; give 3; give 2",
    "chunks of one size": "rows 1; give 2; give 2; give 2",
    "a long chunk onto a short past": "rows 1; give 1; give 3; give 1",
    "a chunk behind a decoded token": "rows 1; give 2; give 1; give 2",
    "decode behind a chunk": "rows 1; give 2; give 3; give 1",
    "decode in a batch": "rows 2; give 3; give 1; give 1",
    "chunks in a batch": "rows 2; give 2; give 3",
    "a batch of three": "rows 3; give 2; give 1; give 2",
    "up to the last position": "rows 1; give 4; give 1; give 1; give 1; give 1",
    "a full cache": "rows 1 room 5; give 3; give 1; give 1; exceed 1",
    "on behind a refusal": "rows 1 room 4; give 3; exceed 2; give 1",
    "decode behind a crop": "rows 1; give 4; crop 2; give 1",
    "a chunk behind a crop": "rows 1; give 4; crop 2; give 2",
    "a crop by one": "rows 1; give 3; crop 2; give 1",
    "a crop of nothing": "rows 1; give 3; crop 3; give 1",
    "a crop to nothing": "rows 1; give 3; crop 0; give 2; give 1",
    "two crops in a batch": "rows 2; give 3; crop 1; give 1; crop 1; give 1",
    "a second request": "rows 1; give 3; reset; give 2; give 1",
    "a fork that goes on first": "rows 1; give 2; fork; give 1 @1; give 1; give 1 @1",
    "an origin that goes on first": "rows 1; give 2; fork; give 1; give 1 @1; give 1",
    "a fork of a cropped cache": "rows 1; give 4; crop 2; fork; give 1 @1",
    "two caches by turns": "rows 1; give 2; rows 1; give 2 @1; give 1; give 1 @1",
    "rows swapped": "rows 2; give 2; reorder 1 0; give 1",
    "rows rotated": "rows 3; give 2; reorder 1 2 0; give 1",
    "a row for two": "rows 2; give 2; reorder 1 1; give 1",
    "one row kept": "rows 3; give 2; reorder 2; give 1",
    "a row repeated": "rows 1; give 2; reorder 0 0 0; give 1",
    "rows left as they are": "rows 2; give 2; reorder 0 1; give 1",
    "saved and restored": "rows 1; give 3; restore; give 1",
    "saved at four tokens": "rows 1; give 4; restore; give 1",
    "a small cache restored": "rows 1 room 5; give 3; restore; give 1; give 1; exceed 1",
    "a fork right behind a write": "rows 1; give 2; give 1; fork; give 1 @1",
    "a look at one token": "rows 1; give 3; peek 1; give 1",
    "a look at two tokens": "rows 1; give 3; peek 2; give 1",
    "a pass that dies at the end": "rows 1; give 3; abort 2 in 1; give 2",
    "a pass that dies at the start": "rows 1; give 3; abort 2 in 0; give 2",
    "free slots of NaN": "rows 1; give 3; poison nan; give 1",
    "a padded prompt": "rows 2; prompts 3 1",
    "decode behind padding": "rows 2; prompts 3 1; give 1; give 1",
    "a chunk behind padding": "rows 2; prompts 1 3; give 2",
    "padding in every row": "rows 2; prompts 3 1 more 1; give 1",
    "padding in one row alone": "rows 1; prompts 2 more 2; give 1",
    "three padded rows": "rows 3; prompts 1 3 2; give 1",
    "padding and a crop": "rows 2; prompts 2 2 more 2; crop 1; give 1",
    "padding, unequal, and a crop": "rows 2; prompts 3 2; crop 1; give 1",
    "rows cropped apart": "rows 2; give 3; crop-rows 3 1; give 1",
    "rows cropped alike": "rows 2; give 3; crop-rows 2 2; give 1",
    "padded rows cropped apart": "rows 2; prompts 3 2; crop-rows 1 2; give 1",
    "padded rows swapped": "rows 2; prompts 3 1; reorder 1 0; give 1",
    "the longest row dropped": "rows 2; prompts 3 1; reorder 1; give 1",
    "a fork of padded rows": "rows 2; prompts 3 1; fork; give 1 @1",
    "padded rows restored": "rows 2; prompts 3 1; restore; give 1",
    "a second request behind padding": "rows 2; prompts 3 1; reset; give 2; give 1",
    "a row for a shorter request": "rows 2; give 3; refill 1 by 1; give 1",
    "a row for an equal request": "rows 2; give 3; refill 1 by 3; give 1",
    "a row for a longer request": "rows 2; give 3; refill 1 by 4; give 1",
}
"""Probes by name. `give 3 @1` extends cache 1 by three tokens in every row; `prompts 3 1 more 1` is a padded prefill of
rows of three tokens and one, with a column of padding more; the rest are operations by their names."""

CHOICE = (40503, 7919)
"""Which tokens are given: any would do that are unlike in every row and position."""


def probes_for(decoder: Decoder) -> Iterator[tuple[str, Schedule]]:
    """Those probes that a decoder has the operations and the room for, by name."""
    for name, text in PROBES.items():
        schedule = program(text, decoder.vocab_size)
        if fits(schedule, decoder):
            yield name, schedule


def fits(schedule: Schedule, decoder: Decoder) -> bool:
    """Whether a decoder offers what a schedule asks of it."""
    needs = {capability for op in schedule.ops for capability in OFFERED_BY.get(type(op), frozenset[Capability]())}
    contents = [content for state in schedule.contents for content in state]
    rows = max(len(content.rows) for content in contents)
    widest = max(content.width for content in contents)
    bounded = any(isinstance(op, Overflow) for op in schedule.ops)
    return (
        needs <= decoder.capabilities
        and widest <= decoder.block_size
        and rows <= (decoder.max_batch or rows)
        and (decoder.preallocates or not bounded)
    )


def program(text: str, vocab_size: int) -> Schedule:
    """The schedule that a line of the notation stands for, with tokens of a vocabulary."""
    source, ops = AnyTokens(vocab_size), list[Op]()
    for step in text.split("; "):
        words, _, cache = step.partition(" @")
        given = Given(source, Schedule(tuple(ops)), int(cache or 0))
        ops.append(given.op(*words.split()))
    return Schedule(tuple(ops))


class Given:
    """Reads one step, given what has been done before it."""

    def __init__(self, source: AnyTokens, done: Schedule, cache: int) -> None:
        self.source, self.cache = source, cache
        self.lengths = done.contents[-1][cache].lengths if done.ops and cache < len(done.contents[-1]) else ()

    def tokens(self, new: str) -> tuple[Row, ...]:
        """New tokens for every row."""
        return tuple(self.row(row, past, int(new)) for row, past in enumerate(self.lengths))

    def row(self, row: int, past: int, new: int) -> Row:
        """New tokens for one row; each cache has others."""
        return self.source.tokens(CHOICE, row + 8 * self.cache, past, new)

    def op(self, word: str, *rest: str) -> Op:
        """The operation that the words of a step name."""
        numbers, options = arguments(rest)
        cache = self.cache
        match word:
            case "rows":
                return Start(numbers[0], options.get("room"))
            case "give":
                return Extend(self.tokens(rest[0]), cache)
            case "prompts":
                prompts = tuple(self.row(row, 0, length) for row, length in enumerate(numbers))
                return Prefill(prompts, options.get("more", 0), self.row(5, 0, 1)[0], cache)
            case "refill":
                return Refill(numbers[0], self.row(6, 0, options["by"]), cache)
            case "abort":
                return Abort(self.tokens(rest[0]), options["in"], cache)
            case "crop":
                return Crop(numbers[0], cache)
            case "crop-rows":
                return CropRows(numbers, cache)
            case "reorder":
                return Reorder(numbers, cache)
            case "peek" | "exceed":
                return (Peek if word == "peek" else Overflow)(self.tokens(rest[0]), cache)
            case _:
                return PLAIN[word](cache=cache)


PLAIN: Mapping[str, type[Fork | Reset | Restore | Poison]] = {
    "fork": Fork,
    "reset": Reset,
    "restore": Restore,
    "poison": Poison,
}
"""Operations that take nothing but a cache; what poison writes is NaN."""


def arguments(words: tuple[str, ...]) -> tuple[tuple[int, ...], dict[str, int]]:
    """Numbers at the front, and those behind a word, by that word."""
    front = next((at for at, word in enumerate(words) if word.isalpha()), len(words))
    behind = words[front:]
    named = {name: int(number) for name, number in zip(behind[::2], behind[1::2], strict=False)}
    return tuple(int(word) for word in words[:front]), named
