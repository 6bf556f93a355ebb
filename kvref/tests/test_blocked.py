"""A law that cannot hold where another is broken is not tried then, and is known to be such a law by measure."""

import pytest

from kvref.bug import catalogue
from kvref.checking import check, exit_code
from kvref.law import EQUALITY, laws
from kvref.matrix.record import record
from kvref.search import Effort, Status
from kvref.tests.helpers import BENCH

CROP = "crop-equals-never-having-appended"


def statuses(bug: str, names: list[str]) -> tuple[list[Status], int]:
    """What comes of some laws, tried in this order on a bug, and the exit code."""

    def silent(law: str, done: int) -> None:
        del law, done

    target = catalogue()[bug].target(BENCH)
    outcomes = list(check([target], [laws()[name] for name in names], Effort(20, shrink=False), None, silent))
    return [outcome.status for outcome in outcomes], exit_code(outcomes)


def test_what_builds_on_a_broken_law_is_blocked() -> None:
    assert statuses("missing-position-offset", [EQUALITY, CROP]) == ([Status.BROKEN, Status.BLOCKED], 1)


def test_nothing_is_blocked_by_a_law_that_holds_or_was_not_tried() -> None:
    assert statuses("crop-keeps-one-token-more", [EQUALITY, CROP]) == ([Status.HELD, Status.BROKEN], 1)
    assert statuses("missing-position-offset", [CROP, EQUALITY]) == ([Status.BROKEN, Status.BROKEN], 1)


@pytest.mark.parametrize("name", [name for name, law in laws().items() if law.builds_on])
def test_a_blocked_law_would_have_been_broken_too(name: str) -> None:
    """Every bug that breaks the law below breaks this one, as the whole matrix was measured last."""
    for base in laws()[name].builds_on:
        assert base in laws()
        killed = {bug for bug, kills in record().kills.items() if base in kills}
        assert killed
        assert {bug for bug in killed if name not in record().kills[bug]} == set()
