"""What a sweep prints: a line for each target as it is done, and a table in the end."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from kvref.operations import count
from kvref.sweep.row import ABOUT, Came, Row

STYLES = {
    Came.EXACT: "green",
    Came.ROUNDING: "green",
    Came.FINDING: "bold red",
    Came.LIMITATION: "dim",
    Came.INCONCLUSIVE: "bold yellow",
    Came.UNBUILT: "dim",
}


class Screen:
    """Prints a sweep as it goes: with colours and a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self, console: Console, targets: int) -> None:
        self.console, self.targets, self.done = console, targets, 0
        self.spinner: Spinner | None = None

    def header(self, head: Mapping[str, Any], done: int, max_time: float | None) -> None:
        """Say what is about to run, and how much of it is done already."""
        self.done = done
        versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
        options = head["options"]
        limit = "" if max_time is None else f", at most {max_time:g} s in all"
        before = f"; {done} done before" if done else ""
        effort = f"{options['examples']} examples a law, seed {options['seed']}, at most {options['seconds']:g} s each"
        laws = count(len(options["laws"]), "law")
        self.line(f"{versions}; {count(self.targets, 'target')}{before}; {laws}, {effort}{limit}")

    def running(self) -> AbstractContextManager[object]:
        """Context with a spinner on a terminal."""
        self.spinner = self.console.status("starting")
        return self.spinner

    def progress(self, target: str, what: str) -> None:
        """Show what is running now, on a terminal."""
        if self.spinner:
            self.spinner.update(f"{self.done} of {self.targets} done; {target}: {what}")

    def rows(self, rows: Sequence[Row], cases: Sequence[str]) -> None:
        """Print what came of a target."""
        self.done += 1
        for row in rows:
            self.row(row)
        for case in cases:
            self.line(f"{'':13} case {case}")

    def row(self, row: Row) -> None:
        """One line."""
        laws = ", ".join(f"{number} {status}" for status, number in row.laws.items())
        known = f"  known: {row.known}" if row.known else ""
        reason = f"  {row.reason:.220}" if row.reason else ""
        tail = f" {row.name:60} {row.seconds:6.1f} s  {laws}{known}{reason}"
        self.line(Text(f"{row.came:13}", STYLES[row.came]) + Text(tail.rstrip()))

    def table(self, rows: Sequence[Row], missing: int, report: Path, *, stopped: bool) -> None:
        """Print how often each came, then every row that is neither exact nor rounding."""
        self.line("")
        for came in Came:
            self.line(
                Text(f"{came:13}", STYLES[came]) + Text(f" {sum(row.came is came for row in rows):4}  {ABOUT[came]}")
            )
        shown = [row for came in Came for row in rows if row.came is came and came not in (Came.EXACT, Came.ROUNDING)]
        if shown:
            self.line("")
        for row in shown:
            self.row(row)
        if missing:
            why = "stopped" if stopped else "out of time"
            self.line(f"\n{why}, with {count(missing, 'target')} left; the same command goes on with them")
        self.line(f"\n{report} has it all; `kvref explain CASE` shows a finding, `kvref replay CASE` plays it again")

    def line(self, text: str | Text) -> None:
        """Print without wrapping and without reading the text as markup."""
        self.console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)
