"""A law: a property over schedules, and the search for a schedule that breaks it.

`@law` turns a function of a decoder and a schedule into a test. What Hypothesis draws for it is `given`; what the
decoder has to offer is `needs`; and `must_see` names the cases that the law exists for. The function reports each case
with `saw`, behind the check, so that a law which never met its case is an error and not a pass.
"""

import zlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from time import perf_counter

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.strategies import DrawFn

from kvref.decoder import Capability, Decoder, DecoderRaised
from kvref.finding import Divergence, Finding, LawBroken
from kvref.locate import locate
from kvref.schedule import Schedule
from kvref.strategies import Draw
from kvref.targets import Target

Check = Callable[[Decoder, Schedule], None]


@dataclass(frozen=True)
class Law:
    """A property over schedules, with what it needs and what it is tried on."""

    check: Check
    draw: Draw
    needs: frozenset[Capability]
    needs_one_of: frozenset[Capability]
    must_see: frozenset[str]

    @property
    def name(self) -> str:
        """The law as a kebab-case name: the sentence that its function's name is."""
        return self.check.__name__.removeprefix("test_").replace("_", "-")

    @property
    def sentence(self) -> str:
        """The law in words: the first paragraph of its docstring."""
        return " ".join((self.check.__doc__ or "").strip().split("\n\n")[0].split())

    def lacks(self, offered: frozenset[Capability]) -> str:
        """What a decoder lacks for this law, in words; nothing if it can be tried."""
        if missing := sorted(self.needs - offered):
            return ", ".join(missing)
        return " or ".join(sorted(self.needs_one_of)) if self.needs_one_of and not self.needs_one_of & offered else ""


@dataclass(frozen=True)
class Effort:
    """How hard to search. With one seed the same examples are drawn on every machine."""

    examples: int = 60
    seed: int = 0
    max_seconds: float | None = None
    shrink: bool = True

    def flags(self) -> str:
        """Command-line flags that ask for the same examples, where they are not the default."""
        examples = "" if self.examples == Effort.examples else f" --examples {self.examples}"
        return examples + ("" if self.seed == Effort.seed else f" --seed {self.seed}")


class Status(StrEnum):
    """How a search ended."""

    HELD = "held"
    BROKEN = "broken"
    RAISED = "raised"
    SKIPPED = "skipped"
    VACUOUS = "vacuous"
    CUT_SHORT = "cut short"


@dataclass(frozen=True)
class Outcome:
    """What a search for a broken law came to. `killed_after` counts examples up to the first failing one."""

    law: Law
    target: str
    status: Status
    examples: int = 0
    seconds: float = 0.0
    forward_seconds: float = 0.0
    reason: str = ""
    finding: Finding | None = None
    killed_after: int | None = None


