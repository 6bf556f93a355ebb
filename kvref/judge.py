"""What a difference means: the failing schedule is played again under other lenses, and the evidence decides."""

from dataclasses import dataclass

import torch

from kvref.decoder import Decoder, DecoderRaised, OutOfReach
from kvref.finding import Divergence, LawBroken, measuring
from kvref.law import Law
from kvref.lens import NATIVE, Lens
from kvref.schedule import Schedule
from kvref.verdict import NOISES, Evidence, Kind, Verdict, decide

LONGEST = 24
"""Tokens of the sequence that noise is measured on."""


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

    def bits(self) -> dict[str, bool]:
        """For exact lenses that can be used here: whether the law holds."""
        return {mode: holds for mode in ("tile", "grid") if (holds := self.holds(mode)) is not None}

    def holds(self, name: str, bound: float = 0.0) -> bool | None:
        """Whether the law holds under a lens; None where that cannot be used."""
        try:
            self.law.check(self.under(name, bound), self.schedule)
        except OutOfReach:
            return None
        except (LawBroken, DecoderRaised):
            return False
        return True


def judge(question: Question) -> Verdict:
    """Say whether it is rounding, the order of the keys, another expression, a cache of low precision, or a bug."""
    if question.divergence.copied:
        return Verdict(Kind.BUG, "what is only copied has changed, which no rounding does", "nothing")
    if question.divergence.gap is None:
        return judge_count(question)
    names = "native", "promoted", "lifted"
    gap, gap64, gap_lifted = map(question.gap, names)
    if gap64 is None:
        return judge_count(question)
    noise, noise64, noise_lifted = map(question.noise, names)
    return decide(
        Evidence(
            question.decoder.lens.dtype,
            gap=gap,
            gap64=gap64,
            gap_lifted=gap_lifted,
            noise=noise,
            noise64=noise64,
            noise_lifted=noise_lifted,
            bits=question.bits(),
        )
    )


def judge_count(question: Question) -> Verdict:
    """Judge a difference that is no gap: a count, a shape, a refusal, or a token that was chosen."""
    if question.holds("grid"):
        return Verdict(
            Kind.ORDER, "it holds under grid, where the order of sums changes no bit", "what grid rounds away"
        )
    if question.holds("promoted", NATIVE.bound):
        return Verdict(Kind.EQUIVALENT, "it holds in float64", f"what moves no logit by more than {NATIVE.bound:g}")
    return Verdict(Kind.BUG, "it is so in float64 too, and under grid", "nothing")


def noise(decoder: Decoder) -> float:
    """How much the logits of a sequence change by what comes behind it, without a cache: the largest relative gap.

    Raises `DecoderRaised` when the decoder does.
    """
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(decoder.vocab_size, (1, min(decoder.block_size, LONGEST)), generator=generator)
    whole = decoder.full(tokens.to(decoder.device)).double()
    scale = float(whole.abs().amax()) or 1.0
    worst = 0.0
    for length in range(1, tokens.size(1)):
        part = decoder.full(tokens[:, :length].to(decoder.device)).double()
        worst = max(worst, float((part - whole[:, :length]).abs().amax()) / scale)
    return worst


def native_bound(decoder: Decoder) -> float:
    """How far apart logits of a decoder may be under ordinary kernels of its dtype, by its noise without a cache."""
    return NOISES * max(noise(decoder), torch.finfo(decoder.lens.dtype).eps)
