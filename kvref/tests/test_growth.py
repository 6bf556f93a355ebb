"""Exponents, slopes and their intervals."""

import random

import pytest

from kvref.errors import BadInput
from kvref.measure.growth import Spread, fit_exponent, fit_slope, student


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
def test_an_exact_power_is_found(exponent: float) -> None:
    xs = [1.0, 2.0, 5.0, 20.0]
    fit = fit_exponent(xs, [7.0 * x**exponent for x in xs])
    assert fit.value == pytest.approx(exponent)
    assert fit.high - fit.low < 1e-6


@pytest.mark.parametrize(("freedom", "table"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (120, 1.980)])
def test_the_quantiles_are_those_of_the_tables(freedom: int, table: float) -> None:
    assert student(freedom) == pytest.approx(table, abs=2e-3)


def test_the_interval_holds_the_slope_about_as_often_as_it_says() -> None:
    draws = random.Random(0)
    xs = [float(x) for x in range(8)]
    inside = 0
    for _ in range(2000):
        fit = fit_slope(xs, [3.0 + 0.5 * x + draws.gauss(0.0, 1.0) for x in xs])
        inside += fit.low <= 0.5 <= fit.high
    assert 0.935 < inside / 2000 < 0.965


@pytest.mark.parametrize("xs", [[1.0, 2.0], [4.0, 4.0, 4.0]])
def test_too_few_places_are_refused(xs: list[float]) -> None:
    with pytest.raises(BadInput, match="give at least 3"):
        fit_slope(xs, [1.0] * len(xs))


def test_what_has_no_logarithm_is_refused() -> None:
    with pytest.raises(BadInput, match="positive"):
        fit_exponent([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])


def test_a_spread_is_the_median_and_the_ends() -> None:
    assert Spread.of([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)
