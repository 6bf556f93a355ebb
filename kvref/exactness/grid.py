"""Grid: operands are rounded to a dyadic grid, so that every sum is exact, whatever kernel adds it up.

Products of whole numbers are whole numbers, and float64 adds whole numbers below 2**53 without rounding: in any order,
in any split, with any padding, on any device. So the sum depends on what is summed alone. It rests on IEEE additions
and multiplications in float64, and on nothing that a kernel decides. What lies between two points of the grid is not
seen, which is the price.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.errors import RangeExceeded
from kvref.exactness.arithmetic import Arithmetic, Times

EXACT = 2.0**53
"""Whole numbers up to here are float64 numbers."""

STEPS = 2.0**15
"""Points of the grid in a unit, for what is multiplied."""

WEIGHT_STEPS = 2.0**19
"""Points of a weight's grid up to its largest number. A weight stays what it is, so its grid may go by its size."""

SUM_STEPS = 2.0**24
"""Points of the grid in a unit, for what is only summed."""


class Grid(Arithmetic):
    """Rounded operands, exact sums."""

    name = "grid"

    def __init__(self) -> None:
        super().__init__()
        self.peaks: list[Tensor] = []

    @override
    def wide(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float64

    @override
    def times(self, weight: Float[Tensor, "out k"]) -> Times:
        weight = weight.double()
        # Once rounded, a power of two times it is whole numbers of at most `WEIGHT_STEPS`.
        weight = rounded(weight, WEIGHT_STEPS / power_of_two_above(weight)).t()

        def product(x: Tensor) -> Tensor:
            x = rounded(x.double(), STEPS)
            self.note(x.size(-1) * STEPS * WEIGHT_STEPS, x)
            return x @ weight

        return product

    @override
    def bmm(self, a: Float[Tensor, "batch m k"], b: Float[Tensor, "batch k n"]) -> Float[Tensor, "batch m n"]:
        a, b = rounded(a.double(), STEPS), rounded(b.double(), STEPS)
        self.note(a.size(-1) * STEPS * STEPS, a, b)
        return torch.bmm(a, b)

    @override
    def total(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows 1"]:
        x = rounded(x.double(), SUM_STEPS)
        self.note(x.size(-1) * SUM_STEPS, x)
        return x.sum(-1, keepdim=True)

    @override
    def running(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows n"]:
        x = rounded(x.double(), SUM_STEPS)
        self.note(x.size(-1) * SUM_STEPS, x)
        return x.cumsum(-1)

    def note(self, scale: float, *operands: Tensor) -> None:
        """Keep how large a sum of these may be, in points of the grid, for `check`."""
        if all(operand.numel() for operand in operands):
            peaks = [torch.where(operand.isfinite(), operand, 0.0).abs().amax() for operand in operands]
            self.peaks.append(torch.stack(peaks).prod() * scale)

    @override
    def check(self) -> None:
        """Raise `RangeExceeded` if a sum may have gone beyond 2**53 points of its grid since the last check."""
        peaks, self.peaks = self.peaks, []
        if peaks and (largest := float(torch.stack(peaks).amax())) > EXACT:
            raise RangeExceeded(
                f"numbers are too large for the grid: a sum may reach {largest / EXACT:.3g} times 2**53 of its points; "
                'use exact("fold")'
            )

    @override
    def forget(self) -> None:
        self.peaks.clear()


def rounded(x: Tensor, steps: float) -> Tensor:
    """The nearest point of the grid; ties go to even."""
    return x.mul(steps).round_().div_(steps)


def power_of_two_above(x: Tensor) -> float:
    """The least power of two that no number is larger than; 1 where all are zero."""
    largest = float(x.abs().amax()) if x.numel() else 0.0
    return float(2.0 ** torch.tensor(largest, dtype=torch.float64).log2().ceil()) if 0.0 < largest < torch.inf else 1.0
