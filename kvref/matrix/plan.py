"""Which cells to try, in which order: the reference first, or with a gate no more than it takes to kill."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import kvref
from kvref.bug import Bug, overridden
from kvref.capability import Capability
from kvref.law import Law, laws
from kvref.matrix.cells import Cell, Mark, Matrix, healthy
from kvref.matrix.pool import cores, work
from kvref.matrix.reach import Seam, seams
from kvref.matrix.record import record
from kvref.matrix.worker import Job
from kvref.search import Effort
from kvref.targets import Bench
from kvref.targets.reference import DECODERS

Tick = Callable[[Job, Cell], None]


QUICK = 16
"""Examples of a gate's first round. Most bugs that a law kills, it kills by then."""


@dataclass
class Track:
    """Jobs for one bug, to be done in order; one at a time where a kill makes those behind it needless.

    A law may come twice, the second time with all of its examples; then that cell stays.
    """

    jobs: deque[Job]
    stop_at_kill: bool
    running: int = 0
    cells: dict[str, Cell] = field(default_factory=dict[str, Cell])

    @property
    def waits(self) -> bool:
        """Whether the next job must wait for the one that is running."""
        return self.stop_at_kill and self.running > 0

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return not self.jobs and not self.running

    def hear(self, cell: Cell) -> None:
        """Take what came of a job."""
        self.running -= 1
        if before := self.cells.get(cell.law):
            seconds, forward = cell.seconds + before.seconds, cell.forward_seconds + before.forward_seconds
            cell = replace(cell, seconds=seconds, forward_seconds=forward)
        self.cells[cell.law] = cell
        if self.stop_at_kill and cell.mark is Mark.KILLED:
            self.jobs.clear()
        elif cell.mark in (Mark.SKIPPED, Mark.TIMEOUT):  # it would be so again
            self.jobs = deque(job for job in self.jobs if job.law != cell.law)


@dataclass
class Trials:
    """A plan in which every track runs for itself, for laws that the reference is known to hold."""

    tracks: Mapping[Any, Track]
    owners: dict[Job, Track] = field(default_factory=dict[Job, Track])

    def take(self) -> Job | None:
        """The first job that need not wait."""
        for track in self.tracks.values():
            if track.jobs and not track.waits and self.allowed(track.jobs[0].law):
                job = track.jobs.popleft()
                track.running += 1
                self.owners[job] = track
                return job
        return None

    def allowed(self, law: str) -> bool:
        """Whether a law may be tried now."""
        del law
        return True

    def done(self, job: Job, cell: Cell) -> None:
        """Hand a cell to its track."""
        self.owners.pop(job).hear(cell)


class WithReference(Trials):
    """A plan that tries the reference too, with both of its caches. Once it fails, nothing else begins.

    The reference has to hold a law before that is tried on a bug, and shows which methods the law reaches: a bug in
    another one is not tried, for it would draw the same examples and run the same code. With a gate the reference is
    tried only on what killed: on that law, as soon as it does, and on the examples of that round. To try it on all
    would take longer than all of the bugs.
    """

    def __init__(
        self, tracks: Mapping[str, Track], names: Sequence[str], effort: Effort, bench: Bench, *, gate: bool
    ) -> None:
        super().__init__(tracks)
        self.bench, self.gate, self.names = bench, gate, names
        self.held: dict[tuple[str, int | None], list[Cell]] = {}
        self.queue, self.unreached = deque[Job](), list[tuple[Job, Cell]]()
        bugs = {job.bug for track in tracks.values() for job in track.jobs if job.bug}
        self.watched = frozenset[Seam]() if gate else frozenset(seam for bug in bugs for seam in seams(bug) or ())
        for name in () if gate else names:
            self.ask(name, replace(effort, shrink=False))

    def ask(self, law: str, effort: Effort) -> None:
        """Have the reference tried on a law."""
        self.held[law, effort.first] = []
        self.queue.extend(Job(f"reference:{kind}", law, effort, self.bench, watched=self.watched) for kind in DECODERS)

    @property
    def reference(self) -> tuple[Cell, ...]:
        """Cells of the reference, by law; of two about one, the one with more examples."""
        cells = (cell for name in self.names for first in (QUICK, None) for cell in self.held.get((name, first), ()))
        return tuple({(cell.subject, cell.law): cell for cell in cells}.values())

    @property
    def failed(self) -> bool:
        """Whether the reference has not held a law."""
        return not all(healthy(cell) for cells in self.held.values() for cell in cells)

    def take(self) -> Job | None:
        """A job of the reference, or else of a bug."""
        if self.failed:
            return None
        return self.queue.popleft() if self.queue else super().take()

    def allowed(self, law: str) -> bool:
        """Whether the reference has held a law, where that comes first."""
        return self.gate or len(self.held[law, None]) == len(DECODERS)

    def done(self, job: Job, cell: Cell) -> None:
        """Hand a cell to its track, or keep it for the reference."""
        if not job.bug:
            self.held[job.law, job.effort.first].append(cell)
            if not self.gate:
                self.leave_unreached(cell)
            return
        super().done(job, cell)
        if cell.mark is Mark.KILLED and (job.law, job.effort.first) not in self.held:
            self.ask(job.law, replace(job.effort, shrink=False))

    def leave_unreached(self, held: Cell) -> None:
        """Take out the jobs that a cell of the reference shows to be needless."""
        for track in self.tracks.values():
            for job in [job for job in track.jobs if job.law == held.law and needless(job, held)]:
                track.jobs.remove(job)
                track.running += 1
                self.unreached.append((job, Cell(job.subject, job.law, Mark.UNREACHED)))
                track.hear(self.unreached[-1][1])

    def take_unreached(self) -> list[tuple[Job, Cell]]:
        """Jobs that were left out since the last call."""
        taken, self.unreached = self.unreached, []
        return taken


