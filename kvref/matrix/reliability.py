"""How reliably bugs are killed: the same laws with many seeds, and a bound on how often they miss."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from kvref.bug import Bug
from kvref.matrix.cells import Mark
from kvref.matrix.plan import Tick, Track, Trials, seconds_for
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


def reliability(
    bugs: Mapping[str, Bug],
    killers: Mapping[str, Sequence[str]],
    effort: Effort,
    bench: Bench,
    seeds: int,
    *,
    workers: int | None = None,
    max_seconds: float | None = None,
    tick: Tick | None = None,
) -> Iterator[Reliability]:
    """Try each bug with so many seeds on the laws that kill it, until one does, and give the bugs as they are done.

    The seeds are those behind the effort's own, with which the laws have been chosen.
    """
    tracks = {
        (name, seed): Track(
            deque(Job(name, law, replace(effort, seed=seed), bench, bugs[name]) for law in killers[name]), True
        )
        for name in bugs
        for seed in range(effort.seed + 1, effort.seed + 1 + seeds)
    }
    for job, cell in work(Trials(tracks), workers or cores(), max_seconds or seconds_for(effort)):
        if tick:
            tick(job, cell)
        ours = [track for (name, _), track in tracks.items() if name == job.subject]
        if all(track.done for track in ours):
            killed = sum(any(cell.mark is Mark.KILLED for cell in track.cells.values()) for track in ours)
            yield Reliability(job.subject, tuple(killers[job.subject]), seeds, killed)


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
