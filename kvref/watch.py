"""What happens while a law is tried on one schedule after the other: its cases, its failures, and when to stop."""

import random
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from unittest import SkipTest

import torch

from kvref.answers import DecoderRaised, OutOfReach, Refused
from kvref.decoder import Decoder
from kvref.finding import Divergence, LawBroken
from kvref.law import Law, seen
from kvref.schedule import Schedule

Tick = Callable[[int], None]

Tell = Callable[[Law, int, Decoder, Schedule], None]

telling: ContextVar[Tell | None] = ContextVar("telling", default=None)
"""What is called before a law is tried on a schedule, with the number of those before; None where nobody listens."""


@dataclass
class Watch:
    """What happens while a law is tried."""

    law: Law
    deadline: float | None = None
    first: int | None = None
    let_raise: bool = False
    until_killed: bool = False
    tick: Tick | None = None
    only: frozenset[Schedule] | None = None
    examples: int = 0
    forward_seconds: float = 0.0
    cut_short: bool = False
    out_of_reach: str = ""
    refused: str = ""
    refusals: int = 0
    cases: set[str] = field(default_factory=set[str])
    failures: list["Failure"] = field(default_factory=list["Failure"])
    crashes: list["Failure"] = field(default_factory=list["Failure"])
    repeats: bool = True
    killed_after: int | None = None
    killed_at: float | None = None
    raised_after: int | None = None

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Try the law once. A decoder that raises is noted, and fails only when asked to; one that refuses, never."""
        if self.out_of_reach:
            return
        if self.only is not None and schedule not in self.only and not self.failures:
            return
        late = self.deadline is not None and perf_counter() > self.deadline
        late |= self.first is not None and self.examples >= self.first and not self.failures
        # Hypothesis checks in the end that what failed still fails; that replay must run, however late it is.
        if late and not any(failure.schedule == schedule for failure in self.failures):
            self.cut_short = True
            if not self.failures:
                raise SkipTest("late")  # Hypothesis then draws no more
            return
        if self.tick:
            self.tick(self.examples)
        if tell := telling.get():
            tell(self.law, self.examples, decoder, schedule)
        self.examples += 1
        before = decoder.meter.seconds
        token = seen.set(self.cases)
        seed_by(schedule)
        decoder.meter.meddled.clear()
        try:
            self.law.check(decoder, schedule)
            decoder.require_no_meddling()
        except LawBroken as error:
            self.killed_after = self.killed_after or self.examples
            self.killed_at = self.killed_at or perf_counter()
            self.failures.append(Failure(error, decoder, schedule))
            if self.until_killed:
                raise SkipTest("killed") from None  # Hypothesis then neither draws nor replays
            raise
        except OutOfReach as error:
            self.out_of_reach = str(error.error)
        except Refused as error:
            self.refused = self.refused or str(error)
            self.refusals += 1
        except DecoderRaised as error:
            crash = Failure(error, decoder, schedule)
            self.raised_after = self.raised_after or self.examples
            self.crashes.append(crash)
            if self.let_raise:
                self.failures.append(crash)
                raise
        finally:
            seen.reset(token)
            self.forward_seconds += decoder.meter.seconds - before

    def broken(self) -> "Failure | None":
        """The failure that shrinking ended with, if it is a broken law and no crash."""
        found = self.smallest()
        return found if found and isinstance(found.error, LawBroken) else None

    def smallest(self) -> "Failure | None":
        """The failure that shrinking ended with; where it does not repeat, or is a crash of before, the shortest."""
        if self.failures and self.repeats:
            return self.failures[-1]
        return min(self.failures or self.crashes, key=lambda failure: len(failure.schedule), default=None)


def seed_by(schedule: Schedule) -> None:
    """Seed every generator by a schedule.

    So a decoder that draws at random draws the same whenever this schedule is tried, and other numbers for another one:
    Hypothesis seeds `random` alike for every example, and torch's generator not at all.
    """
    random.seed(str(schedule))
    torch.manual_seed(random.getrandbits(63))  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped


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
