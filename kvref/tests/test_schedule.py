"""Schedules: what follows from them, how they read, and what they refuse."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvref.choices import Choices
from kvref.contents import Content
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
    Poison,
    Prefill,
    Refill,
    Reorder,
    Reset,
    Restore,
    Start,
)
from kvref.schedule import Schedule, alone, requests, straight
from kvref.strategies import (
    DRAWN,
    EVERY,
    conversations,
    overflows,
    ragged_prompts,
    rechunked,
    schedules,
    twins,
)
from kvref.targets import Bench, ReferenceTarget
from kvref.tokens import AnyTokens
from kvref.trace import longest

STATIC = ReferenceTarget("reference:static", "static", Bench())
EVERYTHING = schedules(*EVERY, Poison)

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
        Abort(((1, 2), (3, 4)), 0, 0, 2),
        Prefill(((1, 2), (3, 4, 5)), 1, 6, 0),
        Peek(((1,), (2,)), 0),
        Abort(((1, 2), (3, 4)), 1, 0),
        CropRows((0, 2), 0),
        Refill(1, (7, 8, 9), 0),
        Restore(0),
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
  9. reset cache 0
 10. prefill cache 0 with 2 tokens behind 2 columns of padding, but fail in layer 0: [1 2] [3 4]
 11. prefill cache 0 with 2, 3 tokens, padded with 6 and 1 more column: [1 2] [3 4 5]
 12. look at 1 token behind cache 0, kept as it is: [1] [2]
 13. extend cache 0 by 2 tokens, but fail in layer 1: [1 2] [3 4]
 14. crop the rows of cache 0 to [0, 2] tokens
 15. give row 1 of cache 0 to a request of 3 tokens: [7 8 9]
 16. save cache 0, and restore it"""


def test_a_schedule_reads_as_plain_words() -> None:
    assert str(EXAMPLE) == IN_WORDS


def test_contents_follow_from_plain_lists() -> None:
    before, after = EXAMPLE.contents[7:9]
    assert before == (Content(((1, 2, 3), (4, 5, 6)), 9), Content(((4, 8), (4, 8)), 9))
    assert after[0] == EXAMPLE.contents[9][0] == Content(((), ()), 9)


def test_rows_of_their_own_length_follow_from_plain_lists_too() -> None:
    padded, looked, died, cropped, given, restored = (state[0] for state in EXAMPLE.contents[10:])
    assert padded == looked == died == Content(((1, 2), (3, 4, 5)), 9, padding=1)
    assert (padded.length, padded.width, padded.ragged) == (3, 4, True)
    assert cropped == Content(((), (3, 4)), 9)
    assert given == restored == Content(((), (7, 8, 9)), 9)


def test_a_padded_row_alone_has_no_padding() -> None:
    ops = Start(2), Prefill(((1,), (2, 3)), 1), CropRows((1, 0)), Peek(((4,), (5,)))
    assert alone(Schedule(ops), 1) == Schedule((Start(), Extend(((2, 3),)), Crop(0), Peek(((5,),))))
    with pytest.raises(ScheduleError, match="no fixed place"):
        alone(Schedule((*ops, Refill(0, (1,)))), 0)


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_drawn_schedules_survive_json(data: st.DataObject) -> None:
    decoder = data.draw(st.sampled_from(STATIC.decoders()))
    source = AnyTokens(decoder.vocab_size)
    for draw in (EVERYTHING, rechunked(), twins(), overflows(), conversations(3), ragged_prompts(2)):
        schedule = draw(decoder, source, Choices(data.draw(DRAWN)))
        assert Schedule.from_json(schedule.to_json()) == schedule
        assert all(content.width <= decoder.block_size for state in schedule.contents for content in state)


