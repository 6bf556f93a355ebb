"""What a check prints: a line for each law as it is done, the findings, and the sum."""

import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

import kvref
from kvref.bug import catalogue
from kvref.diagnosis.diagnose import Diagnosis
from kvref.matrix.cells import Cell
from kvref.matrix.gate import Kill
from kvref.matrix.worker import Job
from kvref.operations import count
from kvref.search import Effort, Outcome, Status
from kvref.targets import Bench, Named

STYLES = {
    Status.HELD: "green",
    Status.BROKEN: "bold red",
    Status.RAISED: "bold red",
    Status.MEDDLED: "bold red",
    Status.DIED: "bold red",
    Status.TIMED_OUT: "bold red",
    Status.SKIPPED: "dim",
    Status.VACUOUS: "bold yellow",
    Status.CUT_SHORT: "bold yellow",
    Status.UNDECIDED: "bold yellow",
    Status.BLOCKED: "dim",
}


class Report:
    """Prints a check as it goes: with colours and a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self, console: Console, targets: Sequence[Named] = ()) -> None:
        self.console = console
        self.offers = {target.name: ", ".join(sorted(target.capabilities())) for target in targets}
        self.spinner: Spinner | None = None
        self.target = ""

    def header(self, bench: Bench, effort: Effort, max_time: float | None) -> None:
        """Say what is about to run, and on what."""
        limit = "" if max_time is None else f", at most {max_time:g} s"
        threads = count(torch.get_num_threads(), "thread")
        self.line(
            f"kvref {kvref.__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
            f"{bench.device}, {threads}; lens {bench.lens}; {effort}{limit}"
        )

    def outcome(self, outcome: Outcome, expected: str = "") -> None:
        """Print what came of one law, below the name of its target; with the reason, where that was expected."""
        if outcome.target != self.target:
            self.target = outcome.target
            self.line(f"\n{outcome.target}")
            if outcome.target in self.offers:
                self.line(f"  offers    {self.offers[outcome.target]}")
        head = Text(f"  {outcome.status:9}", STYLES[outcome.status])
        tail = f" {outcome.law.name:68} "
        if outcome.status in (Status.SKIPPED, Status.BLOCKED):
            tail += outcome.reason
        elif outcome.finding:
            at = outcome.killed_after or outcome.raised_after or outcome.examples
            tail += f"{f'example {at}':>12} {outcome.seconds:6.1f} s" + (f"  expected: {expected}" if expected else "")
        else:
            tail += f"{count(outcome.examples, 'example'):>12} {outcome.seconds:6.1f} s  {outcome.reason}"
        self.line(head + Text(tail.rstrip()))
        if outcome.finding:
            self.line("\n" + indent(str(outcome.finding)))

    def kills(self) -> None:
        """Begin the part about bugs."""
        self.line("\nbugs, each until a law catches it")

    def kill(self, kill: Kill) -> None:
        """Print how a bug was caught: by which law, on which schedule, and where it first diverges."""
        if kill.cell is None or kill.cell.schedule is None:
            self.line(Text("  survived ", "bold red") + f" {kill.bug}: none of {count(kill.tried, 'law')} caught it")
            return
        cell = kill.cell
        self.line(
            Text("  caught   ", "green")
            + f" {kill.bug} by {cell.law}, at example {cell.killed_after}, {kill.seconds:.1f} s"
        )
        self.line(indent(str(cell.schedule), 12))
        self.line(indent(f"diverges at {cell.diverges}", 13))
        if cell.origin:
            self.line(indent(f"cache: {cell.origin}", 13))

    def diagnosis(self, said: Diagnosis) -> None:
        """Print which known bugs a target looks like, each with what is wrong in it."""
        bugs = catalogue()
        if not said.named:
            self.line(f"\n{said.target} {said}")
            return
        self.line(f"\n{said.target} looks like ({said.evidence})")
        for guess in said.named:
            self.line(f"  {guess.score:.2f}  {guess.bug}: {bugs[guess.bug].wrong}")

    def sum(self, outcomes: Sequence[Outcome], kills: Sequence[Kill], seconds: float) -> None:
        """Print the totals."""
        counts = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
        parts = [f"{number} {status}" for status, number in counts.items() if number]
        if kills:
            parts.append(f"{sum(kill.cell is not None for kill in kills)} of {len(kills)} bugs caught")
        examples = sum(outcome.examples for outcome in outcomes)
        searching = sum(outcome.seconds for outcome in outcomes) or 1.0
        forward = sum(outcome.forward_seconds for outcome in outcomes)
        self.line(
            f"\n{', '.join(parts) or 'nothing ran'}. {seconds:.1f} s; laws: {examples / searching:.3g} examples a "
            f"second, {forward / searching:.0%} of the time in the decoder"
        )

    def progress(self, what: str, done: int) -> None:
        """Show what is running now, on a terminal."""
        if self.spinner:
            self.spinner.update(f"{what}: {count(done, 'example')}")

    def tried(self, job: Job, cell: Cell) -> None:
        """Show which bug a law has just been tried on, on a terminal."""
        self.progress(f"{job.subject} {cell.mark} under {job.law}", cell.examples)

    def running(self) -> AbstractContextManager[object]:
        """Context with a spinner on a terminal."""
        self.spinner = self.console.status("starting")
        return self.spinner

    def line(self, text: str | Text) -> None:
        """Print without wrapping and without reading the text as markup."""
        self.console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)


def indent(text: str, by: int = 2) -> str:
    """Every line further to the right."""
    return "\n".join(" " * by + line for line in text.splitlines())
