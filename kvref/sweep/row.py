"""What came of one target of a sweep: one word, and the reason for it in a line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvref.case import Case
from kvref.errors import NoCache
from kvref.expected import Expected, reason_for
from kvref.operations import count
from kvref.search import FAULTS, Outcome, Status
from kvref.targets import Named


class Came(StrEnum):
    """What came of a target."""

    EXACT = "exact"
    ROUNDING = "rounding"
    FINDING = "finding"
    LIMITATION = "limitation"
    INCONCLUSIVE = "inconclusive"
    UNBUILT = "cannot build"


ABOUT: Mapping[Came, str] = {
    Came.EXACT: "every law that it can be asked holds, bit for bit",
    Came.ROUNDING: "every law holds; some not bit for bit, with evidence that it is rounding",
    Came.FINDING: "a law is broken, or it raised, died, timed out or meddled; saved as a case",
    Came.LIMITATION: "it says that it cannot be asked, and why",
    Came.INCONCLUSIVE: "a law met none of its cases, was out of time, or cannot be decided",
    Came.UNBUILT: "it cannot be made here, and why",
}
"""What each word means."""


@dataclass(frozen=True)
class Row:
    """A line of the table. `asked` is the target that was swept, `name` one of those that it stands for.

    `laws` counts them by their status; `findings` says of each the law, its status, its case and what was seen.
    """

    asked: str
    name: str
    came: Came
    reason: str = ""
    known: str = ""
    laws: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    seconds: float = 0.0

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "Row":
        """A row from JSON; raises what a table of another form does."""
        fields: dict[str, Any] = {**data, "came": Came(data["came"])}
        return cls(**fields)


def unbuilt(asked: str, error: Exception, seconds: float) -> Row:
    """A row for a target that cannot be made; where it has no cache, that is how it is, and no failure."""
    came = Came.LIMITATION if isinstance(error, NoCache) else Came.UNBUILT
    return Row(asked, asked, came, " ".join(str(error).split()), seconds=round(seconds, 1))


def row(asked: str, target: Named, outcomes: Sequence[Outcome], expected: Sequence[Expected]) -> Row:
    """A row from what came of each law on a target."""
    of = {status: [outcome for outcome in outcomes if outcome.status is status] for status in Status}
    faults = [outcome for outcome in outcomes if outcome.status in FAULTS]
    # What is blocked by a broken law stands beside the finding of that law.
    open_ = [*of[Status.UNDECIDED], *of[Status.CUT_SHORT], *of[Status.VACUOUS]]
    rounded = [outcome for outcome in of[Status.HELD] if not outcome.exact]
    known = list(dict.fromkeys(reason_for(outcome, expected) for outcome in faults))
    if faults:
        came, reason = Came.FINDING, told(faults)
    elif open_:
        came, reason = Came.INCONCLUSIVE, told(open_)
    elif not of[Status.HELD]:
        came, reason = Came.LIMITATION, told(of[Status.SKIPPED])
    elif rounded:
        came, reason = Came.ROUNDING, told(rounded)
    else:
        came, reason = Came.EXACT, refused(outcomes)
    return Row(
        asked,
        target.name,
        came,
        reason,
        "; ".join(known) if known and all(known) else "",
        dict(Counter(str(outcome.status) for outcome in outcomes)),
        [finding(outcome) for outcome in outcomes if outcome.finding],
        round(sum(outcome.seconds for outcome in outcomes), 1),
    )


def told(outcomes: Sequence[Outcome]) -> str:
    """The first of some outcomes, and how many more there are."""
    first, *more = outcomes
    reason = " ".join(first.reason.split())
    return f"{first.law.name} {first.status}: {reason}" + (f"; and {count(len(more), 'law')} more" if more else "")


def refused(outcomes: Sequence[Outcome]) -> str:
    """What laws that held say of schedules which were refused, each reason once."""
    reasons = [outcome.reason for outcome in outcomes if outcome.status is Status.HELD and outcome.reason]
    return next(iter(reasons), "") + (f"; and under {count(len(reasons) - 1, 'law')} more" if len(reasons) > 1 else "")


def finding(outcome: Outcome) -> dict[str, str]:
    """A finding in short; its case holds the rest."""
    assert outcome.finding
    verdict = outcome.finding.verdict
    return {
        "law": outcome.law.name,
        "status": str(outcome.status),
        "case": Case.of(outcome.finding).id,
        "diverges": str(outcome.finding.divergence),
        "cache": outcome.finding.origin or "",
        "verdict": f"{verdict.kind}: {verdict.because}" if verdict else "",
    }


def exit_code(rows: Sequence[Row], *, whole: bool) -> int:
    """0 all hold, 1 for a finding that is not known, 4 where something is left open, or nothing held."""
    came = {row.came for row in rows if not row.known}
    if Came.FINDING in came:
        return 1
    held = any(row.known for row in rows) or came & {Came.EXACT, Came.ROUNDING}
    return 0 if whole and held and Came.INCONCLUSIVE not in came else 4
