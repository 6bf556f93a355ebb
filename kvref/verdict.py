"""When two results count as the same.

A lens is the numerics that a schedule runs under, and what is asked of two results there. Ordinary kernels sum in
another order for one row than for forty, so under them equal values come out a few units in the last place apart;
float64 with a relative bound of 1e-10 leaves four decades above that, and every bug of the catalogue is far beyond.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Lens:
    """Numerics and the bound that goes with them. A bound of 0 asks for the same bits."""

    name: str
    dtype: torch.dtype
    bound: float

    def numerics(self) -> AbstractContextManager[object]:
        """Context in which decoders run; here the ordinary kernels."""
        return nullcontext()

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}, {self.name} {self.bound:g}"


NATIVE = Lens("relative bound", torch.float64, 1e-10)
"""Ordinary kernels in float64."""

SAME_BITS = Lens("same bits, bound", torch.float64, 0.0)
"""For what is copied, never computed again."""


def gaps(got: Float[Tensor, "*shape n"], want: Float[Tensor, "*shape n"]) -> Float[Tensor, "*shape"]:
    """How far each vector is from the one wanted: largest difference over the largest wanted size of all.

    Infinite where either is not finite, unless both are the same bits there.
    """
    scale = want.abs().amax().clamp_min(torch.finfo(want.dtype).tiny)
    gap = (got - want).abs().amax(dim=-1) / scale
    return torch.where((got == want).all(dim=-1), 0.0, torch.where(gap.isfinite(), gap, torch.inf))


def differs(got: Float[Tensor, "*shape n"], want: Float[Tensor, "*shape n"], lens: Lens) -> Bool[Tensor, "*shape"]:
    """Which vectors differ under a lens."""
    return gaps(got, want) > lens.bound
