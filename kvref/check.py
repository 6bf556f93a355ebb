"""The check: every law on every target, and every bug until a law catches it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from kvref.bug import Bug
from kvref.law import Law
from kvref.rehearsal import Plan
from kvref.search import Effort, Outcome, Status, plan_for, search
from kvref.targets import Bench, Target

Tick = Callable[[str, int], None]

REHEARSED = 24
"""Examples that a rehearsal chooses from."""


@dataclass(frozen=True)
class Kill:
    """What came of a bug: the outcome that caught it, if any did, and what else was tried before."""

    bug: Bug
    outcome: Outcome | None
    tried: int
    seconds: float


def check(
    targets: Sequence[Target], laws: Sequence[Law], effort: Effort, max_time: float | None, tick: Tick
) -> Iterator[Outcome]:
    """Try every law on every target, in `max_time` seconds if given, and give each outcome as it comes.

    Limited time is shared by need: a search gets more that must pay for more calls to meet its law's cases, and what
    one leaves over is shared by those behind it.
    """
    searches = [(target, law) for target in targets for law in laws]
    if max_time is None:
        for target, law in searches:
            yield search(law, target, effort, lambda done, law=law: tick(law.name, done))
        return
    end, plans = perf_counter() + max_time, list[Plan]()
    limited = replace(effort, examples=min(effort.examples, REHEARSED))
    for target, law in searches:
        tick(f"planning {law.name}", 0)
        plans.append(plan_for(law, target, limited))
    for number, ((target, law), plan) in enumerate(zip(searches, plans, strict=True)):
        needs = sum(later.seconds for later in plans[number:]) or 1.0
        share = max(end - perf_counter(), 0.0) * plan.seconds / needs
        chosen = replace(limited if plan.needed else effort, max_seconds=share)
        yield search(law, target, chosen, lambda done, law=law: tick(law.name, done), plan)


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
    undecided = statuses & {Status.VACUOUS, Status.CUT_SHORT, Status.UNDECIDED}
    return 4 if stopped or undecided or Status.HELD not in statuses else 0
