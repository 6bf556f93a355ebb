"""Limited time: a rehearsal chooses what a large decoder is tried on, and nothing is lost by it."""

from time import perf_counter

import pytest
import torch

import kvref.checking as check_module
from kvref import plan as plan_module
from kvref.bugs.free_slots_attended import FreeSlotsAttended
from kvref.checking import check, exit_code
from kvref.decoder import Decoder
from kvref.explore import Explorer
from kvref.law import laws
from kvref.operations import Extend, Start
from kvref.plan import plan_for
from kvref.rehearsal import Cost, Plan, Rehearsal, Scene, stand_in
from kvref.schedule import Schedule
from kvref.search import Effort, Status, search
from kvref.targets import OneDecoder
from kvref.targets.reference import StaticDecoder
from kvref.tests.helpers import BENCH, tiny

COST = Cost(1e-3, 1e-4)

AMPLE = 600.0
"""Seconds that no test here comes near."""

HEALTHY = OneDecoder("mine", "mine", Decoder(StaticDecoder(tiny()), "mine"), BENCH)


@pytest.fixture(autouse=True)
def every_decoder_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "SLOW_SECONDS", 0.0)


@pytest.mark.parametrize("law", list(laws())[::2])
def test_a_plan_meets_every_case_with_few_schedules(law: str) -> None:
    plan = plan_for(laws()[law], HEALTHY, Effort(examples=24), COST)
    assert frozenset().union(*(scene.cases for scene in plan.needed)) == laws()[law].must_see
    assert 1 <= len(plan.needed) <= len(laws()[law].must_see)
    assert plan.seconds == pytest.approx(sum(scene.seconds for scene in plan.needed))


def test_planned_searches_hold_on_the_schedules_that_were_chosen() -> None:
    outcomes = list(check([HEALTHY], list(laws().values())[::4], Effort(), AMPLE, lambda *_: None))
    assert {outcome.status for outcome in outcomes} == {Status.HELD}
    assert all(outcome.examples <= 24 for outcome in outcomes)
    assert exit_code(outcomes) == 0


def test_a_planned_search_finds_and_shrinks_what_is_wrong() -> None:
    broken = OneDecoder("mine", "mine", Decoder(StaticDecoder(tiny(), FreeSlotsAttended), "mine"), BENCH)
    chosen = [laws()["free-slots-do-not-matter"]]
    (outcome,) = check([broken], chosen, Effort(), AMPLE, lambda *_: None)
    assert outcome.status is Status.BROKEN
    assert outcome.finding is not None
    assert outcome.finding.schedule == Schedule((Start(1), *[Extend(((0,),))] * 2))


def test_a_rehearsal_that_met_no_case_leaves_the_choice_to_the_search() -> None:
    met_nothing = Rehearsal(laws()["crop-equals-never-having-appended"], stand_in(HEALTHY.decoder), COST)
    met_nothing.scenes = [Scene(Schedule((Start(),)), frozenset(), 1e-3)]
    assert met_nothing.plan() == Plan()


def test_more_time_buys_more_schedules_cheapest_first() -> None:
    scenes = [Scene(Schedule((Start(rows),)), frozenset(), float(rows)) for rows in (1, 2, 3)]
    plan = Plan((scenes[0],), (scenes[1], scenes[2]), 1.0)
    assert [len(plan.within(seconds) or ()) for seconds in (0.5, 3.0, 5.9, 6.0)] == [1, 2, 2, 3]
    assert Plan().within(9.0) is None


def test_a_rehearsal_ends_in_time_with_what_it_has() -> None:
    law = laws()["free-slots-do-not-matter"]
    assert plan_for(law, HEALTHY, Effort(examples=24), COST, end=perf_counter()) == Plan()
    some = Rehearsal(law, stand_in(HEALTHY.decoder), COST)
    Explorer(law, HEALTHY).explore(some, 3, 0)
    assert len(some.scenes) == 3
    some.end = perf_counter()
    Explorer(law, HEALTHY).explore(some, 24, 0)
    assert len(some.scenes) == 3
    assert some.plan().needed


def test_a_case_that_was_not_among_the_chosen_schedules_is_out_of_time_and_not_vacuous() -> None:
    law = laws()["crop-equals-never-having-appended"]
    scene = Scene(Schedule((Start(),)), frozenset(), 1e-3)
    outcome = search(law, HEALTHY, Effort(examples=5, max_seconds=AMPLE), plan=Plan((scene,), (), 1.0))
    assert outcome.status is Status.CUT_SHORT
    assert outcome.reason.startswith("out of time before it met: ")


def test_rehearsals_leave_most_of_the_time_to_the_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = list[float]()
    monkeypatch.setattr(check_module, "plan_for", lambda *args: ends.append(args[-1]) or Plan())
    begun = perf_counter()
    searches = [(HEALTHY, law) for law in laws().values()]
    check_module.planned(searches, Effort(), begun + 100.0, lambda *_: None)
    assert len(ends) == len(laws())
    assert ends == sorted(ends)
    assert ends[0] < begun + 2 * 100.0 / len(laws()) + 1.0
    assert ends[-1] == pytest.approx(begun + 100.0)


def test_the_stand_in_takes_any_vocabulary_and_offers_no_more() -> None:
    small = stand_in(HEALTHY.decoder)
    tokens = torch.tensor([[50256, 1, 2]])
    logits, _ = small.step(small.start(1), tokens)
    assert (logits - small.full(tokens)).abs().max() < 1e-12
    assert small.capabilities == HEALTHY.decoder.capabilities
