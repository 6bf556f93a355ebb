"""The article's figures from this machine: its claims, each beside what was counted or measured here.

"The KV Cache: Build It, Break It, Measure It" times GPT-2 small on one T4, and saw 1.4 to 3.2 times from its cache.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from kvref.config import GPTConfig
from kvref.measure import formulas
from kvref.measure.bill import article_lines
from kvref.measure.counted import is_view
from kvref.measure.curves import Curves
from kvref.measure.growth import Spread
from kvref.measure.limits import Limits
from kvref.measure.samples import NAIVE
from kvref.weights import loud

SHAPE = GPTConfig()
"""The model of the article, GPT-2 small."""

T4 = Limits(bytes_per_second=320e9, flops_per_second=8.1e12)
"""What the data sheet of the article's GPU says of float32, not measured here."""

CALL = 10.0
"""Microseconds that an operator costs its caller, an assumption about that machine."""

GAIN = 1.4, 3.2
"""Times that the article's cache was faster for whole generations."""


def claims(curves: Curves) -> Iterator[str]:
    """The claims that a run of GPT-2 small can speak of; nothing where it was stopped before any position was timed."""
    if not (places := curves.positions):
        return
    last, cached = places[-1], [way for way in curves.ways if way != NAIVE]
    yield "the article's claims, and what is seen here"
    yield "  without a cache the time for a token rises, with one it is flat"
    for way in curves.ways:
        ends = Spread.of([curves.at(way, last).middle / curves.at(way, places[0]).middle])
        yield f"    {way}: at {last} tokens {ends.middle:.2f} times that at {places[0]}"
    yield f"  a cache makes a generation {GAIN[0]} to {GAIN[1]} times as fast (a T4)"
    for way in cached:
        whole = curves.whole_ratio(NAIVE, way)
        yield f"    {way}: {whole.middle:.2f} [{whole.low:.2f}, {whole.high:.2f}] up to {last} tokens"
    yield from origin(last)
    yield f"  the bill of {last} tokens, by formulas that `kvref measure bill` counts"
    yield from (f"    {line}" for line in article_lines(SHAPE, last))


def origin(last: int) -> Iterator[str]:
    """Where the article's number comes from: what a T4's limits allow at most, and how many kernels are launched."""
    read = formulas.read_bytes(SHAPE, last - 1, torch.float32)
    naive = T4.seconds(read, formulas.flops(SHAPE, last).total)
    cached = T4.seconds(read, formulas.flops(SHAPE, 1, last - 1).total)
    yield f"  why no more there: by a T4's data sheet, a token behind {last} takes at least"
    least = f"{1000 * naive:.1f} ms without a cache and {1000 * cached:.1f} ms with one"
    yield f"    {least}, {naive / cached:.1f} times as long; but a pass calls"
    calls = kernels()
    yield f"    {calls} operators however short it is: at {CALL:.0f} us each, {calls * CALL / 1000:.1f} ms of both"


@cache
def kernels() -> int:
    """Operators in a decode step of GPT-2 small that compute or move something; their number goes by layers alone."""
    model = loud(GPTConfig(block_size=8, vocab_size=8, n_layer=SHAPE.n_layer, n_head=SHAPE.n_head, n_embd=SHAPE.n_head))
    token = torch.zeros(1, 1, dtype=torch.long)
    with torch.inference_mode():
        past = model(token)[1]
        with Calls() as calls:
            model(token, past)
    return calls.count


class Calls(TorchDispatchMode):
    """Counts operators that are no views."""

    count = 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        self.count += not is_view(func)
        return func(*args, **(kwargs or {}))
