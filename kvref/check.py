"""The check: every law on every target, and every bug until a law catches it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from kvref.bug import Bug
from kvref.law import Law
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import Bench, Target

Tick = Callable[[str, int], None]


@dataclass(frozen=True)
class Kill:
    """What came of a bug: the outcome that caught it, if any did, and what else was tried before."""

    bug: Bug
    outcome: Outcome | None
    tried: int
    seconds: float


@dataclass
class Clock:
    """Shares a time limit between what is still to be done; what one does not use is left for the others."""

    end: float | None
    left: int

    def share(self, effort: Effort) -> Effort:
        """Give the next one its share."""
        if self.end is None:
            return effort
        share = max(self.end - perf_counter(), 0.0) / max(self.left, 1)
        self.left -= 1
        return replace(effort, max_seconds=share)


def check(
    targets: Sequence[Target], laws: Sequence[Law], effort: Effort, max_time: float | None, tick: Tick
) -> Iterator[Outcome]:
    """Try every law on every target, in `max_time` seconds if given, and give each outcome as it comes."""
    clock = Clock(None if max_time is None else perf_counter() + max_time, len(targets) * len(laws))
    for target in targets:
        for law in laws:
            yield search(law, target, clock.share(effort), lambda done, law=law: tick(law.name, done))


def kill(bugs: Iterable[Bug], laws: Sequence[Law], effort: Effort, bench: Bench, tick: Tick) -> Iterator[Kill]:
    """Try each bug on one law after the other until one catches it. A crash catches nothing."""
    for bug in bugs:
        begun = perf_counter()
        target = bug.target(bench)
        caught, tried = None, 0
        for law in laws:
            outcome = search(law, target, effort, lambda done, bug=bug: tick(bug.name, done))
            tried += outcome.status is not Status.SKIPPED
            if outcome.status is Status.BROKEN:
                caught = outcome
                break
        yield Kill(bug, caught, tried, perf_counter() - begun)


def exit_code(outcomes: Sequence[Outcome], kills: Sequence[Kill] = (), *, stopped: bool = False) -> int:
    """0 when everything holds and every bug is caught, 1 for a finding, 4 when something was left undecided."""
    statuses = {outcome.status for outcome in outcomes}
    if statuses & {Status.BROKEN, Status.RAISED} or any(kill.outcome is None for kill in kills):
        return 1
    undecided = statuses & {Status.VACUOUS, Status.CUT_SHORT}
    return 4 if stopped or undecided or Status.HELD not in statuses else 0