@dataclass
class Watch:
    """What happens while a law is tried."""

    law: Law
    deadline: float | None = None
    let_raise: bool = False
    tick: Callable[[int], None] | None = None
    examples: int = 0
    forward_seconds: float = 0.0
    cut_short: bool = False
    cases: set[str] = field(default_factory=set[str])
    failures: list["Failure"] = field(default_factory=list["Failure"])
    repeats: bool = True
    raised: bool = False
    killed_after: int | None = None

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Try the law once. A decoder that raises is noted, and fails only when asked to."""
        late = self.deadline is not None and perf_counter() > self.deadline
        # Hypothesis checks in the end that what failed still fails; that replay must run, however late it is.
        if late and not any(failure.schedule == schedule for failure in self.failures):
            self.cut_short = True
            return
        if self.tick:
            self.tick(self.examples)
        self.examples += 1
        before = decoder.seconds
        try:
            self.law.check(decoder, schedule)
        except LawBroken as error:
            self.killed_after = self.killed_after or self.examples
            self.failures.append(Failure(error, decoder, schedule))
            raise
        except DecoderRaised as error:
            self.raised = True
            if self.let_raise:
                self.failures.append(Failure(error, decoder, schedule))
                raise
        finally:
            self.forward_seconds += decoder.seconds - before

    def smallest(self) -> "Failure | None":
        """The failure that shrinking ended with; where it does not repeat, the one with the fewest steps."""
        if self.repeats:
            return self.failures[-1] if self.failures else None
        return min(self.failures, key=lambda failure: len(failure.schedule))


@dataclass(frozen=True)
class Failure:
    """What went wrong, and what showed it."""

    error: LawBroken | DecoderRaised
    decoder: Decoder
    schedule: Schedule

    @property
    def divergence(self) -> Divergence:
        """Where it shows."""
        return (
            self.error.divergence if isinstance(self.error, LawBroken) else Divergence(str(self.error), self.error.step)
        )


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


def saw(case: str) -> None:
    """Report that a law has checked one of the cases it exists for."""
    if watch := _watch.get():
        watch.cases.add(case)


def law(
    *,
    given: Draw,
    must_see: tuple[str, ...],
    needs: tuple[Capability, ...] = (),
    needs_one_of: tuple[Capability, ...] = (),
) -> Callable[[Check], Callable[..., None]]:
    """Make a test of a law. Pytest gives it a target and an effort; the law itself is its attribute `law`."""

    def decorate(check: Check) -> Callable[..., None]:
        this = Law(check, given, frozenset(needs), frozenset(needs_one_of), frozenset(must_see))

        def test(target: Target, effort: Effort) -> None:
            __tracebackhide__ = True
            require_held(search(this, target, effort))

        test.__name__ = test.__qualname__ = check.__name__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        test.__dict__["law"] = this
        return test

    return decorate


def require_held(outcome: Outcome) -> None:
    """Fail or skip the running test unless a law held."""
    __tracebackhide__ = True
    match outcome.status:
        case Status.HELD:
            return
        case Status.SKIPPED:
            pytest.skip(outcome.reason)
        case Status.BROKEN | Status.RAISED if outcome.finding:
            pytest.fail(str(outcome.finding), pytrace=False)
        case _:
            pytest.fail(f"{outcome.law.name}: {outcome.status}: {outcome.reason}", pytrace=False)


def search(law: Law, target: Target, effort: Effort, tick: Callable[[int], None] | None = None) -> Outcome:
    """Try a law on drawn schedules, and give the smallest that breaks it, if any does.

    A schedule on which the decoder raises is passed over, for a crash proves nothing about the law; when nothing else
    is found, the crash is what is reported. `tick` is called with the number of examples before each.
    """
    if lacking := law.lacks(target.capabilities()):
        return Outcome(law, target.name, Status.SKIPPED, reason=f"the target offers no {lacking}")
    begun = perf_counter()
    watch = explore(law, target, effort, tick, let_raise=False)
    if watch.raised and not watch.failures:
        watch = explore(law, target, effort, tick, let_raise=True)
    return conclude(law, target, effort, watch, perf_counter() - begun)


def explore(law: Law, target: Target, effort: Effort, tick: Callable[[int], None] | None, *, let_raise: bool) -> Watch:
    """Let Hypothesis draw decoders and schedules, and shrink what fails; the watch keeps what was seen."""
    deadline = None if effort.max_seconds is None else perf_counter() + effort.max_seconds
    watch = Watch(law, deadline, let_raise, tick)

    decoders = st.sampled_from([(decoder, target.sources(decoder)) for decoder in target.decoders()])

    @st.composite
    def cases(draw: DrawFn) -> tuple[Decoder, Schedule]:
        decoder, sources = draw(decoders)
        return decoder, draw(law.draw(decoder, sources))

    @settings(
        max_examples=effort.examples,
        phases=[Phase.generate, Phase.shrink] if effort.shrink else [Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        # The time of an example is that of the decoder's forward passes, which may be as large as it likes.
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(cases())
    def test(case: tuple[Decoder, Schedule]) -> None:
        watch.attempt(*case)

    seed(effort.seed * 1_000_003 + zlib.crc32(law.name.encode()))(test)
    token = _watch.set(watch)
    try:
        test()
    except (LawBroken, DecoderRaised):
        pass  # it is the watch's last failure, since Hypothesis ends with the smallest
    except Flaky:
        watch.repeats = False
    finally:
        _watch.reset(token)
    return watch


def conclude(law: Law, target: Target, effort: Effort, watch: Watch, seconds: float) -> Outcome:
    """Say what a search has come to."""
    status, reason, finding = Status.HELD, "", None
    missing = ", ".join(sorted(law.must_see - watch.cases))
    if failure := watch.smallest():
        status = Status.BROKEN if isinstance(failure.error, LawBroken) else Status.RAISED
        finding = describe(law, target, effort, failure)
        reason = str(failure.error)
    elif missing and watch.cut_short:
        status, reason = Status.CUT_SHORT, f"out of time before it met: {missing}"
    elif missing:
        status, reason = Status.VACUOUS, f"never met: {missing}"
    return Outcome(
        law,
        target.name,
        status,
        watch.examples,
        seconds,
        watch.forward_seconds,
        reason,
        finding,
        watch.killed_after,
    )


def describe(law: Law, target: Target, effort: Effort, failure: Failure) -> Finding:
    """Put a failure on paper, with the place where the cache first went wrong."""
    failure = trimmed(law, failure)
    decoder, schedule, divergence = failure.decoder, failure.schedule, failure.divergence
    origin = locate(decoder, schedule, divergence.step) if isinstance(failure.error, LawBroken) else None
    replay = f"kvref check {target.command} --law {law.name}{effort.flags()}"
    return Finding(target.name, law.name, law.sentence, decoder.name, schedule, divergence, origin, replay)


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


@cache
def laws() -> dict[str, Law]:
    """Every law of `kvref.properties` by name, in the order to try them."""
    package = import_module("kvref.properties")
    modules = [import_module(f"kvref.properties.test_{family}") for family in package.FAMILIES]
    found: list[Law] = [value.law for module in modules for value in vars(module).values() if hasattr(value, "law")]
    return {law.name: law for law in found}
