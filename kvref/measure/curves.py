"""Samples put together: seconds of each way by position, and ratios of pairs with their spread."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kvref.measure.growth import Fit, Spread, fit_exponent, fit_slope
from kvref.measure.samples import NAIVE, Sample

WINDOW = 5
"""Steps of a cached way up to a position, of which the median stands for it."""

By = dict[str, dict[int, dict[int, float]]]


@dataclass(frozen=True)
class Curves:
    """Seconds for a token by way, position and repeat, of one subject and batch.

    The positions are those at which the naive way was timed. What a cached way takes there is the median of its last
    steps up to it, for single steps are disturbed by whatever else the machine does. `upto` are the seconds of all its
    steps from the prompt on.
    """

    subject: str
    batch: int
    prompt: int
    token: By
    upto: By
    prefill: dict[str, list[float]]

    @property
    def ways(self) -> list[str]:
        """The ways, in the order in which they are shown: the naive one first."""
        return [NAIVE, *(way for way in self.token if way != NAIVE)]

    @property
    def positions(self) -> list[int]:
        """Positions at which there is a time for every way, in one repeat at least."""
        shared = set[int].intersection(*(set(self.token.get(way, {})) for way in self.ways))
        return sorted(shared)

    def at(self, way: str, position: int) -> Spread:
        """Seconds of a token over the repeats."""
        return Spread.of(list(self.token[way][position].values()))

    def ratio(self, over: str, under: str, position: int) -> Spread:
        """How many times as long a way takes as another, in pairs of one repeat."""
        left, right = self.token[over][position], self.token[under][position]
        return Spread.of([left[repeat] / right[repeat] for repeat in left if repeat in right])

    def whole(self, way: str) -> dict[int, float]:
        """Seconds for all tokens behind the prompt up to the last position, by repeat.

        Of a cached way every step counts; the naive way is on straight lines between the positions of its samples.
        """
        repeats = set[int].intersection(*(set(self.token[way][position]) for position in self.positions))
        return {repeat: self.area(way, repeat) for repeat in sorted(repeats)}

    def area(self, way: str, repeat: int) -> float:
        """Seconds of a whole sequence in one repeat."""
        if way != NAIVE:
            return self.upto[way][self.positions[-1]][repeat]
        known = [(place, self.token[way][place][repeat]) for place in self.positions]
        begin = (self.prompt, known[0][1])
        return sum(between(left, right) for left, right in pairwise([begin, *known]))

    def whole_ratio(self, over: str, under: str) -> Spread:
        """How many times as long a way takes for the whole sequence, in pairs of one repeat."""
        left, right = self.whole(over), self.whole(under)
        return Spread.of([left[repeat] / right[repeat] for repeat in left if repeat in right])

    def slope(self, way: str) -> Fit:
        """Seconds that a token takes more for each token before it."""
        return fit_slope(*self.points(way))

    def exponent(self, way: str) -> Fit:
        """Exponent of the seconds for a token, by its position."""
        return fit_exponent(*self.points(way))

    def points(self, way: str) -> tuple[list[float], list[float]]:
        """Positions and the median seconds there."""
        return [float(at) for at in self.positions], [self.at(way, at).middle for at in self.positions]


def between(left: tuple[int, float], right: tuple[int, float]) -> float:
    """Seconds of the tokens behind one position up to another, on a straight line."""
    (before, first), (at, last) = left, right
    return sum(first + (last - first) * (place - before) / (at - before) for place in range(before + 1, at + 1))


def curves(samples: Sequence[Sample]) -> Curves:
    """Put the samples of one subject and batch together."""
    token: By = defaultdict(lambda: defaultdict(dict))
    upto: By = defaultdict(lambda: defaultdict(dict))
    steps: dict[tuple[str, int], list[float]] = defaultdict(list)
    prefill: dict[str, list[float]] = defaultdict(list)
    prompt = 0
    for sample in samples:
        if sample.what == "prefill":
            prompt = sample.position
            for way, seconds in sample.seconds.items():
                prefill[way].append(seconds)
        if sample.what != "token":
            continue
        for way, seconds in sample.seconds.items():
            steps[way, sample.repeat].append(seconds)
        if NAIVE in sample.seconds:
            for way in sample.seconds:
                done = steps[way, sample.repeat]
                token[way][sample.position][sample.repeat] = done[-1] if way == NAIVE else median(done[-WINDOW:])
                upto[way][sample.position][sample.repeat] = sum(done)
    return Curves(samples[0].subject, samples[0].batch, prompt, token, upto, prefill)
