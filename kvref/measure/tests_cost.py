"""What the tests themselves cost: schedules a second, an exact lens against ordinary kernels, and how time grows.

Times are of this machine, wall clock, in seconds. Rows come as they are measured, so that a run that is stopped has
those which were done.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch

from kvref.answers import DecoderRaised
from kvref.asked import Asked
from kvref.bug import catalogue
from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.errors import BadInput
from kvref.explore import Explorer, Try
from kvref.finding import LawBroken
from kvref.law import EQUALITY, Law, choose, law_called, laws
from kvref.matrix.gate import kills
from kvref.measure.growth import Fit, Spread, fit_exponent
from kvref.operations import Extend, Start, count
from kvref.schedule import Schedule
from kvref.search import Effort, bound_of, search
from kvref.targets import Bench, Target, Under
from kvref.targets.reference import DECODERS, assemble
from kvref.watch import seed_by
from kvref.weights import loud

COMPARED = (EQUALITY, "no-operation-makes-logits-differ-from-uncached-ones")
"""Laws that lenses are compared by where none is asked for: the shortest schedules, and those of every operation."""

LENGTHS = (64, 128, 256, 512, 1024)
"""Tokens of the schedules by which growth with length is measured."""

LONG = GPTConfig(block_size=LENGTHS[-1], vocab_size=13, n_layer=2, n_head=2, n_embd=8)
"""The shape that they are checked on: as tiny as any, with room for the longest."""


@dataclass(frozen=True)
class Run:
    """One run of a law over drawn schedules: how many there were, and seconds in all and inside the decoder's calls.

    Where each was tried whatever came of it, `broken` counts those that broke the law, `unable` those that the decoder
    or the lens could not do.
    """

    schedules: int
    seconds: float
    forward_seconds: float
    broken: int = 0
    unable: int = 0

    def __add__(self, other: "Run") -> "Run":
        """Both, one after the other."""
        return Run(
            self.schedules + other.schedules,
            self.seconds + other.seconds,
            self.forward_seconds + other.forward_seconds,
            self.broken + other.broken,
            self.unable + other.unable,
        )


@dataclass(frozen=True)
class LawCost:
    """Repeated searches for a schedule that breaks a law, as a check does them; or those of several laws together."""

    target: str
    law: str
    status: str
    runs: tuple[Run, ...]

    def lines(self) -> list[str]:
        """The share of the decoder's calls, and schedules a second."""
        if not all(run.schedules for run in self.runs):
            return [self.law, f"    no schedule  {self.status}"]
        share = Spread.of([100 * run.forward_seconds / run.seconds for run in self.runs])
        speed = Spread.of([run.schedules / run.seconds for run in self.runs])
        said = f"{share.middle:3.0f}% [{share.low:.0f}, {share.high:.0f}] in the decoder"
        return [self.law, f"    {said}  {spread(speed, 1)} a second  {self.status}"]


@dataclass(frozen=True)
class LensCost:
    """Pairs of runs of one law, under a lens and under ordinary kernels; `same` if all tried the same schedules."""

    target: str
    law: str
    lens: str
    lensed: tuple[Run, ...] = ()
    native: tuple[Run, ...] = ()
    same: bool = True
    reason: str = ""
    """Why the law was not tried, where it was not."""

    def lines(self) -> list[str]:
        """The ratios, and what they are of: there is none of runs that did not try the same."""
        if self.reason:
            return [self.law, "    skipped"]
        if not self.same:
            return [self.law, "    no ratio: NOT the same schedules under both"]
        return [self.law, *(f"    {line}" for line in (self.ratios(), *self.tried()))]

    def ratios(self) -> str:
        """How many times as long it takes under the lens."""
        pairs = list(zip(self.lensed, self.native, strict=True))
        whole = Spread.of([lensed.seconds / native.seconds for lensed, native in pairs])
        said = f"x {spread(whole)} in all"
        if all(native.forward_seconds for native in self.native):
            inside = Spread.of([lensed.forward_seconds / native.forward_seconds for lensed, native in pairs])
            said += f"  x {spread(inside)} in the decoder"
        return said

    def tried(self) -> Iterator[str]:
        """What was tried under both, and what was no success: it may have ended early, and then counts for less."""
        schedules, pairs = count(self.native[0].schedules, "schedule"), count(len(self.native), "pair")
        yield f"the same {schedules} under both, {pairs}"
        for name, run in ((self.lens, self.lensed[0]), ("native", self.native[0])):
            if run.broken or run.unable:
                yield f"of these, under {name}: {run.broken} broken, {run.unable} not done"


