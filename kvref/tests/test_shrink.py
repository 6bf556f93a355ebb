"""An example that fails is made small by its bytes: what is needed stays, all else goes, and few tries are made."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kvref.decoder import Decoder
from kvref.explore import Drawn, Explorer, failed
from kvref.finding import Divergence, LawBroken
from kvref.law import EQUALITY, laws
from kvref.operations import Extend, Fork, Prefill, Start, new
from kvref.schedule import Schedule
from kvref.shrink import FIRST_SLOT, smallest
from kvref.strategies import HEAD, LENGTH, SLOT, SLOTS
from kvref.targets import Bench, ReferenceTarget
from kvref.tests.helpers import BENCH, reference
from kvref.watch import Watch

FULL = bytes(200 + at % 50 for at in range(LENGTH))


def slot(number: int) -> int:
    """The first byte of a slot."""
    return FIRST_SLOT + number * SLOT


@pytest.mark.parametrize(
    ("fails", "least"),
    [
        (lambda _: True, {}),
        (lambda data: data[slot(3)] > 5, {slot(3): 6}),
        (lambda data: data[slot(0)] > 0 and data[slot(11) + 8] > 0, {slot(0): 1, slot(11) + 8: 1}),
        (lambda data: data[1] > 2 and data[-1] > 0, {1: 3, LENGTH - 1: 1}),
        (lambda data: data[slot(2)] == data[slot(4)] > 0, {slot(2): FULL[slot(2)], slot(4): FULL[slot(2)]}),
    ],
)
def test_what_is_needed_stays_and_all_else_is_zeros(fails: Callable[[bytes], bool], least: dict[int, int]) -> None:
    drawn = bytearray(FULL)
    drawn[slot(4)] = drawn[slot(2)]
    assert smallest(fails, bytes(drawn)) == bytes(least.get(at, 0) for at in range(LENGTH))


def test_two_that_need_each_other_go_together() -> None:
    def fails(data: bytes) -> bool:
        return (data[slot(2)] > 0) == (data[slot(4)] > 0)

    assert smallest(fails, FULL) == bytes(LENGTH)


def test_what_makes_room_goes_where_there_is_room_from_the_start() -> None:
    def fails(data: bytes) -> bool:
        return data[HEAD] > 0 or data[slot(SLOTS - 1)] > 0

    drawn = bytearray(FULL)
    drawn[HEAD] = 0
    assert smallest(fails, bytes(drawn)) == bytes(1 if at == HEAD else 0 for at in range(LENGTH))


@dataclass
class Seen(Watch):
    """Fails where a schedule has two caches, and counts what is tried."""

    tried: int = 0
    moody: bool = False

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        self.tried += 1
        extended = [op.cache for op in schedule.ops if isinstance(op, Extend | Prefill)]
        if any(isinstance(op, Fork | Start) for op in schedule.ops[1:]) and 1 in extended and not self.moody:
            self.last = decoder.name, schedule
            raise LawBroken(Divergence("two caches"))


def explored(target: ReferenceTarget, watch: Seen, law: str) -> tuple[Explorer, Decoder, Schedule]:
    explorer = Explorer(laws()[law], target)
    explorer.explore(watch, 60, 0)
    name, schedule = watch.last
    return explorer, next(decoder for decoder in target.decoders() if decoder.name == name), schedule


def test_the_smallest_example_is_the_last_that_fails() -> None:
    law = "a-fork-and-its-origin-never-meet"
    watch = Seen(laws()[law])
    explorer, decoder, schedule = explored(reference(), watch, law)
    watch.tried = 0
    explorer.shrink(watch, decoder, schedule)
    name, least = watch.last
    assert name == reference().decoders()[0].name
    assert len(least) <= 3
    assert sum(new(op.tokens) for op in least.ops if isinstance(op, Extend | Prefill)) == 1
    assert watch.tried < 60
    assert watch.repeats


def test_what_fails_no_more_in_the_end_does_not_repeat() -> None:
    law = "a-fork-and-its-origin-never-meet"
    watch = Seen(laws()[law])
    explorer, decoder, schedule = explored(reference(), watch, law)

    right = watch.attempt

    def once(decoder: Decoder, schedule: Schedule) -> None:
        seen.append((decoder.name, schedule))
        if seen.count((decoder.name, schedule)) < 2:
            right(decoder, schedule)

    seen = list[tuple[str, Schedule]]()
    watch.attempt = once  # pyright: ignore[reportAttributeAccessIssue] in place of the method
    explorer.shrink(watch, decoder, schedule)
    assert not watch.repeats


def test_what_does_not_fail_again_is_not_made_smaller() -> None:
    law = "a-fork-and-its-origin-never-meet"
    watch = Seen(laws()[law])
    explorer, decoder, schedule = explored(reference(), watch, law)
    tried = list[Schedule]()

    def healed(_: Decoder, schedule: Schedule) -> None:
        tried.append(schedule)

    watch.attempt = healed  # pyright: ignore[reportAttributeAccessIssue] in place of the method
    explorer.shrink(watch, decoder, schedule)
    assert tried == [schedule]
    assert not watch.repeats


def test_tokens_of_a_drawn_text_are_given_up_for_any_tokens_or_kept() -> None:
    target = ReferenceTarget("reference:growing", "growing", BENCH)
    explorer = Explorer(laws()[EQUALITY], target)
    watch = Watch(laws()[EQUALITY])
    explorer.explore(watch, 60, 0)
    of_text = {key: drawn for key, drawn in explorer.drawn.items() if drawn.source is not None}
    assert of_text
    for (name, schedule), drawn in of_text.items():
        assert drawn.source is not None
        kept = drawn.source
        decoder, again = explorer.made(drawn.data, lambda _, kept=kept: kept)
        assert (decoder.name, again) == (name, schedule)


def test_where_no_text_was_drawn_none_is_taken() -> None:
    prompt = Bench(prompt="A prompt")
    target = ReferenceTarget("reference:growing", "growing", prompt)
    explorer = Explorer(laws()[EQUALITY], target)
    explorer.explore(Watch(laws()[EQUALITY]), 5, 0)
    assert all(drawn == Drawn(drawn.data, None) for drawn in explorer.drawn.values())


def test_late_is_not_failed() -> None:
    watch = Watch(laws()[EQUALITY], deadline=0.0)
    assert not failed(watch, reference().decoders()[0], Schedule((Start(1), Extend(((0,),)))))
    assert watch.cut_short
