"""The schedule that is reported is the smallest there is."""

import pytest

from kvref.operations import Extend, Start
from kvref.schedule import Schedule
from kvref.search import Effort
from kvref.targets import ReferenceTarget
from kvref.tests.helpers import reference, try_law

EQUAL = "cached-logits-equal-uncached-logits"
SPLITS = {
    "missing-position-offset": [1, 1],
    "causal-during-decode": [1, 1],
    "stale-cache": [1, 1, 1],
    "unmasked-chunk": [1, 2],
}


def smallest(law: str, target: ReferenceTarget | str, seed: int = 0) -> Schedule:
    finding = try_law(law, target, Effort(seed=seed)).finding
    assert finding is not None
    return finding.schedule


@pytest.mark.parametrize(("seed", "bug"), list(enumerate(SPLITS)))
def test_each_bug_shrinks_to_one_row_of_the_fewest_zeros(seed: int, bug: str) -> None:
    calls = (Extend(((0,) * new,)) for new in SPLITS[bug])
    assert smallest(EQUAL, bug, seed) == Schedule((Start(1), *calls))


def test_the_simplest_decoder_is_reported() -> None:
    outcome = try_law(EQUAL, "missing-position-offset", Effort())
    assert outcome.finding is not None
    assert outcome.finding.decoder == f"bug:missing-position-offset:growing {reference().decoders()[0].name[18:]}"


def test_steps_behind_the_wrong_one_are_left_out() -> None:
    schedule = smallest("what-fits-works-and-one-token-more-is-refused", "stale-cache")
    assert str(schedule.ops[-1]).endswith("which must be refused")


@pytest.mark.parametrize(
    ("law", "bug", "steps"),
    [
        ("crop-equals-never-having-appended", "crop-keeps-one-token-more", 4),
        ("a-fork-and-its-origin-never-meet", "fork-shares-its-buffers", 5),
        ("free-slots-do-not-matter", "free-slots-attended", 3),
        ("a-crop-of-rows-equals-never-having-appended", "rows-cropped-to-the-shortest", 4),
        ("padding-changes-nothing", "padding-hidden-in-the-prompt-only", 3),
    ],
)
def test_other_bugs_shrink_to_the_fewest_steps(law: str, bug: str, steps: int) -> None:
    assert len(smallest(law, bug)) <= steps
