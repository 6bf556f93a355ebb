"""What a matrix looks like: a row for each bug as it is done, then what stands out."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from kvref.matrix.analysis import Analysis, analyse
from kvref.matrix.cells import Cell, Mark, Matrix
from kvref.operations import count

LOOKS = {
    Mark.KILLED: ("#", "green"),
    Mark.SURVIVED: (".", "dim"),
    Mark.UNREACHED: ("_", "dim"),
    Mark.ERROR: ("!", "bold yellow"),
    Mark.TIMEOUT: ("T", "bold yellow"),
    Mark.SKIPPED: ("-", "dim"),
}
"""Sign and style of each mark. A cell that was not tried is blank."""

NAME = 44
"""Columns for the name of a bug."""


class MatrixReport:
    """Prints a matrix as it grows: with colours and a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self, console: Console, bugs: Sequence[str], laws: Sequence[str], *, gate: bool) -> None:
        self.console, self.bugs, self.laws, self.gate = console, bugs, laws, gate
        self.rows = defaultdict[str, dict[str, Cell]](dict)
        self.printed = set[str]()
        self.done = 0
        self.spinner: Spinner | None = None

    def header(self, versions: str) -> None:
        """Say what is about to run, number the laws, and explain the marks."""
        self.line(versions)
        for number, law in enumerate(self.laws, start=1):
            self.line(f"{number:4} {law}")
        self.line(", ".join(f"{sign} {mark}" for mark, (sign, _) in LOOKS.items()) + "\n")
        numbers = range(1, len(self.laws) + 1)
        if len(self.laws) >= 10:
            self.line(" " * NAME + "".join(str(n // 10 or " ") for n in numbers))
        self.line(" " * NAME + "".join(str(n % 10) for n in numbers))

    def running(self) -> AbstractContextManager[object]:
        """Context with a spinner on a terminal."""
        self.spinner = self.console.status("starting")
        return self.spinner

    def cell(self, cell: Cell) -> None:
        """Take a cell, and print its row if that is done."""
        self.rows[cell.subject][cell.law] = cell
        self.done += 1
        if self.spinner:
            done = f"{count(self.done, 'cell')} done"
            self.spinner.update(f"{done}; {cell.subject} {cell.mark} under {cell.law}")
        killed = cell.mark is Mark.KILLED and cell.subject in self.bugs
        if killed if self.gate else len(self.rows[cell.subject]) == len(self.laws):
            self.row(cell.subject)

    def row(self, subject: str) -> None:
        """Print the marks of a bug, and how many laws kill it or which."""
        self.printed.add(subject)
        cells = self.rows[subject]
        line = Text(f"{subject:{NAME}}")
        for law in self.laws:
            line.append(*LOOKS[cells[law].mark] if law in cells else " ")
        self.line(line + Text(f"  {self.tail(subject, cells)}".rstrip()))

    def tail(self, subject: str, cells: dict[str, Cell]) -> str:
        """What stands behind the marks."""
        if subject not in self.bugs:
            return ""
        killers = [cell for cell in cells.values() if cell.mark is Mark.KILLED]
        if not killers:
            return "survived" if len(cells) == len(self.laws) else ""
        if self.gate:
            return f"{killers[0].law}, example {killers[0].killed_after}"
        return count(len(killers), "killer")

    def rest(self) -> None:
        """Print the rows that did not come to their end, and with a gate those of bugs that survive."""
        for subject in [subject for subject in self.rows if subject not in self.printed]:
            self.row(subject)

    def sum(self, matrix: Matrix) -> None:
        """Print what failed to run, what stands out, and the totals."""
        self.rest()
        for cell in matrix.unhealthy():
            why = cell.diverges or cell.reason
            self.line(f"the reference does not hold: {cell.subject} under {cell.law}: {why}")
        if matrix.stopped and not matrix.unhealthy():
            self.line("stopped before the end; what is above was done")
        self.troubles(matrix)
        if not (matrix.gate or matrix.stopped):
            self.analysis(analyse(matrix))
        killed = len(matrix.bugs) - len(matrix.survivors())
        cells = (*matrix.cells, *matrix.reference)
        searching = sum(cell.seconds for cell in cells)
        forward = sum(cell.forward_seconds for cell in cells) / (searching or 1.0)
        self.line(
            f"\n{killed} of {count(len(matrix.bugs), 'bug')} killed. {matrix.seconds:.1f} s for "
            f"{count(len(cells), 'cell')}: {searching:.1f} s of work, {forward:.0%} of it in the decoder"
        )

    def troubles(self, matrix: Matrix) -> None:
        """Print errors and timeouts, those of one bug with one reason together."""
        alike = defaultdict[tuple[str, str, str], list[str]](list)
        for cell in matrix.cells:
            if cell.mark in (Mark.ERROR, Mark.TIMEOUT):
                alike[cell.subject, cell.mark, cell.reason].append(cell.law)
        for number, ((bug, mark, reason), laws) in enumerate(alike.items()):
            first = f"{laws[0]} and {len(laws) - 1} more" if len(laws) > 1 else laws[0]
            self.line(("" if number else "\n") + f"{mark:9} {bug} under {first}: {' '.join(reason.split())}")

    def analysis(self, found: Analysis) -> None:
        """Print what stands out."""
        self.line("")
        self.named("bugs that no law kills", found.survivors)
        self.named("fragile bugs, with one killer", (f"{bug} ({law})" for bug, law in found.fragile.items()))
        self.named("trivial bugs, killed by every law that applies", found.trivial)
        self.named("bugs with the same killers", (" = ".join(bugs) for bugs in found.twins))
        self.named("laws that kill nothing", found.idle)
        self.named("laws that alone kill a bug", (f"{law} ({len(bugs)})" for law, bugs in found.needed.items()))
        self.named("laws of which any one could go", found.redundant)
        self.named("laws that kill all of it together", found.enough)

    def named(self, what: str, names: Iterable[str]) -> None:
        """Print a list, if it has anything in it."""
        if names := list(names):
            self.line(f"{what}: {len(names)}")
            for name in names:
                self.line(f"    {name}")

    def line(self, text: str | Text) -> None:
        """Print without wrapping and without reading the text as markup."""
        self.console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)
