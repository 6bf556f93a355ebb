"""When two results count as the same.

A lens is the numerics that a schedule runs under, and what is asked of two results there. Ordinary kernels sum in
another order for one row than for forty, so under them equal values come out some units in the last place apart: below
1e-12 of the largest in float64 at the sizes tried here, while the least that a bug of the catalogue does is above 1e-3.
The bound between, 1e-10, is a stopgap: numerics under which nothing is rounded differently need none.
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


BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Integers that are as wide as floats of so many bytes."""


def gaps(got: Float[Tensor, "*shape n"], want: Float[Tensor, "*shape n"]) -> Float[Tensor, "*shape"]:
    """How far each vector is from the one wanted: its largest difference over its largest wanted size.

    Infinities that are wanted and are there are no difference; any other value that is not finite is an infinite one.
    The size of a vector that is a millionth of the largest, or less, counts as that much: it is what is left of larger
    numbers that cancelled, and its rounding is theirs.
    """
    if not want.numel():
        return want.new_zeros(want.shape[:-1])
    same = got == want
    difference = torch.where(same, 0.0, (got - want).abs())
    finite = torch.where(want.isfinite(), want.abs(), 0.0).amax(dim=-1)
    scale = finite.clamp_min(max(1e-6 * float(finite.amax()), torch.finfo(want.dtype).tiny))
    return torch.where(difference.isfinite(), difference / scale[..., None], torch.inf).amax(dim=-1)


def differs(got: Float[Tensor, "*shape n"], want: Float[Tensor, "*shape n"], lens: Lens) -> Bool[Tensor, "*shape"]:
    """Which vectors differ under a lens: by more than its bound, or in any bit where the bound is 0."""
    if lens.bound:
        return gaps(got, want) > lens.bound
    bits = BITS[want.dtype.itemsize]
    return (got.contiguous().view(bits) != want.contiguous().view(bits)).any(dim=-1)
