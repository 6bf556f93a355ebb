"""Schedules: what follows from them, how they read, and what they refuse."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvref.errors import ScheduleError
from kvref.schedule import (
    Content,
    Crop,
    Extend,
    Fork,
    Op,
    Overflow,
    Poison,
    Reorder,
    Reset,
    Schedule,
    Start,
    alone,
    requests,
)
from kvref.strategies import conversations, overflows, rechunked, schedules, twins
from kvref.targets import Bench, ReferenceTarget
from kvref.trace import longest

STATIC = ReferenceTarget("reference:static", "static", Bench())
EVERYTHING = schedules(Crop, Fork, Reorder, Reset, Start, Poison)

EXAMPLE = Schedule(
    (
        Start(2, 9),
        Extend(((1, 2, 3), (4, 5, 6))),
        Fork(0),
        Crop(1, 1),
        Extend(((7,), (8,)), 1),
        Reorder((1, 1), 1),
        Overflow(((0,) * 9,) * 2, 0),
        Poison(math.nan, 0),
        Reset(0),
    )
)
IN_WORDS = """\
  1. start a cache of 2 rows with room for 9 tokens
  2. extend cache 0 by 3 tokens: [1 2 3] [4 5 6]
  3. fork cache 0
  4. crop cache 1 to 1 token
  5. extend cache 1 by 1 token: [7] [8]
  6. reorder cache 1 to rows [1, 1]
  7. try to extend cache 0 by 9 tokens, which must be refused
  8. fill the free slots of cache 0 with nan
  9. reset cache 0"""


def test_a_schedule_reads_as_plain_words() -> None:
    assert str(EXAMPLE) == IN_WORDS


def test_contents_follow_from_plain_lists() -> None:
    before, after = EXAMPLE.contents[-2:]
    assert before == (Content(((1, 2, 3), (4, 5, 6)), 9), Content(((4, 8), (4, 8)), 9))
    assert after[0] == Content(((), ()), 9)


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_drawn_schedules_survive_json(data: st.DataObject) -> None:
    decoder = data.draw(st.sampled_from(STATIC.decoders()))
    for draw in (EVERYTHING, rechunked(), twins(), overflows(), conversations(3)):
        schedule = data.draw(draw(decoder, STATIC.sources(decoder)))
        assert Schedule.from_json(schedule.to_json()) == schedule
        assert all(content.length <= decoder.block_size for state in schedule.contents for content in state)


def test_json_is_strict_json() -> None:
    assert '"nan"' in EXAMPLE.to_json()
    assert "NaN" not in EXAMPLE.to_json()


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ((Extend(((0,),)),), "there is no cache 0"),
        ((Start(0),), "at least one row"),
        ((Start(1, 0),), "room for at least one token"),
        ((Start(), Extend(((0,), (0,)))), "2 rows for a cache of 1"),
        ((Start(2), Extend(((0,), (0, 1)))), "same number of tokens"),
        ((Start(), Extend(((),))), "at least one token"),
        ((Start(), Extend(((-1,),))), "a number from 0 up"),
        ((Start(1, 2), Extend(((0, 0, 0),))), "room for 2 tokens"),
        ((Start(), Crop(1)), "the shortest row has 0 tokens"),
        ((Start(), Crop(-1)), "the shortest row has 0 tokens"),
        ((Start(), Reorder((1,))), "the rows are 0 to 0"),
        ((Start(), Reorder(())), "at least one row must stay"),
        ((Start(), Fork(1)), "there is no cache 1"),
    ],
)
def test_the_impossible_is_refused_with_its_step(ops: tuple[Op, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message) as raised:
        Schedule(ops)
    assert str(raised.value).startswith(f"step {len(ops)} (")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a schedule"),
        ("[]", "not a schedule"),
        ('{"schema": 2, "ops": []}', "schema 2 of a schedule is unknown"),
        ('{"schema": 1, "ops": [{"op": "explode"}]}', "there is no operation 'explode'"),
        ('{"schema": 1, "ops": [{"op": "start", "colour": 1}]}', "'start' has no colour"),
        ('{"schema": 1, "ops": [{"op": "fork", "cache": 0}]}', "there is no cache 0"),
        ('{"schema": 1, "ops": [{"op": "start", "rows": "two"}]}', "not a schedule"),
    ],
)
def test_json_that_is_no_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule.from_json(text)


def test_a_row_alone_has_the_same_steps() -> None:
    schedule = Schedule((Start(2), Extend(((1,), (2,))), Crop(0), Extend(((3,), (4,)))))
    assert alone(schedule, 1) == Schedule((Start(1), Extend(((2,),)), Crop(0), Extend(((4,),))))
    with pytest.raises(ScheduleError, match="no fixed place"):
        alone(EXAMPLE, 0)


def test_requests_are_cut_at_resets() -> None:
    one, two = Extend(((1,),)), Extend(((2,),))
    schedule = Schedule((Start(), one, Reset(), two, two))
    assert requests(schedule) == [(0, Schedule((Start(), one))), (2, Schedule((Start(), two, two)))]


def test_the_oracle_runs_each_beginning_once() -> None:
    assert longest([(1,), (1, 2), (1, 2, 3), (2,), (1, 3), ()]) == [(2,), (1, 3), (1, 2, 3)]
