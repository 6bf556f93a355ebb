"""Products and sums of an arithmetic: in every company, at every place, and as what they sum over grows."""

from collections.abc import Iterable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvref.exactness import MODES, tile
from kvref.exactness.arithmetic import Arithmetic, Times
from kvref.exactness.selftest.numbers import DTYPES, KINDS, Numbers, data, elsewhere
from kvref.exactness.selftest.trial import Job, Trial, on_threads

ROW = "a row gives the same result at every place, among any neighbours"
BATCH = "a row and a column give the same product at every place, and zeros behind change nothing"
SUM = "a sum is the same at every place, and zeros behind change nothing"

ROWS = 40
"""Rows in a trial: more than two tiles, and not whole ones."""

LONGEST = 200
"""Numbers in a sum up to which every length is tried."""

SHAPES = ((17, 33), (64, 48))
MORE_SHAPES = ((1, 1), (63, 5), (16, 16), (64, 192), (5, 9), (31, 48), (100, 57), (128, 16), (256, 255))
LARGE_SHAPES = ((256, 256), (257, 259))
GPT2_SHAPES = ((768, 2304), (768, 768), (768, 3072), (3072, 768))
VOCABULARY = (768, 50257)
"""Inputs and outputs of weights."""

BATCHES = ((3, 17, 8, 20), (2, 3, 65, 5))
MORE_BATCHES = ((12, 17, 64, 77), (4, 33, 130, 16), (1, 5, 7, 130), (24, 2, 80, 100))
"""Batches, rows, what is summed over, and columns."""


def sums_of_products(mode: str, device: torch.device, quick: bool) -> Iterator[Job]:
    """Proofs of the products and sums of a mode's arithmetic."""
    arithmetic, numbers = MODES[mode](), Numbers(device)
    tiled = mode == "tile" and device.type == "cpu"
    yield "mm", ROW, weight_trials(arithmetic, numbers, SHAPES if quick else SHAPES + MORE_SHAPES, DTYPES, quick)
    if mode == "tile":
        name = "mkldnn._linear_pointwise" if tiled else "mm of large weights"
        yield name, ROW, large_weights(arithmetic, numbers, quick)
    yield "bmm", BATCH, bmm_trials(arithmetic, numbers, quick)
    yield "cumsum" if tiled else "sum", SUM, sum_trials(arithmetic.total, numbers, quick)
    yield "running sum", SUM, row_sums(arithmetic.running, numbers, quick)


def row_trials(times: Times, x: Tensor, where: str, quick: bool, threaded: bool = False) -> Iterator[Trial]:
    """Rows as they come out of `times` together, against every other company, place and layout.

    Less is tried of narrow numbers, whose sums are those of float32.
    """
    quick, want = quick or x.dtype.itemsize == 2, times(x)
    for count in (2, 17, ROWS) if quick else range(1, ROWS + 1):
        yield Trial(f"{where}, the first {count} rows", times(x[:count]), want[:count])
    for row in range(2 if quick else 5):
        yield Trial(f"{where}, row {row} alone", times(x[row : row + 1]), want[row : row + 1])
    for shift in (11,) if quick else (1, 2, 3, 5, 11):
        yield Trial(f"{where}, rows moved on by {shift}", times(x.roll(shift, 0)), want.roll(shift, 0))
    yield Trial(f"{where}, rows thrice", times(x.repeat(3, 1)), want.repeat(3, 1))
    for filling, place in product((0.0, torch.inf, torch.nan), (0, 13) if quick else range(tile.ROWS)):
        rows = x.new_full((tile.ROWS, x.size(1)), filling)
        rows[place] = x[place]
        yield Trial(f"{where}, at place {place} among {filling:g}", times(rows)[place], want[place])
    for gap in (1,) if quick else (*range(1, 18, 2), 16):
        yield Trial(f"{where}, {gap} numbers into memory", times(elsewhere(x, gap)), want)
        yield Trial(f"{where}, rows {gap} apart", times(F.pad(x, (0, gap))[:, : x.size(1)]), want)
    yield Trial(f"{where}, turned in memory", times(x.t().contiguous().t()), want)
    yield Trial(f"{where}, every other row", times(x.repeat_interleave(2, 0)[::2]), want)
    if threaded:
        yield from on_threads(where, lambda: times(x), want)


