"""What is measured: one pass, or one whole generation, timed in several ways right after each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NAIVE = "naive"
"""The way without a cache: the whole prefix in one pass."""

What = Literal["prefill", "token", "generate"]


@dataclass(frozen=True)
class Sample:
    """Seconds of one thing in every way that it was done, of one repeat: a pair, for ratios between ways.

    A `prefill` is a pass over a prompt of `position` tokens; a `token` the pass that gives the logits behind `position`
    tokens, of which a cached way runs the last alone; `generate` adds tokens to a prompt, up to `position` in all.
    """

    subject: str
    batch: int
    repeat: int
    what: What
    position: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Setting:
    """What is run: `prompt` tokens at once, the others one by one, up to `tokens` in all, so many times.

    The naive way is timed at `positions` alone, since its passes are long; cached ways at each.
    """

    prompt: int
    tokens: int
    positions: tuple[int, ...]
    repeats: int


def spaced(first: int, last: int, places: int) -> tuple[int, ...]:
    """So many positions from the first to the last, as evenly as whole numbers can be, each once; one is the last."""
    if places == 1:
        return (last,)
    steps = places - 1
    return tuple(dict.fromkeys(first + round(step * (last - first) / steps) for step in range(steps + 1)))
