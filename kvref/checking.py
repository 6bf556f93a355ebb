"""The check: every law on every target."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from kvref.law import Law
from kvref.matrix.gate import Kill
from kvref.plan import plan_for, slow_cost
from kvref.rehearsal import Cost, Plan
from kvref.search import FAULTS, Effort, Outcome, Status, search
from kvref.targets import Target

Tick = Callable[[str, int], None]

REHEARSED = 24
"""Examples that a rehearsal chooses from."""

PLANNING = 0.25
"""Share of limited time that rehearsals may take."""


def check(
    targets: Sequence[Target],
    laws: Sequence[Law],
    effort: Effort,
    max_time: float | None,
    tick: Tick,
    before: Sequence[Outcome] = (),
) -> Iterator[Outcome]:
    """Try every law on every target, in `max_time` seconds if given, and give each outcome as it comes.

    Limited time is shared by need: a search gets more that must pay for more calls to meet its law's cases, and what
    one leaves over is shared by those behind it. A law is not tried that builds on one which the target has broken. The
    searches whose outcomes came `before` are not done again.
    """
    begun, searches = perf_counter(), [(target, law) for target in targets for law in laws][len(before) :]
    blocks = Blocks()
    for outcome in before:
        blocks.note(outcome)
    if max_time is None:
        for target, law in searches:
            yield blocks.outcome(law, target) or blocks.note(
                search(law, target, effort, lambda done, law=law: tick(law.name, done))
            )
        return
    end = begun + max_time
    limited = replace(effort, examples=min(effort.examples, REHEARSED))
    plans = planned(searches, limited, begun + PLANNING * max_time, tick)
    for number, ((target, law), plan) in enumerate(zip(searches, plans, strict=True)):
        needs = sum(later.seconds for later in plans[number:]) or 1.0
        share = max(end - perf_counter(), 0.0) * plan.seconds / needs
        chosen = replace(limited if plan.needed else effort, max_seconds=share)
        yield blocks.outcome(law, target) or blocks.note(
            search(law, target, chosen, lambda done, law=law: tick(law.name, done), plan)
        )


@dataclass
class Blocks:
    """Which laws are broken by which target, so that those which build on them need not be tried."""

    broken: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def note(self, outcome: Outcome) -> Outcome:
        """Remember an outcome, and give it back."""
        if outcome.status is Status.BROKEN:
            self.broken.add((outcome.target, outcome.law.name))
        return outcome

    def outcome(self, law: Law, target: Target) -> Outcome | None:
        """What there is to say of a law without trying it; nothing where it has to be tried."""
        under = sorted(name for name in law.builds_on if (target.name, name) in self.broken)
        if not under or law.lacks(target.capabilities()):
            return None
        return Outcome(law, target.name, Status.BLOCKED, reason=f"builds on {', '.join(under)}, which is broken")


def planned(searches: Sequence[tuple[Target, Law]], effort: Effort, end: float, tick: Tick) -> list[Plan]:
    """A plan for each law on a target, made until a point in time; each rehearsal gets its share of what is left."""
    plans, costs = list[Plan](), dict[str, Cost | None]()
    for number, (target, law) in enumerate(searches):
        tick(f"planning {law.name}", 0)
        if target.name not in costs:
            costs[target.name] = slow_cost(target)
        now = perf_counter()
        plans.append(plan_for(law, target, effort, costs[target.name], now + (end - now) / (len(searches) - number)))
    return plans


def exit_code(outcomes: Sequence[Outcome], kills: Sequence[Kill] = (), *, stopped: bool = False) -> int:
    """0 when everything holds and every bug is caught, 1 for a finding, 4 when something was left undecided."""
    statuses = {outcome.status for outcome in outcomes}
    if statuses & FAULTS or any(kill.cell is None for kill in kills):
        return 1
    undecided = statuses & {Status.VACUOUS, Status.CUT_SHORT, Status.UNDECIDED}
    return 4 if stopped or undecided or Status.HELD not in statuses else 0