def large_weights(arithmetic: Arithmetic, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Trials of weights that go through oneDNN, and of those of GPT-2 in every way they are multiplied."""
    kinds = KINDS[1:]
    if quick:
        yield from weight_trials(arithmetic, numbers, LARGE_SHAPES, (torch.float32,), True, kinds)
        return
    yield from weight_trials(arithmetic, numbers, LARGE_SHAPES, (torch.float32, torch.bfloat16), False)
    yield from weight_trials(arithmetic, numbers, GPT2_SHAPES, (torch.float64, torch.float32), True, kinds)
    yield from weight_trials(arithmetic, numbers, (VOCABULARY,), (torch.float32,), True, kinds[1:])


def weight_trials(
    arithmetic: Arithmetic,
    numbers: Numbers,
    shapes: Iterable[tuple[int, int]],
    dtypes: Iterable[torch.dtype],
    quick: bool,
    kinds: Iterable[str] = KINDS,
) -> Iterator[Trial]:
    """Products of rows with weights; threads, which take long, are tried on the most telling numbers of large ones."""
    for dtype, (k, out) in product(dtypes, shapes):
        for kind, x, weight in data(numbers, ROWS, k, out, dtype, kinds):
            where = f"{dtype}, {k} to {out}, {kind}"
            times = arithmetic.times(weight)
            threaded = kind == "probes" and (not quick or weight.numel() >= tile.LARGE)
            yield from row_trials(times, x, where, quick, threaded)
            want = times(x)
            yield Trial(f"{where}, weight 1 number into memory", arithmetic.times(elsewhere(weight, 1))(x), want)
            if weight.numel() <= tile.LARGE:
                turned = nn.Parameter(weight.t().contiguous())
                yield Trial(f"{where}, a parameter", arithmetic.linear(x, nn.Parameter(weight)), want)
                yield Trial(f"{where}, a parameter turned", arithmetic.right(x, turned), want)


def bmm_trials(arithmetic: Arithmetic, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Products of batches in every company, and as the keys of a cache grow."""
    for dtype, shape in product(DTYPES, BATCHES if quick else BATCHES + MORE_BATCHES):
        for kind, a, b in batch_data(numbers, *shape, dtype, KINDS[1:] if quick else KINDS):
            where = f"{dtype}, {' x '.join(map(str, shape))}, {kind}"
            yield from batch_trials(arithmetic, a, b, where)
            if kind == "probes" and not quick:
                yield from on_threads(where, lambda a=a, b=b: arithmetic.bmm(a, b), arithmetic.bmm(a, b))
    for dtype in DTYPES[:2] if quick else DTYPES:
        few = quick or dtype.itemsize == 2
        yield from growing_keys(arithmetic, numbers, dtype, (1, 63, 64, 65, 129) if few else range(1, LONGEST + 1))


def batch_data(
    numbers: Numbers, count: int, m: int, k: int, n: int, dtype: torch.dtype, kinds: Iterable[str] = KINDS
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Batches of the data of `data`."""
    for kind in kinds:
        parts = [part for _ in range(count) for part in data(numbers, m, k, n, dtype, (kind,))]
        yield kind, torch.stack([x for _, x, _ in parts]), torch.stack([weight.t() for _, _, weight in parts])


def batch_trials(arithmetic: Arithmetic, a: Tensor, b: Tensor, where: str) -> Iterator[Trial]:
    """A product of batches against its parts, its surroundings, and other layouts."""
    bmm, want = arithmetic.bmm, arithmetic.bmm(a, b)
    (count, m, _), n = a.shape, b.size(2)
    for i in range(min(count, 3)):
        yield Trial(f"{where}, batch {i} alone", bmm(a[i : i + 1], b[i : i + 1]), want[i : i + 1])
    yield Trial(f"{where}, batches moved on", bmm(a.roll(1, 0), b.roll(1, 0)), want.roll(1, 0))
    yield Trial(f"{where}, batches thrice", bmm(a.repeat(3, 1, 1), b.repeat(3, 1, 1)), want.repeat(3, 1, 1))
    for row in {0, m // 2, m - 1}:
        yield Trial(f"{where}, row {row} alone", bmm(a[:, row : row + 1], b), want[:, row : row + 1])
    yield Trial(f"{where}, rows moved on", bmm(a.roll(5, 1), b), want.roll(5, 1))
    for columns in {1, n // 2, n - 1} - {0}:
        yield Trial(f"{where}, the first {columns} columns", bmm(a, b[:, :, :columns]), want[:, :, :columns])
    for zeros in (1, 7, 63, 64, 130):
        longer = F.pad(a, (0, zeros)), torch.cat([b, b.new_ones(count, zeros, n)], dim=1)
        yield Trial(f"{where}, {zeros} zeros behind", bmm(*longer), want)
    yield Trial(f"{where}, b turned", bmm(a, b.transpose(1, 2).contiguous().transpose(1, 2)), want)
    yield Trial(f"{where}, a turned", bmm(a.transpose(1, 2).contiguous().transpose(1, 2), b), want)
    yield Trial(f"{where}, elsewhere", bmm(elsewhere(a, 3), elsewhere(b, 1)), want)
    yield Trial(f"{where}, part of a larger", bmm(a, F.pad(b, (0, 3, 0, 5))[:, : b.size(1), :n]), want)


def growing_keys(
    arithmetic: Arithmetic, numbers: Numbers, dtype: torch.dtype, lengths: Iterable[int]
) -> Iterator[Trial]:
    """Queries with more and more keys, and weights with more and more values, whose later ones are masked."""
    queries, values = batch_data(numbers, 2, 5, 16, LONGEST, dtype), batch_data(numbers, 2, 5, LONGEST, 16, dtype)
    for (kind, query, keys), (_, weights, value) in zip(queries, values, strict=True):
        scores = arithmetic.bmm(query, keys)
        for length in lengths:
            got = arithmetic.bmm(query[:, -1:], keys[:, :, :length])
            yield Trial(f"{dtype}, {kind}, scores of {length} keys", got, scores[:, -1:, :length])
            got = arithmetic.bmm(weights[:, -1:, :length], value[:, :length])
            masked = F.pad(weights[:, :, :length], (0, LONGEST - length))
            want = arithmetic.bmm(masked, value)[:, -1:]
            yield Trial(f"{dtype}, {kind}, sums of {length} values", got, want)


def sum_trials(total: Times, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Sums in every company, and as their axis grows."""
    yield from row_sums(total, numbers, quick)
    for dtype, kind in product(DTYPES, KINDS):
        x = numbers.rows(kind, 6, LONGEST, dtype)
        for length in (1, 17, 65) if quick else range(1, LONGEST + 1):
            want = total(x[:, :length])
            for zeros in (1, 7, 64, LONGEST - length):
                got = total(F.pad(x[:, :length], (0, zeros)))
                yield Trial(f"{dtype}, {kind}, {length} numbers and {zeros} zeros", got, want)


def row_sums(total: Times, numbers: Numbers, quick: bool) -> Iterator[Trial]:
    """Sums of rows in every company."""
    for dtype, n, kind in product(DTYPES, (17,) if quick else (1, 3, 16, 17, 64, 100, 768), KINDS):
        x = numbers.rows(kind, ROWS, n, dtype)
        yield from row_trials(total, x, f"{dtype}, {n} numbers, {kind}", quick, threaded=not quick)
