"""How something grows: fitted exponents and slopes with intervals, and the spread of repeated measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from kvref.errors import BadInput

CONFIDENCE = 0.95
"""How often an interval should hold what it is about."""

STEP = 1e-3
"""Step of the integral that Student's quantile is found by."""


@dataclass(frozen=True)
class Fit:
    """Something fitted, and the interval that it is in with a confidence of 95%."""

    value: float
    low: float
    high: float

    @property
    def exponent(self) -> float:
        """The value, where it is an exponent."""
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Spread:
    """Repeats of one measurement: their median, the lowest and the highest."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Spread of at least one value."""
        return cls(median(values), min(values), max(values))


def fit_exponent(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """Exponent e of y = c * x^e, by least squares on the logarithms, with Student's interval for independent errors.

    Raises `BadInput` for fewer than three points, or numbers that have no logarithm.
    """
    if not all(value > 0 for value in (*xs, *ys)):
        raise BadInput("growth can be fitted to positive numbers alone")
    return fit_slope([math.log(x) for x in xs], [math.log(y) for y in ys])


def fit_slope(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """Slope b of y = a + b * x by least squares, with Student's interval for independent errors.

    Raises `BadInput` for fewer than three points, or where all x are the same.
    """
    if len(xs) < 3 or len(set(xs)) < 2:
        raise BadInput(f"growth cannot be fitted to {len(set(xs))} places; give at least 3")
    middle, level = fmean(xs), fmean(ys)
    squares = sum((x - middle) ** 2 for x in xs)
    slope = sum((x - middle) * (y - level) for x, y in zip(xs, ys, strict=True)) / squares
    left = sum((y - level - slope * (x - middle)) ** 2 for x, y in zip(xs, ys, strict=True))
    freedom = len(xs) - 2
    margin = student(freedom) * math.sqrt(left / freedom / squares)
    return Fit(slope, slope - margin, slope + margin)


def student(freedom: int) -> float:
    """Two-sided quantile of Student's distribution at 95%, for so many degrees of freedom."""
    log_norm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    inside, at = 0.0, 0.0
    while inside < CONFIDENCE / 2:
        between = at + STEP / 2
        inside += STEP * math.exp(log_norm - (freedom + 1) / 2 * math.log1p(between**2 / freedom))
        at += STEP
    return at