def test_json_is_strict_json() -> None:
    assert '"nan"' in EXAMPLE.to_json()
    assert "NaN" not in EXAMPLE.to_json()


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ((Extend(((0,),)),), "there is no cache 0"),
        ((Start(0),), "at least one row"),
        ((Start(1), Extend(((0,),)), Abort(((0,),), padding=1)), "padding is some columns in an empty cache"),
        ((Start(1, 2), Abort(((0, 0),), padding=1)), "room for 2 tokens cannot take them"),
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
        ((Start(), Extend(((0,),)), Prefill(((0,),))), "a prefill needs an empty cache"),
        ((Start(), Prefill(((0,),), -1)), "padding is some columns"),
        ((Start(1, 3), Prefill(((0, 0),), 2)), "room for 3 tokens"),
        ((Start(1, 1), Peek(((0, 0),))), "room for 1 tokens"),
        ((Start(2), CropRows((0,))), "1 length for 2 rows"),
        ((Start(), CropRows((1,))), r"the rows have \[0\] tokens"),
        ((Start(2), CropRows((0, 0))), "an empty cache has no rows to crop"),
        ((Start(), Extend(())), "0 rows for a cache of 1"),
        ((Start(65537),), "at most 65536"),
        ((Start(), Refill(0, (1,))), "is not taken yet"),
        ((Start(), Extend(((0,),)), Refill(1, (1,))), "the rows are 0 to 0"),
        ((Start(), Extend(((0,),)), Refill(0, ())), "at least one token"),
        ((Start(1, 2), Extend(((0,),)), Refill(0, (1, 2, 3))), "room for 2 tokens"),
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
        ('{"schema": 1, "ops": [{"op": "start", "rows": "two"}]}', "'rows' is 'two'; it must be a whole number"),
        ('{"schema": true, "ops": []}', "schema True of a schedule is unknown"),
        ('{"schema": 1, "ops": 3}', "it must be"),
        ('{"schema": 1, "ops": [3]}', "operation 1 is 3; it must be an object"),
        ('{"schema": 1, "ops": [{"rows": 1}]}', "there is no operation None"),
        ('{"schema": 1, "ops": [{"op": {}}]}', "there is no operation {}"),
        ('{"schema": 1, "ops": [{"op": "crop"}]}', "operation 'crop' needs length"),
        ('{"schema": 1, "ops": [{"op": "start", "rows": true}]}', "'rows' is True"),
        ('{"schema": 1, "ops": [{"op": "start", "rows": 10000000000000}]}', "at most 2147483647"),
        ('{"schema": 1, "ops": [{"op": "start", "rows": 100000000}]}', "at most 65536"),
        ('{"schema": 1, "ops": [{"op": "start", "capacity": 1.5}]}', "'capacity' is 1.5"),
        ('{"schema": 1, "ops": [{"op": "start"}, {"op": "extend", "tokens": []}]}', "0 rows for a cache of 1"),
        ('{"schema": 1, "ops": [{"op": "start"}, {"op": "peek", "tokens": [[1.7]]}]}', "'tokens' is 1.7"),
        ('{"schema": 1, "ops": [{"op": "start"}, {"op": "abort", "tokens": ["12"]}]}', "'tokens' is '12'"),
        ('{"schema": 1, "ops": [{"op": "start"}, {"op": "croprows", "lengths": [Infinity]}]}', "'lengths' is inf"),
        ('{"schema": 1, "ops": [{"op": "start"}, {"op": "poison", "value": "much"}]}', "'value' is 'much'"),
        ('{"schema": 1, "ops": [{"op": "start"}, {"op": "poison", "value": 1' + 400 * "0" + "}]}", "must be a number"),
        ("[" * 200_000, "not a schedule: no JSON"),
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


def test_straight_calls_are_what_made_an_answer_and_nothing_else() -> None:
    tokens = ((1,), (2, 3), (4, 5, 6))
    ops = (Start(3), Prefill(tokens, 1, 9), Reorder((1, 0, 1)), Crop(1), Reorder((2, 1)), Extend(((7,), (8,))))
    schedule = Schedule(ops)
    assert straight(schedule, 1) == Schedule(ops[:2])
    assert straight(schedule, 5) == Schedule((Start(2), Prefill(((2, 3), (1,)), 2, 9), Crop(1), Extend(((7,), (8,)))))
    cropped = Schedule((Start(2), Extend(((1,), (2,))), CropRows((0, 1)), Reorder((1, 1))))
    assert straight(cropped, 3) == Schedule((Start(2), Extend(((2,), (2,))), CropRows((1, 1))))


def test_straight_calls_follow_a_fork_to_its_origin_and_begin_at_a_reset() -> None:
    first, second, third = (Extend(((token,),), cache) for token, cache in ((1, 0), (2, 1), (3, 0)))
    ops = (Start(), first, Start(1, 5), Fork(0), third, Extend(((4,),), 2), Peek(((5,),), 2), second, Reset(1), second)
    schedule = Schedule(ops)
    assert straight(schedule, 5) == Schedule((Start(), first, Extend(((4,),))))
    assert straight(schedule, 6) == Schedule((Start(), first, Extend(((4,),)), Extend(((5,),))))
    assert straight(schedule, 4) == Schedule((Start(), first, third))
    assert straight(schedule, 9) == Schedule((Start(1, 5), Extend(((2,),))))
    with pytest.raises(ScheduleError, match="come from calls of their own"):
        straight(Schedule((Start(2), Extend(((1,), (2,))), Refill(0, (3,)))), 2)


def test_requests_are_cut_at_resets() -> None:
    one, two = Extend(((1,),)), Extend(((2,),))
    schedule = Schedule((Start(), one, Reset(), two, two))
    assert requests(schedule) == [(0, Schedule((Start(), one))), (2, Schedule((Start(), two, two)))]


def test_the_oracle_runs_each_beginning_once() -> None:
    assert longest([(1,), (1, 2), (1, 2, 3), (2,), (1, 3), ()]) == [(2,), (1, 3), (1, 2, 3)]
