"""Evidence for `kvref.verdict`: the same two callables measured in their dtype, in float64, and under exact modes.

The callables are eager PyTorch code that knows nothing of this: a dispatch mode runs it in float64.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from kvref.errors import NotInterceptable, RangeExceeded
from kvref.exactness import exact
from kvref.lens import BITS, relative_gap
from kvref.promote import Promote, promoted
from kvref.protocol import Logits, Tokens
from kvref.verdict import Evidence

Full = Callable[[Tokens], Logits]
"""Logits of every token, without a cache."""

Cached = Callable[[Tokens, Sequence[int]], Logits]
"""Logits of every token, with a cache that is given chunks of these lengths."""

MODES = ("fold", "grid")
"""Exact modes to try until one gives equal bits: fold keeps the dtype's arithmetic, grid forgives any order."""


@dataclass(frozen=True)
class Run:
    """Both ways in one arithmetic."""

    full: Logits
    cached: Logits
    noise: float

    @property
    def gap(self) -> float:
        """How far cached logits are from uncached ones."""
        return relative_gap(self.cached, self.full)


def measure(
    full: Full,
    cached: Cached,
    tokens: Tokens,
    splits: Sequence[int],
    dtype: torch.dtype,
    modes: Sequence[str] = MODES,
) -> Evidence:
    """Measure two callables of a dtype: as they are, in float64, with coarser casts in float64 too, and bit for bit.

    What cannot be measured, since the code insists on a dtype or uses an operator that is not interceptable, is left
    out of the evidence. What the code raises in its own dtype is raised.
    """
    with torch.inference_mode():
        native = run(full, cached, tokens, splits)
        wide, rounded = lifted(full, cached, tokens, splits, promoted(dtype))
        lifted_all, _ = (None, False) if settled(wide) else lifted(full, cached, tokens, splits, promoted(dtype, True))
        ahead = None
        if lifted_all:
            with promoted(dtype, True):
                ahead = sees_ahead(full, tokens)
        bits = compare_bits(full, cached, tokens, splits, modes)
    return Evidence(
        dtype,
        gap=native.gap,
        gap64=wide.gap if wide else None,
        noise64=wide.noise if wide else None,
        noise=native.noise,
        gap_lifted=lifted_all.gap if lifted_all else None,
        noise_lifted=lifted_all.noise if lifted_all else None,
        rho=oracle_ratio(native, wide),
        bits=bits,
        rounded_on_store=rounded,
        ahead=ahead,
    )


def run(full: Full, cached: Cached, tokens: Tokens, splits: Sequence[int], mode: Promote | None = None) -> Run:
    """Run both ways, and prefixes without a cache, under a mode if there is one."""
    with mode or nullcontext():
        whole, stepwise = full(tokens), cached(tokens, splits)
        lengths = sorted({max(tokens.size(1) // 2, 1), max(tokens.size(1) - 1, 1)})
        prefixes = [full(tokens[:, :length]) for length in lengths]
    noise = max(relative_gap(prefix, whole[:, : prefix.size(1)]) for prefix in prefixes)
    return Run(whole, stepwise, noise)


def sees_ahead(full: Full, tokens: Tokens) -> float | None:
    """How far the logits of the first half move where the tokens of the second are others.

    None where the same tokens do not give the same twice. Tokens are 0 or more, so 0 and 1 stand in for each other's.
    """
    half = max(tokens.size(1) // 2, 1)
    others = torch.cat([tokens[:, :half], torch.where(tokens[:, half:] == 0, 1, 0)], dim=1)
    first, again = full(tokens), full(tokens)
    if not first.equal(again):
        return None
    return relative_gap(full(others)[:, :half], first[:, :half])


def lifted(full: Full, cached: Cached, tokens: Tokens, splits: Sequence[int], mode: Promote) -> tuple[Run | None, bool]:
    """Both ways in float64, and whether numbers were rounded on the way; None where the code refuses float64."""
    mode.rounded = False
    try:
        both = run(full, cached, tokens, splits, mode)
    except Exception:  # whatever code raises that looks for its own dtype; it ran before, in that
        return None, mode.rounded
    return (both if both.full.dtype == torch.float64 else None), mode.rounded


def settled(wide: Run | None) -> bool:
    """Whether a gap is so small in float64 that lifting more would tell nothing."""
    return wide is not None and wide.gap <= 1e-14


def compare_bits(
    full: Full, cached: Cached, tokens: Tokens, splits: Sequence[int], modes: Sequence[str]
) -> dict[str, bool]:
    """Whether all bits are equal under each mode, up to the first where they are, without those that cannot be used."""
    bits: dict[str, bool] = {}
    for mode in modes:
        try:
            with exact(mode):
                bits[mode] = same_bits(full(tokens), cached(tokens, splits))
        except (NotInterceptable, RangeExceeded):
            continue
        if bits[mode]:
            break
    return bits


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same bits."""
    bits = BITS[a.dtype.itemsize]
    return a.dtype == b.dtype and a.contiguous().view(bits).equal(b.contiguous().view(bits))


def oracle_ratio(native: Run, wide: Run | None) -> tuple[float, ...]:
    """Errors of cached logits over those of uncached ones, both against float64; nothing where there are none."""
    if wide is None or native.full.dtype == torch.float64:
        return ()
    ours, theirs = (rms(logits.double() - wide.full) for logits in (native.cached, native.full))
    return (ours / theirs,) if theirs else ()


def rms(error: Tensor) -> float:
    """Root of the mean square."""
    return float(error.square().mean().sqrt())