@dataclass(frozen=True)
class LengthCost:
    """Repeated checks of one schedule of a length, with one kind of cache."""

    cache: str
    length: int
    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        """The median of a whole check."""
        return median(run.seconds for run in self.runs)

    @property
    def forward_seconds(self) -> float:
        """The median of what is inside the decoder's calls."""
        return median(run.forward_seconds for run in self.runs)

    def lines(self) -> list[str]:
        """Share of the decoder's calls, and milliseconds."""
        share = Spread.of([100 * run.forward_seconds / run.seconds for run in self.runs])
        took = Spread.of([1000 * run.seconds for run in self.runs])
        return [f"{self.length:5} tokens  {share.middle:3.0f}% in the decoder  {spread(took, 1)} ms  {self.cache}"]


@dataclass(frozen=True)
class BugsCost:
    """Repeated runs of the gate over the first bugs of a shuffled catalogue, and how many of them were killed."""

    bugs: int
    killed: int
    seconds: tuple[float, ...]

    def lines(self) -> list[str]:
        """Seconds."""
        return [f"{count(self.bugs, 'bug'):>9}  {self.killed} killed  {spread(Spread.of(self.seconds))} s"]


@dataclass(frozen=True)
class Growth:
    """The exponent by which medians of seconds grow with something."""

    what: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    fit: Fit

    def lines(self) -> list[str]:
        """The exponent with its interval."""
        return [f"{self.what}^{self.fit} (95%, {len(self.sizes)} medians)"]


Row = LawCost | LensCost | LengthCost | BugsCost | Growth


@dataclass(frozen=True)
class Request:
    """What is asked for: laws by name, or all; `only` some parts, or all; growth up to so many `bugs`."""

    asked: Asked
    laws: tuple[str, ...] = ()
    examples: int = 20
    seed: int = 0
    repeats: int = 5
    bugs: int = 16
    only: tuple[str, ...] = ()
    lengths: tuple[int, ...] = LENGTHS

    def require(self) -> None:
        """Raise `BadInput` for what there is not."""
        choose(self.laws)
        for name, number in (("--examples", self.examples), ("--repeats", self.repeats), ("--bugs", self.bugs)):
            if number < 1:
                raise BadInput(f"{name} is {number}; it must be at least 1")
        if self.bugs > len(catalogue()):
            raise BadInput(f"--bugs is {self.bugs}; the catalogue has {len(catalogue())}")
        for name in self.only:
            if name not in PARTS:
                raise BadInput(f"there is nothing called {name!r} to measure; there are {', '.join(PARTS)}")

    @property
    def effort(self) -> Effort:
        """How hard to search."""
        return Effort(self.examples, self.seed, shrink=False)


def measure_tests(request: Request) -> Iterator[Row]:
    """Measure what is asked for, and give each row as soon as it is there. Raises `BadInput` before the first."""
    request.require()
    bench = request.asked.bench()
    targets = request.asked.targets(bench)
    request.asked.require_lens(bench)
    parts = {
        "laws": lambda: law_costs(request, targets),
        "lens": lambda: lens_costs(request, targets),
        "length": lambda: length_costs(request, bench),
        "bugs": lambda: bugs_costs(request, bench),
    }
    for name in PARTS:
        if name in (request.only or PARTS):
            yield from parts[name]()


