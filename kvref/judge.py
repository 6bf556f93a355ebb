"""What a difference means: the failing schedule is played again under other lenses, and the evidence decides."""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite

import torch

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder
from kvref.finding import Divergence, LawBroken, measuring
from kvref.law import Law
from kvref.lens import NATIVE, Lens, relative_gap
from kvref.promote import promoted
from kvref.protocol import Tokens
from kvref.scaling import same_bits, sees_ahead
from kvref.schedule import Schedule
from kvref.verdict import NOISES, Evidence, Kind, Verdict, decide, enough

LONGEST = 24
"""Tokens of the sequence that noise is measured on."""


class Replay(StrEnum):
    """What came of trying the law on the schedule once more."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Question:
    """A law that a decoder breaks on a schedule, and how it showed."""

    law: Law
    decoder: Decoder
    schedule: Schedule
    divergence: Divergence

    def under(self, name: str, bound: float = 0.0) -> Decoder:
        """The decoder under another lens."""
        return self.decoder.under(Lens(name, self.decoder.lens.dtype, bound))

    def gap(self, name: str) -> float | None:
        """The largest gap between what the law compares under a lens; None where something else goes wrong there."""
        sizes = list[float]()
        token = measuring.set(sizes)
        try:
            self.law.check(self.under(name), self.schedule)
        except (LawBroken, DecoderRaised):
            return None
        finally:
            measuring.reset(token)
        return max(sizes, default=0.0)

    def noise(self, name: str) -> float | None:
        """The noise of the decoder without its cache, under a lens."""
        try:
            return noise(self.under(name))
        except DecoderRaised:
            return None

    def ahead(self) -> float | None:
        """How far logits of the lifted decoder, without its cache, move with the tokens behind them."""
        try:
            lifted = self.under("lifted")
            return sees_ahead(lifted.full, sample(lifted))
        except DecoderRaised:
            return None

    def bits(self) -> dict[str, bool]:
        """For exact lenses that can be used here: whether the law holds."""
        tried = {mode: self.replayed(self.under(mode)) for mode in ("tile", "grid")}
        return {mode: replay is Replay.HOLDS for mode, replay in tried.items() if replay is not Replay.UNKNOWN}

    def replayed(self, decoder: Decoder) -> Replay:
        """Whether the law holds on the schedule for a decoder; unknown where that raises."""
        try:
            self.law.check(decoder, self.schedule)
        except LawBroken:
            return Replay.BROKEN
        except DecoderRaised:
            return Replay.UNKNOWN
        return Replay.HOLDS


def judge(question: Question) -> Verdict:
    """Say whether it is rounding, the order of the keys, another expression, a cache of low precision, or a bug."""
    if question.replayed(question.decoder) is not Replay.BROKEN:
        return Verdict(Kind.BUG, "the same schedule breaks the law once and not again: something else decides", "what")
    if question.decoder.lens.exact and not repeats(question.decoder):
        return Verdict(Kind.BUG, "the same uncached pass gives other bits when it is run again: chance decides", "what")
    if question.divergence.copied and question.decoder.lens.exact:
        because = "what is only copied, or comes of the same calls, has other bits, which no rounding does"
        return Verdict(Kind.BUG, because, "nothing")
    gap = question.gap("native")
    if question.divergence.gap is None or gap is None:
        return judge_count(question)
    if not isfinite(question.divergence.gap):
        return Verdict(Kind.BUG, "what comes back is not all finite numbers, a finding of its own", "which cache it is")
    return judge_gap(question, gap)


def judge_gap(question: Question, gap: float) -> Verdict:
    """Judge a difference by its size, in the decoder's dtype and in float64."""
    dtype = question.decoder.lens.dtype
    mode = promoted(dtype)
    mode.rounded = False
    gap64, rounded = question.gap("promoted"), mode.rounded
    float64 = Evidence(
        dtype,
        gap=gap,
        gap64=gap64,
        gap_lifted=question.gap("lifted"),
        noise64=question.noise("promoted"),
        outside=question.decoder.outside is not None,
        rounded_on_store=rounded,
    )
    if enough(float64):
        return decide(float64)
    own = question.noise("native")
    if gap64 is None and own is not None and not question.decoder.lens.exact:
        most = NOISES * max(own, torch.finfo(dtype).eps)
        figures = (
            f"the gap is {gap:.1e}, and {most:.1e} is what the noise without a cache allows; float64 cannot be had"
        )
        return Verdict(Kind.BUG if gap > most else Kind.UNDECIDABLE, figures, f"anything below {most:.1e}")
    lifted = question.noise("lifted")
    return decide(replace(float64, noise=own, noise_lifted=lifted, bits=question.bits(), ahead=question.ahead()))


def judge_count(question: Question) -> Verdict:
    """Judge a difference that is no gap: a count, a shape, a refusal, or a token that was chosen."""
    grid = question.replayed(question.under("grid"))
    lifted = question.replayed(question.under("promoted", NATIVE.bound))
    if grid is Replay.HOLDS:
        return Verdict(
            Kind.ORDER, "it holds under grid, where the order of sums changes no bit", "what grid rounds away"
        )
    if lifted is Replay.HOLDS:
        return Verdict(Kind.EQUIVALENT, "it holds in float64", f"what moves no logit by more than {NATIVE.bound:g}")
    where = [name for name, replay in (("under grid", grid), ("in float64", lifted)) if replay is Replay.BROKEN]
    if where:
        return Verdict(Kind.BUG, f"it is so {' and '.join(where)} too", "nothing")
    if question.replayed(question.under("native")) is Replay.BROKEN:
        return Verdict(Kind.BUG, "it is so under ordinary kernels too", "whether a rounding chose another token")
    return Verdict(Kind.UNDECIDABLE, "it cannot be tried under any other lens", "anything")


def repeats(decoder: Decoder) -> bool:
    """Whether an uncached pass gives the same bits twice; so it is taken to be where the decoder raises."""
    try:
        tokens = sample(decoder)
        return same_bits(decoder.full(tokens), decoder.full(tokens))
    except DecoderRaised:
        return True


def sample(decoder: Decoder) -> Tokens:
    """A sequence for a decoder, always the same."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(decoder.vocab_size, (1, min(decoder.block_size, LONGEST)), generator=generator)
    return tokens.to(decoder.device)


def noise(decoder: Decoder) -> float:
    """How much the logits of a sequence change by what comes behind it, without a cache: the largest relative gap.

    Raises `DecoderRaised` when the decoder does.
    """
    tokens = sample(decoder)
    whole = decoder.full(tokens)
    return max((relative_gap(decoder.full(tokens[:, :n]), whole[:, :n]) for n in range(1, tokens.size(1))), default=0.0)


def native_bound(decoder: Decoder) -> float:
    """How far apart logits of a decoder may be under ordinary kernels of its dtype, by its noise without a cache."""
    return NOISES * max(noise(decoder), torch.finfo(decoder.lens.dtype).eps)
