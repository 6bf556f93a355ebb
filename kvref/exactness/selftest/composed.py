"""Operators composed of products and sums, and those that add into places, through the lens itself."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from kvref.exactness import exact
from kvref.exactness.arithmetic import Times
from kvref.exactness.selftest.numbers import DTYPES, Numbers, elsewhere
from kvref.exactness.selftest.products import LONGEST, ROW, ROWS, row_trials
from kvref.exactness.selftest.trial import Job, Trial, on_threads

MASKED = "what is masked behind changes nothing"
ATTENTION = "a query gets the same whatever other queries, sequences and masked keys there are"
WINDOW = "a window gives the same result in every sequence"
PLACES = "a place depends on the numbers added there, in their order, and on nothing else"

Scatter = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Rows into which to add, the row for each of a source, and that source."""


def slopes(x: Tensor) -> Tensor:
    """A gain for a norm, of as many numbers as a row has."""
    return torch.linspace(0.5, 1.5, x.size(-1), dtype=torch.float64).to(x)


NORMS: dict[str, Times] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], slopes(x), slopes(x) - 1.0),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)[0],
    "native_group_norm": lambda x: F.group_norm(x, 1 + (x.size(-1) % 2 == 0), slopes(x), slopes(x) - 1.0),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], slopes(x)),
    "var_mean": lambda x: torch.cat(torch.var_mean(x, -1, keepdim=True), -1),
}

SOFTMAXES: dict[str, Times] = {
    "_softmax": lambda x: torch.softmax(x, -1),
    "_safe_softmax": lambda x: torch.ops.aten._safe_softmax(x, -1),
    "_log_softmax": lambda x: torch.log_softmax(x, -1),
}

SCATTERS: dict[str, Scatter] = {
    "index_add": lambda x, index, source: torch.index_add(x, 0, index, source, alpha=0.3),
    "scatter_add": lambda x, index, source: torch.scatter_add(x, 0, index[:, None].expand_as(source), source),
    "index_put": lambda x, index, source: torch.index_put(x, (index,), source, accumulate=True),
}


def composed_sums(mode: str, device: torch.device, quick: bool) -> Iterator[Job]:
    """Proofs of the norms, softmax and convolutions, and of sums into places on the CPU, where they are let through."""
    numbers = Numbers(device)
    for name, function in NORMS.items():
        yield name, ROW, norm_trials(partial(under, mode, function), numbers, quick)
    for name, function in SOFTMAXES.items():
        yield name, MASKED, softmax_trials(partial(under, mode, function), numbers, quick)
    name = "scaled_dot_product_attention"
    yield name, ATTENTION, attention_trials(partial(under, mode, F.scaled_dot_product_attention), numbers, quick)
    yield "convolution", WINDOW, convolution_trials(mode, numbers, quick)
    for name, scatter in SCATTERS.items() if device.type == "cpu" else ():
        yield name, PLACES, scatter_trials(partial(under, mode, scatter), numbers, quick)