PARTS = ("laws", "lens", "length", "bugs")
"""What can be measured, in this order."""


def law_costs(request: Request, targets: Sequence[Target]) -> Iterator[LawCost]:
    """Search for what breaks each law on each target, as a check does, and sum up each target."""
    chosen = choose(request.laws)
    for target in targets:
        search(chosen[0], target, Effort(1, request.seed, shrink=False))  # what is made or imported late is there now
        costs = list[LawCost]()
        for law in chosen:
            costs.append(law_cost(law, target, request))
            yield costs[-1]
        yield together(costs)


def law_cost(law: Law, target: Target, request: Request) -> LawCost:
    """Repeat one search, with the same schedules each time."""
    outcomes = [search(law, target, request.effort) for _ in range(request.repeats)]
    runs = tuple(Run(outcome.examples, outcome.seconds, outcome.forward_seconds) for outcome in outcomes)
    return LawCost(target.name, law.name, ", ".join(sorted({outcome.status for outcome in outcomes})), runs)


def together(costs: Sequence[LawCost]) -> LawCost:
    """All laws on one target, repeat by repeat; those without a schedule add nothing but their seconds."""
    runs = [sum(same, Run(0, 0.0, 0.0)) for same in zip(*(cost.runs for cost in costs), strict=True)]
    held = sum(cost.status == "held" for cost in costs)
    return LawCost(costs[0].target, f"together: {count(len(costs), 'law')}", f"{held} held", tuple(runs))


def lens_costs(request: Request, targets: Sequence[Target]) -> Iterator[LensCost]:
    """Compare the lens with ordinary kernels, on each target by each law that was asked for, or else by two."""
    for target in targets:
        for law in choose(request.laws or COMPARED):
            yield lens_cost(law, target, request)


def lens_cost(law: Law, target: Target, request: Request) -> LensCost:
    """Run a law under both in turn, each first every other time.

    Ordinary kernels get the bound that a check gives them where no exact lens can be used, the noise of the decoder
    without its cache, so that rounding is no broken law there. The first run under each is not timed.
    """
    lens = request.asked.lens
    if lacking := law.lacks(target.capabilities(), target.refusals()):
        return LensCost(target.name, law.name, lens, reason=lacking)
    native = Under(target, "native", {decoder.name: bound_of(decoder) for decoder in target.decoders()})
    seen_by: tuple[tuple[Target, list[Run]], ...] = ((target, []), (native, []))
    drawn = [tried(law, seen, request)[1] for seen, _ in seen_by]
    for number in range(request.repeats):
        for seen, runs in seen_by[:: -1 if number % 2 else 1]:
            run, cases = tried(law, seen, request)
            runs.append(run)
            drawn.append(cases)
    same = all(cases == drawn[0] for cases in drawn)
    return LensCost(target.name, law.name, lens, tuple(seen_by[0][1]), tuple(seen_by[1][1]), same)


def tried(law: Law, target: Target, request: Request) -> tuple[Run, list[Try]]:
    """Draw schedules, try each, and say which they were; drawing is part of the time."""
    trying, begun = Trying(law), perf_counter()
    Explorer(law, target).explore(trying, request.examples, request.seed)
    seconds = perf_counter() - begun
    run = Run(len(trying.cases), seconds, trying.forward_seconds, trying.broken, trying.unable)
    return run, trying.cases


