"""A check in a process of its own: what hangs or dies costs the law that it was tried on, and is a finding."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import perf_counter

from kvref.asked import Asked
from kvref.case import Case
from kvref.diagnosis.diagnose import Diagnosis
from kvref.errors import BadInput, NotExact, TargetError
from kvref.finding import Divergence, Finding
from kvref.isolation.apart import Apart, Late, Lost, Silent
from kvref.isolation.work import Built, Described, Ticked, Trying, diagnosed, shortened, tried
from kvref.law import Law
from kvref.schedule import Schedule
from kvref.search import Effort, Outcome, Status

SECONDS, LARGE_SECONDS = 60.0, 600.0
"""Seconds that one call of a tiny decoder, and of a checkpoint, may take before it counts as hanging."""

BUILDING = 5.0
"""How many times as long a target may take to be made, where no time is given for the whole."""

GRACE, LONGER = 5.0, 0.5
"""Seconds, and a share of the whole time, that a check may go on when its time is up, whichever is more: it looks at
the clock between two schedules, and what it has found is still judged."""

IN_A_ROW = 3
"""Laws under which a target may be lost one after the other, before the rest are left out."""


def patience_for(asked: Asked, seconds: float | None) -> float:
    """Seconds that one call may take before a target counts as hanging."""
    return seconds or (LARGE_SECONDS if asked.large else SECONDS)


class Isolated:
    """A check of what is asked for, in a process of its own, which is replaced when it is lost.

    `open` gives the targets, and `outcomes` what comes of each law on each of them, as `kvref.checking.check` does.
    After `max_time` seconds the rest is left out; where it is `planned`, the time is shared among the laws before.
    """

    def __init__(
        self,
        asked: Asked,
        laws: Sequence[Law],
        effort: Effort,
        max_time: float | None,
        patience: float,
        *,
        planned: bool = True,
    ) -> None:
        self.asked, self.laws, self.effort, self.patience = asked, laws, effort, patience
        self.max_time, self.planned = max_time, planned
        self.end = self.last = inf
        self.building = patience * BUILDING if max_time is None else max(patience, max_time)
        self.targets: tuple[Described, ...] = ()
        self.threads = 1
        self.process: Apart | None = None
        self.trying: Trying | None = None
        self.done: list[Outcome] = []
        self.losses: list[Described] = []
        self.unmade = ""
        self.stopped = False

    def open(self) -> Sequence[Described]:
        """Make the targets, and give them. Raises `BadInput` where that cannot be done, or does not come to an end."""
        try:
            built = self.start(self.max_time)
        except Lost as lost:
            raise TargetError(f"{self.asked.target} cannot be made: {lost}") from None
        self.targets, self.threads = built.targets, built.threads
        if self.max_time is not None:
            self.end = perf_counter() + self.max_time
            self.last = self.end + max(GRACE, LONGER * self.max_time)
        return self.targets

    def start(self, max_time: float | None) -> Built:
        """Start a process that goes on behind what is done, and wait until it has made the targets."""
        limit = max_time if self.planned else None
        self.process = Apart(tried, self.asked, [law.name for law in self.laws], self.effort, limit, self.done)
        if self.stopped:
            self.process.kill()
        return self.process.hear(self.building)

    def stop(self) -> None:
        """Let what is going on end at once, in whatever thread: its process is lost, and is not replaced."""
        self.stopped = True
        if process := self.process:
            process.kill()

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.end()
            self.process = None

    def outcomes(self, tick: Callable[[str, int], None]) -> Iterator[Outcome]:
        """What comes of each law on each target, one after the other."""
        searches = [(target, law) for target in self.targets for law in self.laws]
        try:
            for target, law in searches:
                if self.process is None and (why := self.start_again(target)):
                    outcome = Outcome(law, target.name, Status.CUT_SHORT, reason=why, asked=self.effort.examples)
                else:
                    outcome = self.outcome(target, law, tick)
                self.done.append(outcome)
                yield outcome
        finally:
            self.close()

    def diagnoses(self, outcomes: Sequence[Outcome]) -> list[Diagnosis]:
        """What each target that broke a law looks like; nothing where that ends the process too."""
        if not any(outcome.status is Status.BROKEN for outcome in outcomes):
            return []
        try:
            return list(Apart(diagnosed, self.asked, outcomes).said(self.patience))
        except (Lost, BadInput, NotExact):
            return []

    def start_again(self, target: Described) -> str:
        """Replace a process that was lost; say why, where that is of no use."""
        if self.stopped or perf_counter() >= self.end:
            return "out of time"
        if self.losses[-IN_A_ROW:] == [target] * IN_A_ROW:
            return f"left out, since the target was lost under {IN_A_ROW} laws before"
        if not self.unmade:
            try:
                self.start(None if self.end == inf else self.end - perf_counter())
            except (Lost, BadInput, NotExact) as error:
                self.close()
                self.unmade = f"the target was lost, and cannot be made again: {error}"
        return self.unmade

    def outcome(self, target: Described, law: Law, tick: Callable[[str, int], None]) -> Outcome:
        """What comes of the search that the process is at."""
        assert self.process
        begun, self.trying = perf_counter(), None
        while True:
            try:
                said = self.process.hear(self.patience, self.last)
            except Lost as lost:
                self.process = None
                self.losses.append(target)
                return self.ended(target, law, lost, perf_counter() - begun)
            match said:
                case Outcome():
                    if said.status is not Status.SKIPPED:
                        self.losses.clear()
                    return said
                case Trying():
                    self.trying = said
                    tick(law.name, said.examples)
                case Ticked(what, examples):
                    tick(what, examples)
                case _:
                    raise TypeError(f"the process of a check said {said!r:.60}")

    def ended(self, target: Described, law: Law, lost: Lost, seconds: float) -> Outcome:
        """What to say of a law under which the process was lost."""
        late = isinstance(lost, Late)
        status = Status.CUT_SHORT if late else Status.TIMED_OUT if isinstance(lost, Silent) else Status.DIED
        reason, examples, finding = f"out of time: {lost}" if late else str(lost), 0, None
        if self.trying and not late and not self.stopped:
            finding, examples = self.finding(target, law, self.trying, status, reason), self.trying.examples + 1
            reason = str(finding.divergence)
        raised_after = examples if finding else None
        return Outcome(
            law,
            target.name,
            status,
            examples,
            seconds,
            reason=reason,
            finding=finding,
            raised_after=raised_after,
            asked=self.effort.examples,
        )

    def finding(self, target: Described, law: Law, trying: Trying, status: Status, reason: str) -> Finding:
        """Put on paper what was tried when the process was lost, up to the step that does it."""
        schedule = Schedule.from_json(trying.schedule)
        steps = self.steps(Case(target.command, law.name, trying.decoder, trying.lens, schedule))
        if steps:
            schedule, divergence = Schedule(schedule.ops[:steps]), Divergence(reason, steps - 1)
        else:
            divergence = Divergence(f"{reason}; it did not happen again on the same schedule")
        return Finding(
            target.name,
            target.command,
            law.name,
            law.sentence,
            trying.decoder,
            trying.lens,
            trying.own,
            schedule,
            divergence,
            origin=None,
            replay=f"kvref check {target.command} --law {law.name}{self.effort.flags()}",
            raised=True,
            fault=str(status),
        )

    def steps(self, case: Case) -> int:
        """How many steps the shortest beginning of a schedule has under which a process is lost; 0 where none is."""
        begun = 0
        try:
            for steps in Apart(shortened, case).said(self.patience, self.last):
                begun = int(steps)
        except Late:
            return 0
        except Lost:
            return begun
        except (BadInput, NotExact):
            pass
        return 0
