"""Rounding or bug: what measured differences between cached and uncached logits allow to say.

No tolerance decides. What rounding did shrinks when the same code runs in float64, by nine decimal digits from float32,
and what a bug did does not: that ratio is far from 1 or near it, with nothing between. `kvref.scaling` measures it.
Every threshold here stands in a gap between two things that were measured, which are named beside it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch

ROUNDING_RATIO = 1e-5
"""Rounding shrinks at least by this much from float32 to float64: at most 1.5e-6 was left in 12,305 honest models of
std 0.005 to 2, and 2e-9 in the median."""

BUG_RATIO = 1e-2
"""A bug keeps at least this much of its size in float64: the least was 0.45 in 528 runs of small models, and 0.011 in
600 of tiny ones, where the bug itself was smaller than the noise of its dtype. A thousand times above rounding."""

ROUNDING_GAP = 1e-11
"""Honest relative gaps in float64 are smaller: at most 4.2e-13 in 13,109 models up to std 2, 5e-14 up to std 0.3."""

BUG_GAP = 1e-8
"""A relative gap in float64 that is never rounding, where the uncached pass is reproducible to `ROUNDING_GAP`: it is
24,000 times the largest honest one. A bug in bfloat16 needs it, as the ratio drowns in the noise of that dtype."""

CLEAN_NOISE = 1e-10
"""Above this, code that is said to run in float64 does not: float32 inside leaves 1e-8 and more, float64 4e-13 at most
(as `ROUNDING_GAP`)."""

NOISES = 64.0
"""Honest gaps are at most so many times the noise of the uncached pass, prefixes of it run alone, and one unit of
rounding, since the noise is often exactly 0: at most 22 times in 4,200 models up to std 0.3 and loud, tripled, as both
are the largest of a small sample."""

INSIDE = NOISES * 2.0**-24
"""What one rounding to float32 inside may grow to, as a gap in float64."""

ORACLE_RATIO = 4.0
"""Errors against float64: cached ones are at most 3.1 times the uncached ones in 4,200 models up to std 0.3 and loud,
and 5.0 times at std 1 once; so all of `MODELS` models have to exceed it."""

CALM_RATIO = 2.0
"""At most this oracle ratio is what honest models have: two of those 4,200 were beyond it."""

MODELS = 3
"""Fresh models that have to agree. At most one honest model in 4,000 is beyond a threshold (95 %), so three are not."""

EXACT_MODES = ("tile", "fold")
"""Exact modes that keep every bit of the dtype; grid rounds to its steps."""


class Kind(StrEnum):
    """What a difference between cached and uncached logits is."""

    EXACT = "exact"
    ORDER = "order or layout of keys"
    ROUNDING = "rounding"
    EQUIVALENT = "different but equivalent expression"
    BUG = "bug"
    LOW_PRECISION = "low-precision cache"
    UNDECIDABLE = "undecidable"


PASSES = (Kind.EXACT, Kind.ORDER, Kind.ROUNDING, Kind.EQUIVALENT)
"""Kinds that are no fault of the cache, the strongest claim first."""


@dataclass(frozen=True)
class Evidence:
    """What was measured of one model; None for what could not be.

    A gap is the largest difference between cached and uncached logits over the largest uncached one; a noise is the
    same between prefixes run alone and the whole, without any cache. `gap` and `noise` are in the dtype itself, `gap64`
    and `noise64` in float64 with what the code itself casts to coarser dtypes left so, `gap_lifted` and `noise_lifted`
    with everything in float64. `rho` are oracle ratios, one for each fresh model: the error of cached logits against
    float64 over that of uncached ones. `bits` says for exact modes whether all bits were equal. `rounded_on_store` says
    that numbers were rounded in float64 too, in memory that the code had before. `outside` says that the code does not
    compute in torch, so that what it casts to float32 inside stays so in its float64: noise need not show it, where
    only the cached pass does it. `ahead` is how far earlier logits move, without a cache and lifted, where later tokens
    of a sequence of the same length are others.
    """

    dtype: torch.dtype
    gap: float | None = None
    gap64: float | None = None
    noise64: float | None = None
    noise: float | None = None
    gap_lifted: float | None = None
    noise_lifted: float | None = None
    rho: tuple[float, ...] = ()
    bits: Mapping[str, bool] = field(default_factory=dict[str, bool])
    rounded_on_store: bool = False
    outside: bool = False
    ahead: float | None = None

    @property
    def models(self) -> int:
        """Fresh models that the oracle ratio is known of."""
        return len(self.rho)

    @property
    def unit(self) -> float:
        """How far one rounding in the dtype moves a number."""
        return float(torch.finfo(self.dtype).eps) / 2

    @property
    def floor(self) -> float:
        """The least gap that counts: one rounding, or that of float32, below which ratios were never measured."""
        return max(self.unit, 2.0**-24)


@dataclass(frozen=True)
class Verdict:
    """What it is, the figures that say so, and what else would look the same.

    Where no smaller gap than `below` can be decided, larger ones can.
    """

    kind: Kind
    because: str
    unseen: str
    below: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}: {self.because} (not seen: {self.unseen})"


def decide(evidence: Evidence) -> Verdict:
    """Say what the evidence supports: equal bits first, then precision scaling, then errors against an oracle."""
    for rule in (by_finiteness, by_bits, by_scaling, by_oracle):
        if (verdict := rule(evidence)) is not None:
            return verdict
    return Verdict(Kind.UNDECIDABLE, f"{dtype_name(evidence)} alone, and no float64 to compare with", "anything")


def enough(e: Evidence) -> bool:
    """Whether gaps and noise in float64 decide alone: `decide` says the same with whatever else may be measured."""
    gaps = e.gap, e.gap64, e.gap_lifted
    if e.noise64 is None or e.gap64 is None or not all(gap is not None and math.isfinite(gap) for gap in gaps):
        return False
    clean = e.noise64 <= CLEAN_NOISE and not e.rounded_on_store
    return clean and e.gap64 > ROUNDING_GAP and not vanishes(e)


def by_finiteness(e: Evidence) -> Verdict | None:
    """Judge what is not a finite number."""
    if all(gap is None or math.isfinite(gap) for gap in (e.gap, e.gap64, e.gap_lifted)):
        return None
    if all(noise is None or math.isfinite(noise) for noise in (e.noise, e.noise64, e.noise_lifted)):
        return Verdict(Kind.BUG, "cached logits are not finite where uncached ones are", "nothing")
    return Verdict(Kind.UNDECIDABLE, "the uncached logits are not finite", "anything: take smaller weights")


def by_bits(e: Evidence) -> Verdict | None:
    """Judge equal bits under an exact lens, unless float64 shows that a coarse dtype swallowed a difference."""
    # Coarse dtypes swallow: a stale key at std 0.02 moved no bit of bfloat16 logits once in 12 models.
    if e.gap64 is not None and e.gap64 > explained(e) and not vanishes(e):
        return None
    equal = [mode for mode in EXACT_MODES if e.bits.get(mode)]
    if equal:
        return Verdict(
            Kind.EXACT,
            f"the same bits under {' and '.join(equal)}",
            f"what never moves a bit of a {dtype_name(e)} logit, and faults of kernels that the lens replaces",
        )
    if not e.bits.get("grid"):
        return None
    if any(mode in e.bits for mode in EXACT_MODES):
        because = f"the same bits under grid, and not under {' or '.join(m for m in EXACT_MODES if m in e.bits)}"
        return Verdict(Kind.ORDER, because, unseen_by_grid(e))
    return Verdict(Kind.EXACT, "the same bits under grid, and nothing else was tried", unseen_by_grid(e))


def unseen_by_grid(e: Evidence) -> str:
    """What grid rounds away, unless float64 ran too."""
    if e.gap64 is None:
        return "what is smaller than the steps of the grid, 2**-15"
    return f"an equivalent expression that differs by less than the steps of the grid, and {below_rounding()}"


def explained(e: Evidence) -> float:
    """The gap in float64 that rounding may leave, given what was rounded there too."""
    if e.rounded_on_store:
        return NOISES * max(e.noise or 0.0, e.noise64 or 0.0) + e.unit
    if e.noise64 is not None and e.noise64 > CLEAN_NOISE:
        return NOISES * e.noise64 + 2.0**-24
    return ROUNDING_GAP


def vanishes(e: Evidence) -> bool:
    """Whether no gap is left once everything runs in float64."""
    return e.gap_lifted is not None and e.gap_lifted <= ROUNDING_GAP


def by_scaling(e: Evidence) -> Verdict | None:
    """Judge how the gap changes from the dtype to float64."""
    if e.gap64 is None:
        return None
    if e.noise64 is None and e.gap_lifted is None and e.gap64 > ROUNDING_GAP:
        return None
    if e.noise64 is None:
        # Whatever the code casts to was lifted as well, so that only operators that round inside are left to doubt.
        return scaled(e, e.gap64, 0.0)
    if e.noise64 <= CLEAN_NOISE and not e.rounded_on_store:
        return scaled(e, e.gap64, e.noise64)
    clean = e.noise_lifted is not None and e.noise_lifted <= CLEAN_NOISE
    # Noise says nothing of memory that rounds, since no cache is in it.
    if clean and e.gap_lifted is not None and (vanishes(e) or not e.rounded_on_store):
        return scaled(e, e.gap_lifted, e.noise_lifted or 0.0)
    return uncausal(e) or coarse(e, e.gap64)


def scaled(e: Evidence, gap64: float, noise64: float) -> Verdict:
    """Judge a gap that was measured in float64 throughout, apart from what the code chose to round."""
    ratio = gap64 / max(e.gap or 0.0, e.floor)
    figures = f"the gap is {shown(e.gap)} in {dtype_name(e)} and {gap64:.1e} in float64, ratio {ratio:.1e}"
    if ratio <= ROUNDING_RATIO and gap64 <= ROUNDING_GAP:
        return shrunk(e, figures)
    if e.outside and gap64 <= INSIDE:
        because = f"{figures}: what is cast to float32 inside may leave so much, and cannot be lifted"
        return Verdict(Kind.UNDECIDABLE, because, f"anything below {INSIDE:.1e}", INSIDE)
    certain = ratio >= BUG_RATIO or (gap64 >= BUG_GAP and noise64 <= ROUNDING_GAP)
    if not certain or gap64 <= NOISES * noise64:
        return Verdict(Kind.UNDECIDABLE, f"{figures}, noise {noise64:.1e}", f"anything below {gap64:.1e}")
    if vanishes(e):
        return Verdict(
            Kind.LOW_PRECISION,
            f"{figures}, and {shown(e.gap_lifted)} once casts to coarser dtypes than {dtype_name(e)} are left out",
            below_rounding(),
        )
    return Verdict(Kind.BUG, figures, "whether a cache of rounded integers was meant: those cannot be left out")


def shrunk(e: Evidence, figures: str) -> Verdict:
    """Judge a gap that float64 makes vanish: what is left to ask is whether it was no more than noise before."""
    if e.rho and (worst := max(e.rho)) > ORACLE_RATIO:
        because = f"{figures}; but in {dtype_name(e)} errors are {worst:.2g} times those without a cache"
        return Verdict(Kind.UNDECIDABLE, because, f"a fault of the kernels for {dtype_name(e)}")
    if e.bits.get("grid") is False:
        return Verdict(
            Kind.EQUIVALENT, f"{figures}; other bits under grid, where order does not matter", below_rounding()
        )
    return Verdict(Kind.ROUNDING, figures, below_rounding())


def below_rounding() -> str:
    """What float64 cannot show."""
    return f"a fault that moves no logit by more than {ROUNDING_GAP:g} of the largest"


def uncausal(e: Evidence) -> Verdict | None:
    """Judge a pass without a cache whose logits change with the tokens behind them, in float64 and equal shapes."""
    if e.ahead is None or e.ahead <= INSIDE:
        return None
    because = (
        f"without a cache, logits change by {e.ahead:.1e} of the largest where later tokens are others, in float64 "
        f"too: that pass is not causal, so no cache gives the same"
    )
    return Verdict(Kind.BUG, because, "what the cache does; whether integers are rounded by a scale of all tokens")


def coarse(e: Evidence, gap64: float) -> Verdict:
    """Judge code that rounds in a coarser dtype even when it runs in float64: it is compared with its own noise."""
    most = explained(e)
    figures = f"the gap in float64 is {gap64:.1e}, and {most:.1e} is what the noise without a cache allows"
    if gap64 > most:
        return Verdict(Kind.BUG, figures, "whether a low-precision cache was meant")
    return Verdict(Kind.UNDECIDABLE, f"{figures}: something inside rounds more coarsely", f"anything below {most:.1e}")


def by_oracle(e: Evidence) -> Verdict | None:
    """Judge errors against float64 where the code under test runs in one dtype alone."""
    if not e.models:
        return None
    low, high = min(e.rho), max(e.rho)
    figures = f"errors against float64 are {low:.2g} to {high:.2g} times those without a cache, on {e.models} models"
    if e.models >= MODELS and low > ORACLE_RATIO:
        return Verdict(Kind.BUG, figures, "whether a low-precision cache was meant")
    loud = e.gap is not None and e.noise is not None and e.gap > NOISES * e.noise + e.floor
    if e.models >= MODELS and high <= CALM_RATIO and not loud:
        size = "" if e.noise is None else f", {ORACLE_RATIO * max(e.noise, e.unit):.1e} of the largest logit"
        return Verdict(Kind.ROUNDING, figures, f"an error of up to {ORACLE_RATIO:g} times the noise{size}")
    return Verdict(Kind.UNDECIDABLE, figures, f"an error of up to {high + 1:.2g} times the noise")


def verdict_of(judgements: Sequence[Verdict]) -> Verdict:
    """Say what the judgements of fresh models come to: a fault only where all agree, a pass with its weakest claim."""
    counts = Counter(judgement.kind for judgement in judgements)
    said = ", ".join(f"{count} x {kind}" for kind, count in counts.items())
    if len(judgements) < MODELS and set(counts) != {Kind.EXACT}:
        return Verdict(Kind.UNDECIDABLE, f"{said or 'no model'}: {MODELS} fresh models have to agree", "anything")
    if all(kind in PASSES for kind in counts):
        kind = max(counts, key=PASSES.index)
    elif len(counts) == 1:
        kind = judgements[0].kind
    else:
        return Verdict(Kind.UNDECIDABLE, f"fresh models disagree: {said}", "anything")
    weakest = next(judgement for judgement in judgements if judgement.kind is kind)
    return Verdict(kind, f"{said}; such as: {weakest.because}", weakest.unseen)


def dtype_name(e: Evidence) -> str:
    """A dtype without torch's prefix."""
    return str(e.dtype).removeprefix("torch.")


def shown(gap: float | None) -> str:
    """A gap as a figure."""
    return "not measured" if gap is None else f"{gap:.1e}"