@dataclass
class Trying:
    """Tries a law on every example, whatever comes of it, so that the next one is drawn in any case."""

    law: Law
    repeats: bool = True
    cases: list[Try] = field(default_factory=list[Try])
    forward_seconds: float = 0.0
    broken: int = 0
    unable: int = 0

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Try it once, and count what comes of it."""
        self.cases.append((decoder.name, schedule))
        before = decoder.meter.seconds
        seed_by(schedule)
        try:
            self.law.check(decoder, schedule)
        except LawBroken:
            self.broken += 1
        except DecoderRaised:
            self.unable += 1
        finally:
            self.forward_seconds += decoder.meter.seconds - before


def length_costs(request: Request, bench: Bench) -> Iterator[LengthCost | Growth]:
    """Check one schedule of each length, on the reference with each cache, and fit how time grows."""
    dtype = bench.dtypes[0] if bench.dtypes else torch.float32
    model = loud(LONG, request.seed, dtype, bench.device)
    for kind in [kind for kind in DECODERS if request.asked.cache in (None, kind)] or DECODERS:
        decoder = Decoder(assemble(kind, model), f"reference:{kind}", bench.lens_for(dtype))
        costs = list[LengthCost]()
        checked(decoder, decoding(request.lengths[0], request.seed))
        for length in request.lengths:
            schedule = decoding(length, request.seed)
            costs.append(LengthCost(kind, length, tuple(checked(decoder, schedule) for _ in range(request.repeats))))
            yield costs[-1]
        sizes = tuple(cost.length for cost in costs)
        yield from growth(f"{kind}, whole check: length", sizes, [cost.seconds for cost in costs])
        yield from growth(f"{kind}, in the decoder: length", sizes, [cost.forward_seconds for cost in costs])


def decoding(length: int, seed: int) -> Schedule:
    """One row: the first half of its tokens at once, and each other one by itself."""
    chance = random.Random(seed)
    tokens = tuple(chance.randrange(LONG.vocab_size) for _ in range(length))
    half = length // 2
    return Schedule((Start(1), Extend((tokens[:half],)), *(Extend(((token,),)) for token in tokens[half:])))


def checked(decoder: Decoder, schedule: Schedule) -> Run:
    """Check the law of equality on a schedule, which is made before. Raises `LawBroken`: this is the reference."""
    before, begun = decoder.meter.seconds, perf_counter()
    law_called(EQUALITY).check(decoder, schedule)
    return Run(1, perf_counter() - begun, decoder.meter.seconds - before)


def bugs_costs(request: Request, bench: Bench) -> Iterator[BugsCost | Growth]:
    """Time the gate, with the examples of a check and one worker, over more and more bugs, each time from the first.

    The server that workers are forked from has started before; that a worker starts is part of each time.
    """
    names = list(catalogue())
    random.Random(request.seed).shuffle(names)
    list(gate(names[:1], request.seed, bench))
    costs = list[BugsCost]()
    for number in doublings(request.bugs):
        runs = [gate(names[:number], request.seed, bench) for _ in range(request.repeats)]
        costs.append(BugsCost(number, runs[0][0], tuple(seconds for _, seconds in runs)))
        yield costs[-1]
    yield from growth("gate: bugs", tuple(cost.bugs for cost in costs), [median(cost.seconds) for cost in costs])


def gate(names: Sequence[str], seed: int, bench: Bench) -> tuple[int, float]:
    """How many of these bugs the gate kills, and seconds until it is done."""
    bugs, begun = catalogue(), perf_counter()
    effort = Effort(seed=seed, shrink=False)
    done = list(kills({name: bugs[name] for name in names}, list(laws()), effort, bench, workers=1))
    return sum(kill.cell is not None for kill in done), perf_counter() - begun


def doublings(most: int) -> list[int]:
    """Powers of two up to a number, and that number."""
    return sorted({2**power for power in range(most.bit_length())} | {most})


def growth(what: str, sizes: tuple[int, ...], seconds: Sequence[float]) -> Iterator[Growth]:
    """The exponent, where there are sizes enough to fit one.

    It is fitted to medians: more repeats would make the interval narrow, but not the law of growth any truer. What each
    measurement takes whatever its size is in them, and makes the exponent smaller than it is for large sizes.
    """
    if len(sizes) >= 3:
        yield Growth(what, sizes, tuple(seconds), fit_exponent(sizes, seconds))


def spread(of: Spread, digits: int = 2) -> str:
    """A median, with the lowest and the highest."""
    return f"{of.middle:.{digits}f} [{of.low:.{digits}f}, {of.high:.{digits}f}]"
