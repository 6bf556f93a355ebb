"""What was measured, in lines: ratios first, each with its spread, then seconds, growth and limits."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from kvref.measure.curves import Curves
from kvref.measure.formulas import flops
from kvref.measure.growth import Spread
from kvref.measure.limits import Limits
from kvref.measure.samples import NAIVE, Sample
from kvref.measure.subjects import Subject

NARROW = 12
"""Positions in a table, at most."""


def ratio(over: str, under: str, spread: Spread) -> str:
    """A ratio with its spread over the repeats."""
    return f"{f'{over} / {under}':32} {spread.middle:7.2f}   [{spread.low:.2f}, {spread.high:.2f}]"


def pairs(ways: Sequence[str]) -> list[tuple[str, str]]:
    """Which ways are compared: the naive one with each, and each cache with the next."""
    cached = [way for way in ways if way != NAIVE]
    return [*((NAIVE, way) for way in cached), *pairwise(cached)]


def summary(curves: Curves) -> Iterator[str]:
    """Everything about one subject and batch; nothing where no position was timed in every way."""
    if not (places := curves.positions):
        return
    last = places[-1]
    yield f"how many times as long the token behind {last} takes [lowest, highest]"
    for over, under in pairs(curves.ways):
        yield "  " + ratio(over, under, curves.ratio(over, under, last))
    if last > curves.prompt + 1:
        yield f"and all tokens from {curves.prompt + 1} to {last}, one by one"
        for over, under in pairs(curves.ways):
            yield "  " + ratio(over, under, curves.whole_ratio(over, under))
    yield from table(curves)
    yield from phases(curves)
    yield from growth(curves)


def table(curves: Curves) -> Iterator[str]:
    """Milliseconds by position."""
    places = curves.positions
    shown = places[:: -(-len(places) // NARROW)]
    yield f"{'tokens':>8}" + "".join(f"{way:>16.16}" for way in curves.ways) + "   ms for the next token"
    for place in [*shown, *({places[-1]} - set(shown))]:
        yield f"{place:8}" + "".join(f"{1000 * curves.at(way, place).middle:16.3f}" for way in curves.ways)


def phases(curves: Curves) -> Iterator[str]:
    """Prefill and decode apart."""
    cached = [way for way in curves.ways if way != NAIVE]
    first = ", ".join(f"{way} {1000 * median(curves.prefill[way]):.1f} ms" for way in curves.ways)
    yield f"time to the first token, behind a prompt of {curves.prompt}: {first}"
    places = curves.positions
    tokens = (places[-1] - curves.prompt) * curves.batch
    speeds = ", ".join(f"{way} {tokens / median(curves.whole(way).values()):.1f}" for way in cached)
    yield f"tokens a second in decode, of {'all rows' if curves.batch > 1 else 'one row'}: {speeds}"


def growth(curves: Curves) -> Iterator[str]:
    """How the time for a token grows with its position, where there are positions enough to fit it."""
    if len(curves.positions) < 3:
        return
    for way in curves.ways:
        slope, exponent = curves.slope(way), curves.exponent(way)
        yield (
            f"growth {way:20.20} +{1e5 * slope.value:.3f} ms per 100 tokens "
            f"[{1e5 * slope.low:.3f}, {1e5 * slope.high:.3f}], position^{exponent}"
        ).replace("+-", "-")


def limits(curves: Curves, subject: Subject, most: Limits) -> Iterator[str]:
    """How near each cached way is to the bytes that it has to read, and what these limits say of the ratio."""
    yield f"limits measured here: {most.bytes_per_second / 1e9:.1f} GB/s, {most.flops_per_second / 1e9:.0f} GFLOP/s"
    if not (places := curves.positions) or (read := subject.read_bytes(curves.batch, places[-1] - 1)) is None:
        return
    last = places[-1]
    of_what = "" if subject.config else " of weights"
    for way in (way for way in curves.ways if way != NAIVE):
        share = read / most.bytes_per_second / curves.at(way, last).middle
        yield f"  {way}: {read / 1e6:.1f} MB{of_what} to read for a token behind {last}, {share:.0%} of the bandwidth"
    if subject.config is not None:
        naive = most.seconds(read, flops(subject.config, last, 0, curves.batch).total)
        cached = most.seconds(read, flops(subject.config, 1, last - 1, curves.batch).total)
        least = f"naive {1000 * naive:.2f} ms, cached {1000 * cached:.2f} ms"
        yield f"  by these limits alone, a token behind {last} takes {least}: {naive / cached:.1f} times"


def generations(samples: Sequence[Sample], reference: str, asked: Sequence[str]) -> Iterator[str]:
    """Whole generations against the reference's, in pairs, of those ways of all that give the same tokens."""
    runs = [sample for sample in samples if sample.what == "generate"]
    if not runs:
        return
    yield f"how many times as long `generate` up to {runs[0].position} tokens takes [lowest, highest]"
    for way in runs[0].seconds:
        if way != reference:
            spread = Spread.of([run.seconds[way] / run.seconds[reference] for run in runs])
            yield "  " + ratio(way, reference, spread)
    for way in asked:
        if way not in runs[0].seconds:
            yield f"  {way} is not compared: it gives other tokens"
    middle = median(run.seconds[reference] for run in runs)
    yield f"  {reference}: {middle:.2f} s, batch {runs[0].batch}"
