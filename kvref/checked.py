"""What came of a check as a whole, and the reports of it as files: JSON for programs, Markdown and HTML for people."""

import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

import torch

import kvref
from kvref.case import Case
from kvref.checking import exit_code
from kvref.diagnosis.diagnose import Diagnosis
from kvref.errors import BadInput
from kvref.expected import Expected, reason_for, unmet
from kvref.finding import Finding
from kvref.html_report import page
from kvref.matrix.gate import Kill
from kvref.matrix.strength import Strength
from kvref.operations import count
from kvref.search import Effort, Outcome, Status
from kvref.targets import Bench, Named

SCHEMA = 1
FOLDER = Path(".kvref")
"""Where a check writes, below the folder that it runs in."""

MOST_ANNOTATIONS = 10
"""GitHub shows no more of one kind for a step."""


@dataclass(frozen=True)
class Checked:
    """A check that is done, or was stopped: what was tried, on what, and what came of it."""

    targets: Sequence[Named]
    bench: Bench
    effort: Effort
    outcomes: Sequence[Outcome]
    kills: Sequence[Kill]
    strength: Strength | None
    seconds: float
    stopped: bool = False
    expected: Sequence[Expected] = ()
    diagnoses: Sequence[Diagnosis] = ()

    @property
    def new(self) -> list[Outcome]:
        """Outcomes without those that are known findings."""
        return [outcome for outcome in self.outcomes if not reason_for(outcome, self.expected)]

    @property
    def unmet(self) -> list[Expected]:
        """What was expected and is not there any more."""
        return unmet(self.outcomes, self.expected)

    @property
    def exit_code(self) -> int:
        """What the check ends with. Where all that could be tried is known, nothing is new, and that is fine."""
        rest = [outcome for outcome in self.new if outcome.status not in (Status.SKIPPED, Status.BLOCKED)]
        survived = any(kill.cell is None for kill in self.kills)
        if not rest and len(self.new) < len(self.outcomes) and not self.stopped and not survived:
            return 0
        return exit_code(self.new, self.kills, stopped=self.stopped)

    @property
    def verdict(self) -> str:
        """What came of it, in a word or some."""
        known = len(self.outcomes) - len(self.new)
        fine = f"nothing new, {count(known, 'known finding')}" if known else "all hold"
        return {0: fine, 1: "findings", 4: "inconclusive"}[self.exit_code]

    def to_json(self) -> str:
        """The report for programs. It holds no path but those that were given, and no name of a machine."""
        bench, effort = self.bench, self.effort
        data = {
            "schema": SCHEMA,
            "versions": {"kvref": kvref.__version__, "torch": torch.__version__, "python": platform.python_version()},
            "device": str(bench.device),
            "lens": bench.lens,
            "profile": effort.profile,
            "examples": effort.examples,
            "seed": effort.seed,
            "seconds": round(self.seconds, 1),
            "exit_code": self.exit_code,
            "stopped": self.stopped,
            "targets": [
                {"name": t.name, "check": t.command, "offers": sorted(t.capabilities()), "refuses": dict(t.refusals())}
                for t in self.targets
            ],
            "outcomes": [self.outcome_json(outcome) for outcome in self.outcomes],
            "bugs": [
                {"bug": kill.bug, "law": kill.cell and kill.cell.law, "example": kill.cell and kill.cell.killed_after}
                for kill in self.kills
            ],
            "looks_like": {
                said.target: [{"bug": guess.bug, "score": round(guess.score, 3)} for guess in said.named]
                for said in self.diagnoses
            },
            "strength": self.strength and str(self.strength),
            "unmet": [str(expected) for expected in self.unmet],
        }
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

    def outcome_json(self, outcome: Outcome) -> dict[str, Any]:
        """What came of one law on one target."""
        return {
            "target": outcome.target,
            "law": outcome.law.name,
            "status": str(outcome.status),
            "examples": outcome.examples,
            "seconds": round(outcome.seconds, 2),
            "reason": outcome.reason,
            "expected": reason_for(outcome, self.expected),
            "finding": outcome.finding and finding_json(outcome.finding),
        }

    def to_markdown(self) -> str:
        """The summary for people: a table of targets, then each finding."""
        statuses = [s for s in Status if any(outcome.status is s for outcome in self.outcomes)]
        rows = [
            f"| {escape(target.name, quote=False)} | "
            + " | ".join(str(sum(o.target == target.name and o.status is s for o in self.outcomes)) for s in statuses)
            + " |"
            for target in self.targets
        ]
        head = [f"| target | {' | '.join(statuses)} |", "|---" * (len(statuses) + 1) + "|"] if statuses else []
        lines = [f"## kvref: {self.verdict}", "", *head, *rows, ""]
        for outcome in self.outcomes:
            if outcome.finding:
                why = reason_for(outcome, self.expected)
                title = escape(outcome.finding.headline() + (f" (expected: {why})" if why else ""), quote=False)
                lines += [f"<details><summary>{title}</summary>", "", "```", str(outcome.finding), "```", "</details>"]
            elif outcome.status not in (Status.HELD, Status.SKIPPED, Status.BLOCKED):
                said = f"- {outcome.law.name} is {outcome.status} for {outcome.target}: {outcome.reason}"
                lines.append(escape(said, quote=False))
        lines += [f"- bug {kill.bug} survived" for kill in self.kills if kill.cell is None]
        lines += [f"- no longer there, though expected: {expected}" for expected in self.unmet]
        lines += [escape(f"- {said.target} {said}", quote=False) for said in self.diagnoses]
        lines += ["", str(self.strength)] if self.strength else []
        return "\n".join(lines) + "\n"

    def annotations(self) -> list[str]:
        """Lines that GitHub shows beside a change, for what is new."""
        errors = [
            annotation(o.finding.headline(), str(o.finding.divergence)) for o in self.new if o.finding is not None
        ]
        errors += [annotation("bug survived", kill.bug) for kill in self.kills if kill.cell is None]
        return errors[:MOST_ANNOTATIONS]

    def write(self, folder: Path) -> list[Path]:
        """Write the reports, and give their paths, the page's last. Raises `BadInput` where they cannot be written."""
        paths = [folder / f"report.{kind}" for kind in ("json", "md", "html")]
        texts = self.to_json(), self.to_markdown(), page(self)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path, text in zip(paths, texts, strict=True):
                path.write_text(text, encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise BadInput(f"no report in {folder} ({getattr(error, 'strerror', None) or error})") from error
        return paths


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding, with its case, which replays it. A gap that is not finite is written as a string."""
    gap = finding.divergence.gap
    return {
        "headline": finding.headline(),
        "law": finding.sentence,
        "diverges": str(finding.divergence),
        "gap": gap if gap is None or isfinite(gap) else str(gap),
        "oracle": finding.oracle,
        "by_position": [
            {**vars(error), "gap": error.gap if isfinite(error.gap) else str(error.gap)} for error in finding.errors
        ],
        "cache": finding.origin,
        "module": finding.module,
        "varied": finding.varied,
        "verdict": None if finding.verdict is None else str(finding.verdict.kind),
        "because": finding.verdict and finding.verdict.because,
        "replay": finding.replay,
        "case": json.loads(Case.of(finding).to_json()) | {"id": Case.of(finding).id},
    }


def annotation(title: str, text: str) -> str:
    """An error in the form of GitHub's workflow commands."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        title, text = title.replace(character, code), text.replace(character, code)
    return f"::error title={title.replace(':', '%3A').replace(',', '%2C')}::{text}"
