"""What a whole matrix says about its bugs and its laws."""

from collections import defaultdict
from dataclasses import dataclass

from kvref.matrix.cells import Mark, Matrix


@dataclass(frozen=True)
class Analysis:
    """What stands out among bugs and laws.

    A bug is `fragile` with one killer, and `trivial` when every law that applies, two at least, kills it; `twins` have
    the same killers. A law is `idle` that kills nothing, `needed` for the bugs that it alone kills, and `redundant`
    when every bug it kills has another killer. The laws in `enough` kill, together, all that is killed.
    """

    survivors: tuple[str, ...]
    fragile: dict[str, str]
    trivial: tuple[str, ...]
    twins: tuple[tuple[str, ...], ...]
    idle: tuple[str, ...]
    needed: dict[str, tuple[str, ...]]
    redundant: tuple[str, ...]
    enough: tuple[str, ...]


def analyse(matrix: Matrix) -> Analysis:
    """Read a matrix by rows and by columns."""
    killers = {bug: matrix.killers(bug) for bug in matrix.bugs}
    victims = {law: {bug for bug in matrix.bugs if law in killers[bug]} for law in matrix.laws}
    fragile = {bug: laws[0] for bug, laws in killers.items() if len(laws) == 1}
    needed = {law: tuple(bug for bug, only in fragile.items() if only == law) for law in matrix.laws}
    alike = defaultdict[tuple[str, ...], list[str]](list)
    for bug, laws in killers.items():
        alike[tuple(laws)].append(bug)
    return Analysis(
        tuple(matrix.survivors()),
        fragile,
        tuple(bug for bug in matrix.bugs if 1 < len(killers[bug]) == applicable(matrix, bug)),
        tuple(tuple(bugs) for laws, bugs in alike.items() if laws and len(bugs) > 1),
        tuple(law for law in matrix.laws if not victims[law]),
        {law: bugs for law, bugs in needed.items() if bugs},
        tuple(law for law in matrix.laws if victims[law] and not needed[law]),
        cover(victims),
    )


def applicable(matrix: Matrix, bug: str) -> int:
    """How many laws can be tried on a bug."""
    return sum(cell.mark is not Mark.SKIPPED for cell in matrix.row(bug))


def cover(victims: dict[str, set[str]]) -> tuple[str, ...]:
    """Few laws that kill all that is killed: again and again the one that kills most of what is left."""
    chosen, left = list[str](), set[str]().union(*victims.values())
    while left:
        best = max(victims, key=lambda law: len(victims[law] & left))
        chosen.append(best)
        left -= victims[best]
    return tuple(chosen)
