"""The gate: each bug until one law kills it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvref.bug import Bug
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
