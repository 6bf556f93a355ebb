"""A lens: the numerics that a schedule runs under, and when two results count as the same there.

Under an exact lens (`kvref.exactness`) equal means the same bits. Ordinary kernels sum in another order for one row
than for forty, so that equal values come out some units in the last place apart; there a bound decides, and what it
rests on is in `kvref.verdict`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from kvref.errors import BadInput
from kvref.exactness import MODES, exact
from kvref.promote import promoted

LIFTED = ("promoted", "lifted")
"""Names of the lenses under which ordinary kernels run in float64."""


@dataclass(frozen=True)
class Lens:
    """Numerics, for decoders of a dtype, and the bound that goes with them. A bound of 0 asks for the same bits.

    Names: `tile`, `grid` and `fold` are exact; `native` runs the ordinary kernels; `promoted` runs them in float64,
    whatever the decoder's dtype; and `lifted` does so with every cast to a narrower dtype taken away too.
    """

    name: str
    dtype: torch.dtype
    bound: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether results do not depend on kernels."""
        return self.name in MODES

    def numerics(self) -> AbstractContextManager[object]:
        """Context in which decoders run."""
        if self.exact:
            return exact(self.name)
        if self.name in LIFTED:
            return promoted(self.dtype, narrower=self.name == "lifted")
        return nullcontext()

    def stored(self, dtype: torch.dtype) -> torch.dtype:
        """Dtype in which a decoder that stores in one dtype does so under this lens."""
        return torch.float64 if self.name in LIFTED and dtype == self.dtype else dtype

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.name} {dtype}" + (f", bound {self.bound:g}" if self.bound else "")


NATIVE = Lens("native", torch.float64, 1e-10)
"""Ordinary kernels in float64, where rounding stays below 1e-12 at tiny sizes."""

NAMES = (*MODES, "float64")
"""Lenses that can be asked for."""


DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
}
"""Dtypes that decoders are tested in, by name."""


def dtypes_called(names: Sequence[str]) -> tuple[torch.dtype, ...]:
    """Dtypes by name, each once; raise `BadInput` for a name that is not in `DTYPES`."""
    for name in names:
        if name not in DTYPES:
            raise BadInput(f"there is no dtype {name!r} to test in; there are {', '.join(DTYPES)}")
    return tuple(DTYPES[name] for name in dict.fromkeys(names))


def lens_called(name: str, dtype: torch.dtype) -> Lens:
    """The lens of a name in `NAMES` for decoders of a dtype; raise `BadInput` for another name."""
    if name not in NAMES:
        raise BadInput(f"there is no lens {name!r}; there are {', '.join(NAMES)}")
    return Lens("promoted", dtype, NATIVE.bound) if name == "float64" else Lens(name, dtype)


SAME_BITS = Lens("same bits", torch.float64)
"""For what is copied, never computed again."""


BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
"""Integers that are as wide as floats of so many bytes."""


def gaps(got: Float[Tensor, "*shape n"], want: Float[Tensor, "*shape n"]) -> Float[Tensor, "*shape"]:
    """How far each vector is from the one wanted: its largest difference over its largest wanted size.

    Infinities that are wanted and are there are no difference; any other value that is not finite is an infinite one.
    The size of a vector that is a millionth of the largest, or less, counts as that much: it is what is left of larger
    numbers that cancelled, and its rounding is theirs.
    """
    got, want = got.double(), want.double()
    if not want.numel():
        return want.new_zeros(want.shape[:-1])
    same = got == want
    difference = torch.where(same, 0.0, (got - want).abs())
    finite = torch.where(want.isfinite(), want.abs(), 0.0).amax(dim=-1)
    scale = finite.clamp_min(max(1e-6 * float(finite.amax()), torch.finfo(want.dtype).tiny))
    return torch.where(difference.isfinite(), difference / scale[..., None], torch.inf).amax(dim=-1)


def relative_gap(got: Float[Tensor, "*shape"], want: Float[Tensor, "*shape"]) -> float:
    """The largest difference over the largest number wanted; infinite where something is not finite on one side alone.

    Infinities that are wanted and are there are no difference; NaN is one even from itself.
    """
    if not want.numel():
        return 0.0
    got, want = got.double(), want.double()
    difference = torch.where(got == want, 0.0, (got - want).abs())
    if not bool(difference.isfinite().all()):
        return float("inf")
    largest = float(torch.where(want.isfinite(), want.abs(), 0.0).amax())
    return float(difference.amax()) / (largest or 1.0)


def differs(got: Float[Tensor, "*shape n"], want: Float[Tensor, "*shape n"], lens: Lens) -> Bool[Tensor, "*shape"]:
    """Which vectors differ under a lens: by more than its bound, or in any bit where the bound is 0."""
    if lens.bound:
        return gaps(got, want) > lens.bound
    bits = BITS[want.dtype.itemsize]
    return (got.contiguous().view(bits) != want.contiguous().view(bits)).any(dim=-1)
