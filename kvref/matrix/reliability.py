"""How reliably bugs are killed: the same laws with many seeds, and a bound on how often they miss."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, lgamma, log

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
    """With how many seeds of those tried a bug was killed, by any of some laws.

    Seeds that ended otherwise than killed or missed, as in a process that died, are counted in `failed`, with a reason.
    """

    bug: str
    laws: tuple[str, ...]
    seeds: int
    killed: int
    failed: int = 0
    reason: str = ""

    @property
    def most_missed(self) -> float:
        """Upper bound on the share of seeds that miss the bug."""
        return upper_bound(self.seeds - self.killed, self.seeds)


class Repeats:
    """A plan that tries each bug with many seeds: with each on its killers, until one does.

    Which of them comes first does not change whether a seed kills, but how long it takes: that which has killed in the
    least time so far, once each has been first for a seed.
    """

    def __init__(
        self, bugs: Mapping[str, Bug], killers: Mapping[str, Sequence[str]], effort: Effort, bench: Bench, seeds: int
    ) -> None:
        self.killers = killers
        self.missed = deque[Job]()
        self.tried = dict[tuple[str, int], list[str]]()
        self.prices = {name: {law: Price() for law in killers[name]} for name in bugs}
        self.left = dict.fromkeys(bugs, seeds)
        self.killed = dict.fromkeys(bugs, 0)
        self.failures = {name: list[str]() for name in bugs}
        self.jobs = (
            Job(name, self.next_law(name, seed), replace(effort, seed=seed), bench, bug, judged=False)
            for name, bug in bugs.items()
            for seed in range(effort.seed + 1, effort.seed + 1 + seeds)
        )

    def take(self) -> Job | None:
        """A seed that a law has missed, for the next one, or else a new seed."""
        return self.missed.popleft() if self.missed else next(self.jobs, None)

    def next_law(self, bug: str, seed: int) -> str:
        """The law to try a seed on next, which is then tried."""
        tried = self.tried.setdefault((bug, seed), [])
        left = [law for law in self.killers[bug] if law not in tried]
        chosen = min(left, key=lambda law: self.prices[bug][law].of_a_kill())
        self.prices[bug][chosen].asked += 1
        tried.append(chosen)
        return chosen

    def done(self, job: Job, cell: Cell) -> None:
        """Count a seed, or ask for its next law."""
        bug, seed, killed = job.subject, job.effort.seed, cell.mark is Mark.KILLED
        price = self.prices[bug][job.law]
        price.seconds += cell.seconds
        price.kills += killed
        if cell.mark in (Mark.ERROR, Mark.TIMEOUT):
            self.failures[bug].append(cell.reason)
        elif not killed and len(self.tried[bug, seed]) < len(self.killers[bug]):
            self.missed.append(replace(job, law=self.next_law(bug, seed)))
            return
        del self.tried[bug, seed]
        self.left[bug] -= 1
        self.killed[bug] += killed


@dataclass
class Price:
    """What it has taken a law to kill a bug."""

    asked: int = 0
    seconds: float = 0.0
    kills: int = 0

    def of_a_kill(self) -> float:
        """Seconds for each kill; nothing for a law that has not been asked yet."""
        return self.seconds / max(self.kills, 0.5) if self.asked else 0.0


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
            name, failures = job.subject, plan.failures[job.subject]
            laws, reason = tuple(killers[name]), failures[0] if failures else ""
            yield Reliability(name, laws, seeds, plan.killed[name], len(failures), reason)


def upper_bound(misses: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """The largest rate of misses that so few are not too unlikely for: the one-sided bound of Clopper and Pearson.

    Without a miss it is 1 - (1 - confidence)^(1 / trials), about three in so many trials.
    """
    if misses >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):  # halving; a float has 53 bits
        rate = (low + high) / 2
        few = sum(exp(log_of_binomial(n, trials, rate)) for n in range(misses + 1))
        low, high = (rate, high) if few > 1 - confidence else (low, rate)
    return high


def log_of_binomial(successes: int, trials: int, rate: float) -> float:
    """The logarithm of the chance of so many successes: the numbers themselves are too large for a float."""
    failures = trials - successes
    ways = lgamma(trials + 1) - lgamma(successes + 1) - lgamma(failures + 1)
    return ways + (successes * log(rate) if successes else 0.0) + (failures * log(1 - rate) if rate < 1 else -inf)
