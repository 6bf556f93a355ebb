"""The search for a schedule that breaks a law: it is drawn, and made small, and a watch keeps what was seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import perf_counter

import torch

from kvref.answers import DecoderRaised, Meddled
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.explore import Explorer
from kvref.finding import Finding, LawBroken
from kvref.judge import Question, judge, native_bound, noise
from kvref.law import Law
from kvref.lens import NATIVE, Lens
from kvref.locate import locate
from kvref.operations import count
from kvref.parting import first_parting
from kvref.positions import errors_by_position
from kvref.rehearsal import Plan
from kvref.schedule import Schedule
from kvref.targets import Target, Under
from kvref.testimony import witnessed
from kvref.varied import varied
from kvref.verdict import NOISES, PASSES, Kind, Verdict
from kvref.watch import Failure, Tick, Watch, seed_by


@dataclass(frozen=True)
class Effort:
    """How hard to search. With one seed the same examples are drawn on every machine.

    Where `first` is given, only so many of the examples are tried, and the search is cut short by that. `profile` is
    the name under which it was asked for, if any, and `spelled` is for a project whose own profile is not the usual
    one: there flags say what is the default elsewhere.
    """

    examples: int = 60
    seed: int = 0
    max_seconds: float | None = None
    shrink: bool = True
    first: int | None = None
    profile: str = ""
    spelled: bool = False

    def __str__(self) -> str:
        named = f"profile {self.profile}, " if self.profile else ""
        return f"{named}{count(self.examples, 'example')} a law, seed {self.seed}"

    def flags(self) -> str:
        """Command-line flags that ask for the same examples, where they are not the default."""
        said = {name: getattr(self, name) for name in ("examples", "seed")}
        return "".join(f" --{name} {n}" for name, n in said.items() if self.spelled or n != getattr(Effort, name))


class Status(StrEnum):
    """How a search ended."""

    HELD = "held"
    BROKEN = "broken"
    RAISED = "raised"
    MEDDLED = "meddled"
    DIED = "died"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"
    VACUOUS = "vacuous"
    CUT_SHORT = "cut short"
    UNDECIDED = "undecided"
    BLOCKED = "blocked"


FAULTS = frozenset({Status.BROKEN, Status.RAISED, Status.MEDDLED, Status.DIED, Status.TIMED_OUT})
"""How a search ends with something wrong. What died or timed out did so in a process of its own."""


@dataclass(frozen=True)
class Outcome:
    """What a search for a broken law came to.

    `killed_after` counts examples up to the first failing one, under the last lens that was tried; `raised_after` those
    up to the first on which the decoder raised. `exact` is whether that lens was. `killed_seconds` is the time until it
    failed. `asked` examples were asked for, under each lens; `refused` counts schedules that the target refused under
    the last one.
    """

    law: Law
    target: str
    status: Status
    examples: int = 0
    seconds: float = 0.0
    forward_seconds: float = 0.0
    reason: str = ""
    finding: Finding | None = None
    killed_after: int | None = None
    killed_seconds: float | None = None
    raised_after: int | None = None
    asked: int = 0
    refused: int = 0
    exact: bool = True


def search(law: Law, target: Target, effort: Effort, tick: Tick | None = None, plan: Plan | None = None) -> Outcome:
    """Try a law on drawn schedules, and give the smallest that breaks it, if any does.

    A schedule on which the decoder raises is passed over, for a crash proves nothing about the law; when nothing else
    is found, the crash is what is reported. So is one which it refuses; a law that met none of its cases for that is
    skipped, with the reason. What breaks the law by rounding, or by the order of keys, sends the search
    on under a lens that does not see these. `tick` is called with the number of examples before each; a `plan` says
    which of them to try in limited time.
    """
    if lacking := law.lacks(target.capabilities(), target.refusals()):
        return Outcome(law, target.name, Status.SKIPPED, reason=lacking)
    begun = perf_counter()
    end = None if effort.max_seconds is None else begun + effort.max_seconds
    notes, seen_by, spent = list[str](), target, Watch(law)
    while True:
        watch = hunt(law, seen_by, effort, end, tick, plan)
        spent.examples += watch.examples
        spent.forward_seconds += watch.forward_seconds
        verdict = judge(Question(law, f.decoder, f.schedule, f.divergence)) if (f := watch.broken()) else None
        further = next_lens(target, seen_by, watch, verdict)
        if further is None:
            outcome = conclude(law, seen_by, effort, watch, verdict, notes)
            return replace(
                outcome,
                examples=spent.examples,
                seconds=perf_counter() - begun,
                forward_seconds=spent.forward_seconds,
                killed_seconds=None if watch.killed_at is None else watch.killed_at - begun,
            )
        seen_by, note = further
        notes.append(note)


def first_kill(law: Law, target: Target, effort: Effort) -> int | None:
    """Number of the first example that breaks a law under the target's own lens; None if none does.

    No verdict is asked for: this is for bugs that are known to be bugs, tried again and again.
    """
    if law.lacks(target.capabilities()):
        return None
    watch = Watch(law, until_killed=True)
    Explorer(law, target).explore(watch, effort.examples, effort.seed)
    return watch.killed_after


def hunt(law: Law, target: Target, effort: Effort, end: float | None, tick: Tick | None, plan: Plan | None) -> Watch:
    """Search under one lens, until a point in time if one is given."""
    watch = Watch(law, end, effort.first, tick=tick)
    if plan and effort.max_seconds is not None:
        watch.only = plan.within(effort.max_seconds)
    explorer = Explorer(law, target)
    explorer.explore(watch, effort.examples, effort.seed)
    watch.let_raise = bool(watch.crashes) and not watch.failures
    if effort.shrink and watch.repeats and (failure := watch.smallest()):
        explorer.shrink(watch, failure.decoder, failure.schedule)
    return watch


def next_lens(target: Target, seen_by: Target, watch: Watch, verdict: Verdict | None) -> tuple[Target, str] | None:
    """The target under the lens to search on with, and why; None where the search is at its end.

    From an exact lens it goes on in float64, which sees every bug that is larger than rounding there; from the grid,
    where numbers are too large for that, it goes to fold. There is no way back, and bounds only grow, so it ends.
    """
    lens = seen_by.decoders()[0].lens
    if not lens.exact:
        return above(target, seen_by, verdict)
    if watch.out_of_reach and lens.name == "grid":
        return Under(target, "fold"), f"{watch.out_of_reach}; under fold"
    if watch.out_of_reach:
        return in_float64(target, watch.out_of_reach)
    if verdict and verdict.kind in PASSES:
        return in_float64(target, f"{verdict.kind}: {verdict.because}")
    return None


def above(target: Target, seen_by: Target, verdict: Verdict | None) -> tuple[Target, str] | None:
    """The target with the bound below which nothing can be decided, where that is larger than the one it had."""
    known = {decoder.name: decoder.lens for decoder in seen_by.decoders()}
    if verdict is None or all(verdict.below <= lens.bound for lens in known.values()):
        return None
    bounds = {name: max(lens.bound, verdict.below) for name, lens in known.items()}
    (kind,) = {lens.name for lens in known.values()}
    return Under(target, kind, bounds), f"{verdict.kind}: {verdict.because}; bound {verdict.below:.1g}"


def in_float64(target: Target, why: str) -> tuple[Target, str]:
    """The target as ordinary kernels in float64 see it or, where it cannot be lifted, in its own dtype.

    Code that rounds more coarsely inside, as a kernel of its own may, gets a bound by its noise without a cache.
    """
    try:
        seen = Under(target, "promoted").decoders()
        bounds = {decoder.name: max(NATIVE.bound, NOISES * noise(decoder)) for decoder in seen}
        lens, said = "promoted", "in float64"
    except DecoderRaised:
        bounds = {decoder.name: bound_of(decoder) for decoder in target.decoders()}
        lens, said = "native", "of its own dtype"
    largest = max(bounds.values())
    said += "" if largest == NATIVE.bound else f", bound {largest:.1g}"
    return Under(target, lens, bounds), f"{why}; ordinary kernels {said}"


def bound_of(decoder: Decoder) -> float:
    """The bound for a decoder under ordinary kernels of its own dtype; that of one rounding where it raises."""
    try:
        return native_bound(decoder.under(Lens("native", decoder.lens.dtype)))
    except DecoderRaised:
        return float(torch.finfo(decoder.lens.dtype).eps)


BLIND = 0.01
"""Bound from which on a law that held says nothing: bugs are often smaller."""


def conclude(
    law: Law,
    target: Target,
    effort: Effort,
    watch: Watch,
    verdict: Verdict | None,
    notes: Sequence[str],
) -> Outcome:
    """Say what a search has come to."""
    status, reasons, finding = Status.HELD, list(notes), None
    missing = ", ".join(sorted(law.must_see - watch.cases))
    if (failure := watch.smallest()) and not (verdict and verdict.kind in PASSES):
        undecided = verdict and verdict.kind is Kind.UNDECIDABLE
        broken = Status.UNDECIDED if undecided else Status.BROKEN
        status = broken if isinstance(failure.error, LawBroken) else Status.RAISED
        if isinstance(failure.error, Meddled):
            status = Status.MEDDLED
            failure.decoder.meter.told.add(str(failure.error.error))  # once is enough: the next laws go on
        finding = describe(law, target, effort, failure, verdict)
        reasons = [str(failure.error)]
    elif watch.out_of_reach:
        status, reasons = Status.UNDECIDED, [watch.out_of_reach]
    elif max(decoder.lens.bound for decoder in target.decoders()) > BLIND:
        status = Status.UNDECIDED
    elif missing and (watch.cut_short or watch.only is not None):
        status, reasons = Status.CUT_SHORT, [f"out of time before it met: {missing}"]
    elif missing and watch.refused:
        status, reasons = Status.SKIPPED, [f"{watch.refused}; so it never met: {missing}"]
    elif missing:
        status, reasons = Status.VACUOUS, [f"never met: {missing}"]
    elif watch.refusals:
        reasons.append(f"{watch.refusals} of {count(watch.examples, 'schedule')} refused: {watch.refused}")
    elif watch.examples < effort.examples and effort.max_seconds is not None:
        reasons.append(f"{watch.examples} of {effort.examples} drawn, in the time there was")
    reason = "; ".join(reasons)
    return Outcome(
        law,
        target.name,
        status,
        reason=reason,
        finding=finding,
        killed_after=watch.killed_after,
        raised_after=watch.raised_after,
        asked=effort.examples,
        refused=watch.refusals,
        exact=all(decoder.lens.exact for decoder in target.decoders()),
    )


def describe(law: Law, target: Target, effort: Effort, failure: Failure, verdict: Verdict | None) -> Finding:
    """Put a failure on paper, with the place where the cache first went wrong."""
    failure = trimmed(law, failure)
    decoder, schedule, divergence = failure.decoder, failure.schedule, failure.divergence
    lossless = Capability.LOSSLESS in decoder.capabilities  # or an uncached pass is no witness
    differs = divergence.gap is not None and lossless
    origin = locate(decoder, schedule, divergence.step) if differs else None
    replay = f"kvref check {target.command} --law {law.name}{effort.flags()}"
    if not target.command:
        replay = f'the same kvref.check(...), with laws=["{law.name}"]'
    raised, meddled = isinstance(failure.error, DecoderRaised), isinstance(failure.error, Meddled)
    seed_by(schedule)
    return Finding(
        target.name,
        target.command,
        law.name,
        law.sentence,
        decoder.name,
        decoder.lens,
        own=not isinstance(target, Under),
        schedule=schedule,
        divergence=divergence,
        origin=origin,
        replay=replay,
        raised=raised,
        verdict=verdict,
        fault="meddled" if meddled else "",
        oracle=witnessed(decoder, schedule, divergence) if differs else None,
        module=first_parting(decoder, schedule, divergence) if differs else None,
        errors=errors_by_position(decoder, schedule) if lossless else (),
        varied=varied(law, failure) if effort.shrink and not meddled else None,
    )


def trimmed(law: Law, failure: Failure) -> Failure:
    """Leave out the steps behind the one that went wrong, if the law still fails in the same way without them."""
    step = failure.divergence.step
    if step is None or step + 1 == len(failure.schedule):
        return failure
    shorter = Schedule(failure.schedule.ops[: step + 1])
    try:
        law.check(failure.decoder, shorter)
    except (LawBroken, DecoderRaised) as error:
        return Failure(error, failure.decoder, shorter) if str(error) == str(failure.error) else failure
    except Exception:
        pass  # the law needs the rest of the schedule, say a second cache to compare with
    return failure
