"""Findings that are known: what a project expects, with the reason, and what an earlier report holds.

They are shown, and do not fail a check; so a gate fails for what is new.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from kvref.errors import BadInput
from kvref.project import setting
from kvref.search import FAULTS, Outcome, Status

FIELDS = ("law", "target", "status", "reason", "since")


STATUSES = tuple(str(status) for status in Status if status in FAULTS | {Status.UNDECIDED})
"""How a law may end with a finding."""


@dataclass(frozen=True)
class Expected:
    """A finding that is known: its law and target, each a name or a pattern with `*`, and why it is let be.

    `status` is how the law ended: one of `STATUSES`.
    """

    law: str
    target: str
    reason: str
    status: str = "broken"

    def about(self, outcome: Outcome) -> bool:
        """Whether an outcome is of this law and target."""
        return fnmatchcase(outcome.law.name, self.law) and fnmatchcase(outcome.target, self.target)

    def covers(self, outcome: Outcome) -> bool:
        """Whether an outcome is what was expected."""
        return self.about(outcome) and outcome.finding is not None and outcome.status == self.status

    def __str__(self) -> str:
        return f"{self.law} by {self.target} ({self.reason})"


def expected_by_project() -> list[Expected]:
    """What the project around the current folder expects: tables `[[tool.kvref.expected]]`.

    Each has a law and a reason, and may have a target (else all), a status (else broken) and a date, since when. Raises
    `BadInput` for others.
    """
    tables: Any = setting("expected")
    if tables is None:
        return []
    if not isinstance(tables, list):
        raise BadInput("tool.kvref.expected must be tables, each [[tool.kvref.expected]]")
    return [read(number, table) for number, table in enumerate(cast("list[Any]", tables), start=1)]


def read(number: int, table: Any) -> Expected:
    """One table of a project."""
    found = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    since, status = found.get("since", ""), found.get("status", "broken")
    texts = [found.get(name, "*") for name in ("law", "target", "reason")]
    fits = all(isinstance(text, str) and text for text in texts) and {"law", "reason"} <= found.keys() <= set(FIELDS)
    if not fits or not isinstance(since, str | date) or status not in STATUSES:
        raise BadInput(
            f"[[tool.kvref.expected]] number {number} must have a law and a reason, and may have a target, since, and "
            f"a status ({', '.join(STATUSES)})"
        )
    reason = found["reason"] + (f", since {since}" if since else "")
    return Expected(found["law"], found.get("target", "*"), reason, status)


def expected_by_report(path: Path) -> list[Expected]:
    """The findings of an earlier report, the JSON that a check writes. Raises `BadInput` for another file."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        found = [
            Expected(literal(outcome["law"]), literal(outcome["target"]), f"known from {path.name}", outcome["status"])
            for outcome in data["outcomes"]
            if outcome["finding"]
        ]
    except OSError as error:
        raise BadInput(f"the baseline {path} cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"the baseline {path} is no report.json that kvref wrote ({type(error).__name__})") from error
    return found


def literal(name: str) -> str:
    """A pattern that only this name fits."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def reason_for(outcome: Outcome, expected: Sequence[Expected]) -> str:
    """Why a finding is known; nothing for one that is new, and for what is no finding."""
    return next((known.reason for known in expected if known.covers(outcome)), "")


def unmet(outcomes: Sequence[Outcome], expected: Sequence[Expected]) -> list[Expected]:
    """What was expected of laws that hold now, all of them."""
    about = [(known, [outcome for outcome in outcomes if known.about(outcome)]) for known in expected]
    return [known for known, those in about if those and all(outcome.status is Status.HELD for outcome in those)]
