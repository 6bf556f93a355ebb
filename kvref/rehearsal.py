"""A rehearsal: which few schedules are worth a large decoder's time.

The schedules that will be drawn are tried first on a small stand-in, which tells what each would cost, and which of the
law's cases it would meet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from unittest import SkipTest

import torch
from typing_extensions import override

from kvref import weights
from kvref.cache import Cache
from kvref.capability import Capability
from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.finding import LawBroken
from kvref.law import Law, seen
from kvref.protocol import Logits, Tokens
from kvref.schedule import Schedule
from kvref.targets.reference import GrowingDecoder, StaticDecoder

SAFETY = 1.5
"""How much longer things may take than the calls of the decoder in them."""


@dataclass(frozen=True)
class Cost:
    """Seconds of a decoder's time: for each call, and for each token in it."""

    call: float
    token: float

    def of(self, calls: int, tokens: int) -> float:
        """Seconds for some calls with some tokens in all."""
        return SAFETY * (calls * self.call + tokens * self.token)


def cost_of(decoder: Decoder, tokens: int = 8) -> Cost:
    """Measure what a decoder's calls cost: uncached passes over one token and over several, the best of two each."""
    tokens = min(tokens, decoder.block_size)
    one, several = (min(seconds_of(decoder, new) for _ in range(2)) for new in (1, tokens))
    return Cost(one, max(several - one, 0.0) / max(tokens - 1, 1))


def seconds_of(decoder: Decoder, new: int) -> float:
    """Time one uncached pass."""
    begun = perf_counter()
    decoder.full(torch.zeros(1, new, dtype=torch.long, device=decoder.device))
    return perf_counter() - begun


@dataclass(frozen=True)
class Scene:
    """What one schedule meets and costs."""

    schedule: Schedule
    cases: frozenset[str]
    seconds: float


@dataclass(frozen=True)
class Plan:
    """Which schedules to try in limited time; `needed` are the cheapest that together meet every case that can be met.

    Without scenes, all that are drawn are tried as long as the time lasts.
    """

    needed: tuple[Scene, ...] = ()
    others: tuple[Scene, ...] = ()
    seconds: float = 1.0

    def within(self, seconds: float) -> frozenset[Schedule] | None:
        """Schedules to try in so many seconds: those that are needed, then others, cheapest first; None for all."""
        if not self.needed:
            return None
        chosen, left = list(self.needed), seconds - self.seconds
        for scene in self.others:
            left -= scene.seconds
            if left < 0:
                break
            chosen.append(scene)
        return frozenset(scene.schedule for scene in chosen)


@dataclass
class Rehearsal:
    """Tries a law on the stand-in in place of each decoder that is drawn, and notes what each schedule met."""

    law: Law
    stand_in: Decoder
    cost: Cost
    end: float = inf
    repeats: bool = True
    scenes: list[Scene] = field(default_factory=list[Scene])

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Try the law once, on the stand-in, if it is not too late."""
        del decoder
        if perf_counter() > self.end:
            raise SkipTest("late")  # Hypothesis then draws no more
        self.stand_in.meter.calls = self.stand_in.meter.tokens = 0
        cases = set[str]()
        token = seen.set(cases)
        try:
            self.law.check(self.stand_in, schedule)
        except LawBroken:
            # A law that fails on the stand-in has met its case; what it says there is no finding.
            pass
        finally:
            seen.reset(token)
        seconds = self.cost.of(self.stand_in.meter.calls, self.stand_in.meter.tokens)
        self.scenes.append(Scene(schedule, frozenset(cases & self.law.must_see), seconds))

    def plan(self) -> Plan:
        """Choose what is needed: always the scene that meets most of what is missing for its price."""
        needed: list[Scene] = []
        missing = set[str]().union(*(scene.cases for scene in self.scenes))
        while missing:
            best = max(self.scenes, key=lambda scene: len(scene.cases & missing) / max(scene.seconds, 1e-9))
            needed.append(best)
            missing -= best.cases
        if not needed:
            return Plan()  # nothing is known of what to choose
        others = sorted((scene for scene in self.scenes if scene not in needed), key=lambda scene: scene.seconds)
        return Plan(tuple(needed), tuple(others), sum(scene.seconds for scene in needed))


STAND_IN_VOCABULARY = 13


def stand_in(decoder: Decoder) -> Decoder:
    """Make a small healthy decoder that takes the same schedules and offers the same capabilities."""
    shared = 1 if Capability.WITH_ALL_HEADS in decoder.capabilities else None
    config = GPTConfig(decoder.block_size, STAND_IN_VOCABULARY, n_layer=2, n_head=2, n_embd=8, n_kv_head=shared)
    static = decoder.preallocates or Capability.POISON in decoder.capabilities
    stand = Decoder((StandInStatic if static else StandInGrowing)(weights.loud(config, 0, torch.float64)), "stand-in")
    stand.capabilities &= decoder.capabilities
    stand.refuses = decoder.refuses
    return stand


class FoldsTokens(GrowingDecoder):
    """Takes tokens of any vocabulary, and makes its own few of them: a rehearsal needs how many, not which."""

    @override
    def full(self, tokens: Tokens) -> Logits:
        return super().full(tokens % self.vocab_size)

    @override
    def step(self, cache: Cache, tokens: Tokens) -> tuple[Logits, Cache]:
        return super().step(cache, tokens % self.vocab_size)

    @override
    def prefill(self, cache: Cache, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Cache]:
        return super().prefill(cache, tokens % self.vocab_size, padding)

    @override
    def peek(self, cache: Cache, tokens: Tokens) -> Logits:
        return super().peek(cache, tokens % self.vocab_size)

    @override
    def refill(self, cache: Cache, row: int, tokens: Tokens) -> tuple[Logits, Cache]:
        return super().refill(cache, row, tokens % self.vocab_size)


class StandInGrowing(FoldsTokens):
    """The stand-in for decoders that grow."""


class StandInStatic(FoldsTokens, StaticDecoder):
    """The stand-in for decoders that allocate in advance."""