def under(mode: str, function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """Result under the lens."""
    with exact(mode):
        return function(*operands)


def norm_trials(function: Times, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Rows of some widths in every company."""
    for dtype, width in product(DTYPES, (17, 64) if quick else (5, 16, 17, 64, 257, 768)):
        x = torch.cat([numbers.random(ROWS // 2, width), numbers.spread(ROWS // 2, width)])
        yield from row_trials(function, x.to(dtype), f"{dtype}, width {width}", quick, threaded=not quick)


def softmax_trials(function: Times, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Scores in every company, and with more and more masked behind them."""
    for dtype in DTYPES:
        x = (numbers.random(ROWS, LONGEST) * 4.0).to(dtype)
        yield from row_trials(function, x[:, :77], f"{dtype}, 77 scores", quick, threaded=not quick)
        for length in (1, 17, 65) if quick else range(1, LONGEST + 1):
            want = function(x[:6, :length])
            for masked in (1, 63, LONGEST - length):
                got = function(F.pad(x[:6, :length], (0, masked), value=-torch.inf))
                yield Trial(f"{dtype}, {length} scores and {masked} masked", got[:, :length], want)


def attention_trials(attend: Callable[..., Tensor], numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Queries alone and in chunks, as keys grow, in every layout and company, against one causal pass."""
    lengths = (1, 17, 65, 129) if quick else (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, LONGEST)
    for dtype, head_dim in product(DTYPES, (8, 33) if quick else (5, 8, 64, 80)):
        rows = (numbers.random(6, LONGEST * head_dim) * 2.0).to(dtype).view(3, 2, LONGEST, head_dim)
        q, k, v = rows, rows.roll(1, 0), rows.roll(1, 1).flip(2)
        visible = torch.ones(LONGEST, LONGEST, dtype=torch.bool, device=q.device).tril()
        want = attend(q, k, v, visible)
        for length in lengths:
            where, past = f"{dtype}, head_dim {head_dim}, {length} keys", slice(length)
            keys, values, asked = k[:, :, past], v[:, :, past], want[:, :, past]
            yield Trial(f"{where}, one query", attend(q[:, :, length - 1 : length], keys, values), asked[:, :, -1:])
            mask = visible[past, past]
            yield Trial(f"{where}, all queries", attend(q[:, :, past], keys, values, mask), asked)
            added = torch.zeros(length, length, device=q.device, dtype=dtype).masked_fill(~mask, -torch.inf)
            chunk = q[:, :, length // 2 : length], keys, values, added[length // 2 :]
            yield Trial(f"{where}, half of them, mask added", attend(*chunk), asked[:, :, length // 2 :])
        mask, last, asked = visible[-20:], (q[:, :, -20:], k, v), want[:, :, -20:]
        yield Trial(f"{dtype}, a sequence alone", attend(*(part[1:2] for part in last), mask), asked[1:2])
        yield Trial(f"{dtype}, a head alone", attend(*(part[:, 1:] for part in last), mask), asked[:, 1:])
        yield Trial(f"{dtype}, elsewhere", attend(*(elsewhere(part, 3) for part in last), mask), asked)
        turned = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in last]
        yield Trial(f"{dtype}, heads inside", attend(*turned, mask), asked)


def convolution_trials(mode: str, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Each window alone against the whole sequence, for a convolution of each channel, of groups and of all."""
    for dtype, groups in product(DTYPES, (6, 2, 1)):
        x, bias = numbers.spread(2, 6, 23).to(dtype), numbers.random(6).to(dtype)
        weight = numbers.random(6, 6 // groups, 4).to(dtype)
        convolve = partial(under, mode, partial(F.conv1d, weight=weight, bias=bias, groups=groups))
        want = convolve(x)
        for place in range(0, want.size(2), 7 if quick else 1):
            got = convolve(x[:, :, place : place + 4])
            yield Trial(f"{dtype}, {groups} groups, window {place}", got, want[:, :, place : place + 1])


def scatter_trials(add: Scatter, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Each place alone against all of them; torch starts threads beyond 32768 numbers."""
    sizes = ((40, 3),) if quick else ((40, 1), (40, 3), (700, 64), (40000, 1))
    for dtype, (count, width) in product(DTYPES, sizes):
        index = numbers.whole(count, largest=6, signed=False)
        x, source = numbers.spread(7, width).to(dtype), numbers.spread(count, width).to(dtype)
        where, want = f"{dtype}, {count} x {width}", add(x, index, source)
        for place in range(len(x)):
            own, kept = index == place, slice(place, place + 1)
            alone = add(x[kept], index[own] * 0, source[own])
            yield Trial(f"{where}, place {place} alone", alone, want[kept])
            among = add(x, index, source.masked_fill(~own[:, None], torch.nan))
            yield Trial(f"{where}, place {place} among NaN", among[kept], want[kept])
        order = index.argsort(stable=True)
        yield Trial(f"{where}, by places", add(x, index[order], source[order]), want)
        yield Trial(f"{where}, a column alone", add(x[:, -1:], index, source[:, -1:]), want[:, -1:])
        yield from on_threads(where, lambda x=x, index=index, source=source: add(x, index, source), want)
