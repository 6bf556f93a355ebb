"""The sweep itself: each target is checked in a process of its own, several at once, within a time for each."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter

from kvref.asked import Asked
from kvref.errors import BadInput
from kvref.expected import Expected
from kvref.finding import Finding
from kvref.isolation import Isolated, patience_for
from kvref.law import Law
from kvref.search import Effort, Outcome, Status
from kvref.sweep.row import Row, row, unbuilt
from kvref.targets import Named

MORE = 5
"""How many times as many examples a law gets that has met none of its cases with few."""

Tick = Callable[[str, str], None]
"""Called with a target and the law that is tried on it."""


@dataclass(frozen=True)
class Options:
    """How each target is checked, and the seconds that it may take."""

    laws: Sequence[Law]
    effort: Effort
    seconds: float
    timeout: float | None = None
    cache: str | None = None
    attn: str | None = None
    lens: str = "tile"
    device: str = "auto"
    expected: Sequence[Expected] = ()

    def asked(self, target: str) -> Asked:
        """What is asked for where a target is meant; cache and attention are options of transformers' models."""
        asked = Asked(target, device=self.device, lens=self.lens)
        return replace(asked, cache=self.cache, attn=self.attn) if asked.of_transformers else asked


@dataclass(frozen=True)
class Swept:
    """What came of a target: a row for each that it stands for, and what was found. `cut`: time ended it early."""

    target: str
    rows: Sequence[Row]
    findings: Sequence[Finding] = ()
    cut: bool = False


def sweep(
    targets: Sequence[str], options: Options, workers: int, max_time: float | None, tick: Tick
) -> Iterator[Swept]:
    """Check targets, `workers` at once, and give each as it is done; none is begun after `max_time` seconds."""
    end = inf if max_time is None else perf_counter() + max_time
    left, running = list(targets), dict[Future[Swept], OneTarget]()
    with ThreadPoolExecutor(workers) as pool:
        try:
            while running or (left and perf_counter() < end):
                while left and len(running) < workers and perf_counter() < end:
                    one = OneTarget(left.pop(0), options, end, tick)
                    running[pool.submit(one.swept)] = one
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    yield future.result()
        finally:
            for one in running.values():
                one.stop()


class OneTarget:
    """The check of one target of a sweep, until a point in time."""

    def __init__(self, target: str, options: Options, end: float, tick: Tick) -> None:
        self.target, self.options, self.tick = target, options, tick
        self.limit = min(options.seconds, max(end - perf_counter(), 0.0))
        self.isolated: Isolated | None = None
        self.stopped = False

    def stop(self) -> None:
        """Let the check end at once, whatever comes of it."""
        self.stopped = True
        if self.isolated:
            self.isolated.stop()

    def swept(self) -> Swept:
        """Check the target; a law that met none of its cases once more, with more examples."""
        begun = perf_counter()
        outcomes = dict[tuple[str, Law], Outcome]()
        try:
            targets = self.check(self.options.laws, self.options.effort, self.limit, outcomes)
        except BadInput as error:
            return Swept(self.target, [unbuilt(self.target, error, perf_counter() - begun)])
        vacuous = list(dict.fromkeys(law for (_, law), o in outcomes.items() if o.status is Status.VACUOUS))
        left = self.limit - (perf_counter() - begun)
        if vacuous and left > 0:
            more = replace(self.options.effort, examples=MORE * self.options.effort.examples)
            self.check(vacuous, more, left, outcomes)
        rows = [
            row(
                self.target,
                target,
                [o for (name, _), o in outcomes.items() if name == target.name],
                self.options.expected,
            )
            for target in targets
        ]
        findings = [outcome.finding for outcome in outcomes.values() if outcome.finding]
        late = any(outcome.status is Status.CUT_SHORT for outcome in outcomes.values())
        return Swept(self.target, rows, findings, cut=self.stopped or (late and self.limit < self.options.seconds))

    def check(
        self, laws: Sequence[Law], effort: Effort, seconds: float, outcomes: dict[tuple[str, Law], Outcome]
    ) -> Sequence[Named]:
        """Try laws on what the target stands for, and put what comes of them where they met no case before."""
        asked = self.options.asked(self.target)
        patience = patience_for(asked, self.options.timeout)
        self.isolated = Isolated(asked, laws, effort, seconds, patience, planned=False)
        try:
            if self.stopped:
                self.isolated.stop()
            described = self.isolated.open()
            for outcome in self.isolated.outcomes(lambda what, _: self.tick(self.target, what)):
                before = outcomes.get(place := (outcome.target, outcome.law))
                if not before or (before.status is Status.VACUOUS and outcome.status is not Status.CUT_SHORT):
                    outcomes[place] = outcome
            return described
        finally:
            self.isolated.close()
