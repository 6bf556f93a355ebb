"""Each law is seen to fail on a fault, and each fault to break a law by its check and not by a crash."""

import pytest
import torch
from typing_extensions import override

from kvref.bug import catalogue
from kvref.cache import GrowingCache
from kvref.finding import LawBroken
from kvref.law import laws
from kvref.lens import Lens
from kvref.matrix.plan import order
from kvref.operations import Extend, Start
from kvref.schedule import Schedule
from kvref.search import Effort, Status
from kvref.targets import Bench, ReferenceTarget
from kvref.tests.helpers import BENCH, reference, try_law, variant
from kvref.tests.mutants import CATALOGUED, KILLED_BY, KILLERS
from kvref.trace import run
from kvref.watch import Watch

PLANTED = [(law, fault) for law, faults in KILLERS.items() for fault in faults]
LISTED = [(law, bug) for law, bugs in CATALOGUED.items() for bug in bugs if bug == bugs[0] or KILLED_BY[bug] != law]
"""One bug for each law, and what `test_judge` does not try: there each bug meets its law in another dtype."""


def test_every_law_has_a_fault_that_breaks_it() -> None:
    assert set(laws()) == KILLERS.keys() | CATALOGUED.keys()


@pytest.mark.parametrize(("law", "fault"), PLANTED, ids=[f"{law}-{fault.__name__}" for law, fault in PLANTED])
def test_a_planted_fault_breaks_the_law(law: str, fault: type) -> None:
    outcome = try_law(law, variant(fault))
    assert outcome.status is Status.BROKEN, outcome.reason


@pytest.mark.parametrize(("law", "bug"), LISTED)
def test_a_catalogued_bug_breaks_the_law(law: str, bug: str) -> None:
    outcome = try_law(law, bug)
    assert outcome.status is Status.BROKEN, outcome.reason


def test_bugs_that_no_law_is_listed_for_are_killed_by_one() -> None:
    for name in catalogue().keys() - KILLED_BY.keys():
        statuses = (try_law(law.name, name).status for law in order(catalogue()[name], list(laws().values())))
        assert any(status is Status.BROKEN for status in statuses), name


def test_plain_decoding_that_runs_the_prefix_again_is_right_in_every_logit() -> None:
    """Only a count can see it there."""
    outcome = try_law("cached-logits-equal-uncached-logits", "whole-prefix-run-again")
    assert outcome.status is Status.HELD


def test_a_law_that_never_meets_its_case_is_vacuous() -> None:
    outcome = try_law("a-fork-and-its-origin-never-meet", reference(), Effort(examples=1))
    assert outcome.status is Status.VACUOUS
    assert "both branches of a fork go on" in outcome.reason


def test_a_law_without_its_capability_is_skipped_with_the_reason() -> None:
    outcome = try_law("free-slots-do-not-matter", reference("growing"))
    assert outcome.status is Status.SKIPPED
    assert outcome.reason == "the target offers no poison"


class CannotCrop(GrowingCache):
    """Raises where it should crop."""

    @override
    def crop(self, length: int) -> None:
        raise RuntimeError(f"no crop to {length}")


def test_a_crash_is_reported_but_breaks_no_law() -> None:
    outcome = try_law("crop-equals-never-having-appended", variant(CannotCrop))
    assert outcome.status is Status.RAISED
    assert "no crop to" in outcome.reason


def test_one_seed_finds_the_same_thing_twice() -> None:
    first, second = (try_law("crop-equals-never-having-appended", "unmasked-chunk", Effort()) for _ in range(2))
    assert str(first.finding) == str(second.finding)
    assert (first.examples, first.killed_after) == (second.examples, second.killed_after)


def test_a_search_that_runs_out_of_time_says_so() -> None:
    outcome = try_law("crop-equals-never-having-appended", reference(), Effort(max_seconds=0.0))
    assert outcome.status is Status.CUT_SHORT
    assert outcome.examples == 0


def test_a_finding_outlives_the_time_limit() -> None:
    """Hypothesis replays what failed; the limit must not make that replay pass."""
    law = laws()["cached-logits-equal-uncached-logits"]
    decoder = catalogue()["missing-position-offset"].target(BENCH).decoders()[0]
    failing, other = (Schedule((Start(1), *[Extend(((0,),))] * times)) for times in (2, 3))
    watch = Watch(law)
    with pytest.raises(LawBroken):
        watch.attempt(decoder, failing)
    watch.deadline = 0.0
    with pytest.raises(LawBroken):
        watch.attempt(decoder, failing)
    watch.attempt(decoder, other)
    assert watch.cut_short


def test_the_schedule_of_a_finding_is_all_it_takes() -> None:
    finding = try_law("cached-logits-equal-uncached-logits", "missing-position-offset", Effort()).finding
    assert finding is not None
    healthy = reference().decoders()[0]
    assert len(run(healthy, finding.schedule).logits) == len(finding.schedule)


@pytest.mark.parametrize("kind", ["growing", "static"])
def test_rounding_stays_far_below_the_bound(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README says below 1e-12; with that as bound the law still holds."""
    target = ReferenceTarget(f"reference:{kind}", kind, Bench(dtypes=(torch.float64,)))
    for decoder in target.decoders():
        monkeypatch.setattr(decoder, "lens", Lens("native", torch.float64, 1e-12))
    outcome = try_law("no-operation-makes-logits-differ-from-uncached-ones", target, Effort(200, shrink=False))
    # Rounding that breaks a bound is no finding either, so it is asked for by the examples that broke it.
    assert (outcome.status, outcome.killed_after) == (Status.HELD, None)
