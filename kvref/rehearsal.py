"""A rehearsal: which few schedules are worth a large decoder's time.

The schedules that will be drawn are tried first on a small stand-in, which tells what each would cost, and which of the
law's cases it would meet.
"""

from dataclasses import dataclass, field
from time import perf_counter

import torch

from kvref import weights
from kvref.decoder import Capability, Decoder
from kvref.gpt2 import GPTConfig
from kvref.law import Law, seen
from kvref.schedule import Schedule
from kvref.targets.reference import GrowingDecoder, StaticDecoder


@dataclass(frozen=True)
class Cost:
    """Seconds of a decoder's time: for each call, and for each token in it."""

    call: float
    token: float

    def of(self, calls: int, tokens: int) -> float:
        """Seconds for some calls with some tokens in all."""
        return calls * self.call + tokens * self.token


def cost_of(decoder: Decoder, tokens: int = 8) -> Cost:
    """Measure what a decoder's calls cost, by two uncached passes after one to warm up."""
    seconds: list[float] = []
    for new in (1, 1, min(tokens, decoder.block_size)):
        begun = perf_counter()
        decoder.full(torch.zeros(1, new, dtype=torch.long, device=decoder.device))
        seconds.append(perf_counter() - begun)
    _, one, several = seconds
    return Cost(one, max(several - one, 0.0) / max(tokens - 1, 1))


def stand_in(decoder: Decoder) -> Decoder:
    """A small healthy decoder that takes the same schedules and offers the same capabilities."""
    config = GPTConfig(decoder.block_size, decoder.vocab_size, n_layer=2, n_head=1, n_embd=2)
    static = decoder.preallocates or Capability.POISON in decoder.capabilities
    small = (StaticDecoder if static else GrowingDecoder)(weights.loud(config, 0, torch.float64))
    stand = Decoder(small, "stand-in")
    stand.capabilities &= decoder.capabilities
    return stand


@dataclass(frozen=True)
class Scene:
    """What one schedule met and cost on the stand-in."""

    schedule: Schedule
    cases: frozenset[str]
    calls: int
    tokens: int


@dataclass
class Rehearsal:
    """Tries a law on the stand-in in place of each decoder that is drawn, and notes what each schedule met."""

    law: Law
    stand_in: Decoder
    repeats: bool = True
    scenes: list[Scene] = field(default_factory=list[Scene])

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Try the law once, on the stand-in."""
        del decoder
        cases, calls, tokens = set[str](), self.stand_in.calls, self.stand_in.tokens
        token = seen.set(cases)
        try:
            self.law.check(self.stand_in, schedule)
        finally:
            seen.reset(token)
        cases &= self.law.must_see
        made, run = self.stand_in.calls - calls, self.stand_in.tokens - tokens
        self.scenes.append(Scene(schedule, frozenset(cases), made, run))

    def choose(self, cost: Cost, seconds: float) -> frozenset[Schedule]:
        """The cheapest schedules that together meet every case that was met, then others while the time lasts."""

        def price(scene: Scene) -> float:
            return cost.of(scene.calls, scene.tokens)

        chosen: list[Scene] = []
        missing = set[str]().union(*(scene.cases for scene in self.scenes))
        while missing:
            best = max(self.scenes, key=lambda scene: len(scene.cases & missing) / max(price(scene), 1e-9))
            chosen.append(best)
            missing -= best.cases
        left = seconds - sum(price(scene) for scene in chosen)
        for scene in sorted(self.scenes, key=price):
            left -= price(scene)
            if left < 0:
                break
            chosen.append(scene)
        return frozenset(scene.schedule for scene in chosen)
