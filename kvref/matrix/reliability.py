"""How reliably bugs are killed: the same laws with many seeds, and a bound on how often they miss."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from kvref.bug import Bug
from kvref.matrix.cells import Cell, Mark
from kvref.matrix.plan import seconds_for
from kvref.matrix.pool import cores, work
from kvref.matrix.worker import Job
from kvref.search import Effort
from kvref.targets import Bench

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Reliability:
    """With how many seeds of those tried a bug was killed, by any of some laws."""

    bug: str
    laws: tuple[str, ...]
    seeds: int
    killed: int

    @property
    def most_missed(self) -> float:
        """Upper bound on the share of seeds that miss the bug."""
        return upper_bound(self.seeds - self.killed, self.seeds)


class Repeats:
    """A plan that tries each bug with many seeds: with each on its killers, until one does."""

    def __init__(
        self, bugs: Mapping[str, Bug], killers: Mapping[str, Sequence[str]], effort: Effort, bench: Bench, seeds: int
    ) -> None:
        self.killers = killers
        self.missed = deque[Job]()
        self.left = dict.fromkeys(bugs, seeds)
        self.killed = dict.fromkeys(bugs, 0)
        self.jobs = (
            Job(name, killers[name][0], replace(effort, seed=seed), bench, bug, judged=False)
            for name, bug in bugs.items()
            for seed in range(effort.seed + 1, effort.seed + 1 + seeds)
        )

    def take(self) -> Job | None:
        """A seed that its first law has missed, for the next one, or else a new seed."""
        return self.missed.popleft() if self.missed else next(self.jobs, None)

    def done(self, job: Job, cell: Cell) -> None:
        """Count a seed, or ask for its next law."""
        killers = self.killers[job.subject]
        later = killers[killers.index(job.law) + 1 :]
        if cell.mark is not Mark.KILLED and later:
            self.missed.append(replace(job, law=later[0]))
            return
        self.left[job.subject] -= 1
        self.killed[job.subject] += cell.mark is Mark.KILLED


def reliability(
    bugs: Mapping[str, Bug],
    killers: Mapping[str, Sequence[str]],
    effort: Effort,
    bench: Bench,
    seeds: int,
    *,
    workers: int | None = None,
    max_seconds: float | None = None,
) -> Iterator[Reliability]:
    """Try each bug with so many seeds on the laws that kill it, until one does, and give the bugs as they are done.

    The seeds are those behind the effort's own, with which the laws have been chosen. A seed kills when a law breaks
    under its lens; the verdict was given when the killers were found.
    """
    plan = Repeats(bugs, killers, effort, bench, seeds)
    for job, _ in work(plan, workers or cores(), max_seconds or seconds_for(effort)):
        if not plan.left[job.subject]:
            yield Reliability(job.subject, tuple(killers[job.subject]), seeds, plan.killed[job.subject])


def upper_bound(misses: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The largest rate of misses that so few are not too unlikely for: the one-sided bound of Clopper and Pearson.

    Without a miss it is 1 - (1 - confidence)^(1 / trials), about three in so many trials.
    """
    if misses >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):  # halving; a float has 53 bits
        rate = (low + high) / 2
        few = sum(comb(trials, n) * rate**n * (1 - rate) ** (trials - n) for n in range(misses + 1))
        low, high = (rate, high) if few > 1 - confidence else (low, rate)
    return high