def needless(job: Job, held: Cell) -> bool:
    """Whether a bug cannot show under a law, as the reference with the same cache calls none of what it replaces."""
    if not job.bug or held.mark is not Mark.SURVIVED or held.subject != f"reference:{job.bug.target(job.bench).kind}":
        return False
    replaced = seams(job.bug)
    return replaced is not None and not any(str(seam) in held.called for seam in replaced)


SERVES = {
    "attention_mask": Capability.PREFILL,
    "insert": Capability.REFILL,
    "load": Capability.SAVE,
    "reserve": "limits",
    "state": Capability.SAVE,
}
"""What methods of the reference are for, a capability or a family of laws, where they are not named like it."""

LOOPS = ("kvref.generate", "kvref.speculate")
"""Modules around the cache, which laws about one operation do not reach."""


def order(bug: Bug, known: Sequence[Law]) -> list[Law]:
    """Laws in the order to try them until one kills.

    Those come first that are on record for it, the soonest first; or else those about what the bug overrides.
    """
    if recorded := record().killers(bug.name):
        places = {name: place for place, name in enumerate(recorded)}
        return sorted(known, key=lambda law: places.get(law.name, len(places)))
    base, names = bug.part.__base__, overridden(bug.part)
    about = {SERVES.get(name, name) for name in names}
    if base is not None and base.__module__ in LOOPS:
        about |= {"generation", Capability.GENERATE_BATCH}
    return sorted(known, key=lambda law: about.isdisjoint({family(law), *law.needs}))


def family(law: Law) -> str:
    """The family of a law: the file that it stands in."""
    return law.check.__module__.rpartition("test_")[2]


def seconds_for(effort: Effort) -> float:
    """How long a cell may take, where nothing is asked for: many times what it does take."""
    return 60.0 + effort.examples


def tracks_of(
    bugs: Mapping[str, Bug], known: Sequence[Law], effort: Effort, bench: Bench, *, gate: bool
) -> dict[str, Track]:
    """A track for each bug: through all laws as they stand, or as a gate goes until one kills it.

    A gate tries the first examples of every law, and then all of them, the same that a whole search draws.
    """
    rounds = [replace(effort, first=QUICK), effort] if gate and effort.examples > QUICK else [effort]
    return {
        name: Track(
            deque(
                Job(name, law.name, effort, bench, bug)
                for effort in rounds
                for law in (order(bug, known) if gate else known)
            ),
            gate,
        )
        for name, bug in bugs.items()
    }


def run(
    bugs: Mapping[str, Bug],
    names: Sequence[str],
    effort: Effort,
    bench: Bench,
    *,
    gate: bool = False,
    workers: int | None = None,
    max_seconds: float | None = None,
    tick: Tick | None = None,
) -> Matrix:
    """Try laws, by name, on bugs and on the reference. `tick` hears of every job that is done.

    A matrix whose reference did not hold a law, or that was interrupted, has the cells that were done by then.
    """
    begun, stopped, known = perf_counter(), False, [laws()[name] for name in names]
    tracks = tracks_of(bugs, known, effort, bench, gate=gate)
    plan = WithReference(tracks, names, effort, bench, gate=gate)
    try:
        for job, cell in work(plan, workers or cores(), max_seconds or seconds_for(effort)):
            for each in ((job, cell), *plan.take_unreached()):
                if tick:
                    tick(*each)
    except KeyboardInterrupt:
        stopped = True
    return Matrix(
        tuple(bugs),
        tuple(names),
        tuple(track.cells[name] for track in tracks.values() for name in names if name in track.cells),
        plan.reference,
        effort.examples,
        effort.seed,
        gate,
        stopped or plan.failed,
        perf_counter() - begun,
        kvref.__version__,
    )
