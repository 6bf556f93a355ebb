"""The gate: each bug until one law kills it, and the strength of a profile that follows from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvref.bug import Bug, catalogue
from kvref.law import laws
from kvref.matrix.cells import Cell, Mark
from kvref.matrix.plan import Tick, Trials, seconds_for, tracks_of
from kvref.matrix.pool import cores, work
from kvref.search import Effort
from kvref.targets import Bench


@dataclass(frozen=True)
class Kill:
    """What came of a bug: the cell of the law that killed it, if any did, and how many laws were tried."""

    bug: str
    cell: Cell | None
    tried: int
    seconds: float


@dataclass(frozen=True)
class Strength:
    """How many bugs a profile kills, and which it does not."""

    killed: int
    total: int
    survivors: tuple[str, ...]

    def __str__(self) -> str:
        alive = f"; alive: {', '.join(self.survivors)}" if self.survivors else ""
        return f"this profile kills {self.killed} of {self.total} catalogued bugs{alive}"


def kills(
    bugs: Mapping[str, Bug],
    names: Sequence[str],
    effort: Effort,
    bench: Bench,
    workers: int | None = None,
    tick: Tick | None = None,
) -> Iterator[Kill]:
    """Try each bug on laws, by name, until one kills it, and give the bugs as they are done.

    The reference must have held these laws before.
    """
    tracks = tracks_of(bugs, [laws()[name] for name in names], effort, bench, gate=True)
    for job, cell in work(Trials(tracks), workers or cores(), seconds_for(effort)):
        if tick:
            tick(job, cell)
        track = tracks[job.subject]
        if track.done:
            tried = sum(cell.mark is not Mark.SKIPPED for cell in track.cells.values())
            caught = cell if cell.mark is Mark.KILLED else None
            yield Kill(job.subject, caught, tried, sum(cell.seconds for cell in track.cells.values()))


def strength_of(
    names: Sequence[str], effort: Effort, bench: Bench, bugs: Mapping[str, Bug] | None, workers: int | None
) -> Strength:
    """Count the bugs that a gate kills."""
    bugs = catalogue() if bugs is None else bugs
    killed = {kill.bug for kill in kills(bugs, names, effort, bench, workers) if kill.cell}
    return Strength(len(killed), len(bugs), tuple(name for name in bugs if name not in killed))
