"""Which side is wrong where a cache and an uncached pass disagree: other ways to the same logits are asked.

The cache is not taken for guilty. An uncached pass is wrong too at times, say where its mask lets it see what comes
behind; and where every way gives something of its own, that is what is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from kvref.answers import DecoderRaised
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import Divergence
from kvref.lens import NATIVE, relative_gap
from kvref.operations import Row
from kvref.schedule import Schedule
from kvref.trace import Uncached, as_tensor, play

NEAR = 0.1
"""A witness sides with what is at most this share as far from it as the other is."""

CACHE, UNCACHED = "the cache", "the uncached pass"


@dataclass(frozen=True)
class Disagreement:
    """Logits of one token, `vocab_size`, with the cache and without; and the sequence that ends with it."""

    decoder: Decoder
    sequence: Row
    cached: Tensor
    uncached: Tensor

    def side(self, logits: Tensor) -> str | None:
        """Which of the two other logits for the same token agree with; None for neither."""
        to_cached, to_uncached = relative_gap(logits, self.cached), relative_gap(logits, self.uncached)
        if to_cached <= NEAR * to_uncached:
            return CACHE
        return UNCACHED if to_uncached <= NEAR * to_cached else None

    def witnesses(self) -> Iterator[tuple[str, Tensor]]:
        """Other ways to the same logits, each with what it is. One that raises is no witness."""
        tokens = as_tensor([self.sequence], self.decoder)
        ways = [
            ("a pass over no more than these tokens", lambda: self.decoder.full(tokens)),
            ("one prefill into a fresh cache", lambda: self.decoder.step(self.decoder.start(1), tokens)[0]),
        ]
        if Capability.INDEPENDENT in self.decoder.capabilities:
            ways.append(("another implementation", lambda: self.decoder.under(NATIVE).independent(tokens)))
        for name, way in ways:
            try:
                yield name, way()[0, -1]
            except DecoderRaised:
                continue


def witnessed(decoder: Decoder, schedule: Schedule, divergence: Divergence) -> str | None:
    """Say which side other ways to the same logits take; None where the two do not disagree at the divergence."""
    try:
        found = disagreement(decoder, schedule, divergence)
    except DecoderRaised:
        return None
    if found is None:
        return None
    sides = {name: found.side(logits) for name, logits in found.witnesses()}
    taken = {side for side in sides.values() if side}
    if not taken:
        return "no other way to these logits agrees with the cache, or with the uncached pass"
    if len(taken) == 1:
        (right,) = taken
        names = [name for name, side in sides.items() if side]
        wrong = UNCACHED if right == CACHE else CACHE
        return f"{listed(names)} {'give' if len(names) > 1 else 'gives'} what {right} gives: {wrong} is wrong"
    said = "; ".join(f"{name} sides with {side}" for name, side in sides.items() if side)
    return f"{said}: which is wrong cannot be told"


def listed(names: list[str]) -> str:
    """Names in a sentence."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def disagreement(decoder: Decoder, schedule: Schedule, divergence: Divergence) -> Disagreement | None:
    """What the cache gives at a divergence and an uncached pass does not; None where that is not so."""
    index, row, position = divergence.step, divergence.row, divergence.position
    if index is None or row is None or position is None:
        return None
    step = next((step for step in play(decoder, schedule) if step.index == index), None)
    if step is None or step.logits is None:
        return None
    column = position - step.past
    tokens, new = step.answered[row], step.logits.size(1)
    length = len(tokens) - (new - 1 - column)
    if not 0 <= column < new or length < 1:
        return None
    cached = step.logits[row, column]
    uncached = Uncached(decoder, schedule).logits(step)[row, column]
    if not relative_gap(cached, uncached) > decoder.lens.bound:
        return None
    return Disagreement(decoder, tokens[:length], cached, uncached)
