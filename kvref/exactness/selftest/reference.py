"""Sums against those in whole numbers and in Python's floats: what the grid rests on, and the tree of `fold`."""

import struct
from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from kvref.errors import RangeExceeded
from kvref.exactness import fold, grid
from kvref.exactness.selftest.numbers import KINDS, Numbers
from kvref.exactness.selftest.trial import Job, Trial

TREE = "sums are one fixed tree of additions"

SHAPES = ((1, 1, 1), (1, 7, 3), (5, 64, 33), (17, 129, 20))
FULL_SHAPES = (*SHAPES, *((2, k, 2) for k in range(5, 70, 4)), (33, 768, 65), (2, 3072, 9), (40, 257, 101))
"""Rows, numbers in each, and columns."""


def reference_sums(mode: str, device: torch.device, quick: bool) -> Iterator[Job]:
    """Proofs of the sums of a mode that can be worked out in another way."""
    numbers = Numbers(device)
    if mode == "grid":
        exactly = whole_sums(numbers, SHAPES if quick else FULL_SHAPES)
        yield "mm, bmm and sum of whole numbers", "sums of whole numbers below 2**53 are exact", exactly
        yield "range guard", "numbers beyond the grid are refused", guarded(device)
    if mode == "fold" or (mode == "tile" and device.type != "cpu"):
        yield "fold", TREE, tree_sums(numbers)
    if mode == "fold":
        yield "products of fold", TREE, tree_products(numbers)


def whole_sums(numbers: Numbers, shapes: tuple[tuple[int, int, int], ...]) -> Iterator[Trial]:
    """Products and sums on the grid against those of int64, of one sign near 2**53 and of both."""
    steps = int(grid.WEIGHT_STEPS)
    for (rows, k, out), signed in product(shapes, (False, True)):
        where = f"{rows} x {k} x {out}"
        most = int(grid.EXACT) // k
        weight = numbers.whole(out, k, largest=steps, signed=signed)
        weight[0, 0] = steps  # so that the weight's grid has just these steps
        x = numbers.whole(rows, k, largest=most // steps, signed=signed)
        got = on_grid(lambda sums, x, weight: sums.times(weight)(x), numbers, (x, grid.STEPS), (weight, steps))
        yield Trial(f"mm of {where}", got, x @ weight.t())
        a, b = (numbers.whole(3, *size, largest=int(most**0.5), signed=signed) for size in ((rows, k), (k, out)))
        for count in (1, 3):
            got = on_grid(grid.Grid.bmm, numbers, (a[:count], grid.STEPS), (b[:count], grid.STEPS))
            yield Trial(f"bmm of {count} x {where}", got, a[:count] @ b[:count])
        x = numbers.whole(rows, k, largest=most, signed=signed)
        yield Trial(f"sum of {k}", on_grid(grid.Grid.total, numbers, (x, grid.SUM_STEPS)), x.sum(-1, keepdim=True))
        yield Trial(f"cumsum of {k}", on_grid(grid.Grid.running, numbers, (x, grid.SUM_STEPS)), x.cumsum(-1))


def on_grid(
    call: Callable[[grid.Grid, Tensor], Tensor] | Callable[[grid.Grid, Tensor, Tensor], Tensor],
    numbers: Numbers,
    *operands: tuple[Tensor, float],
) -> Tensor:
    """What the grid gives of whole numbers, each operand with the steps of its grid; again in whole numbers."""
    arithmetic = grid.Grid()
    result = call(arithmetic, *((whole.double() / steps).to(numbers.device) for whole, steps in operands))
    arithmetic.check()
    for _, steps in operands:
        result = result * steps
    return result.cpu().to(torch.int64)


def guarded(device: torch.device) -> Iterator[Trial]:
    """Numbers that are too large must be refused, whichever operation meets them."""
    large = torch.full((2, 2), 2.0**30, dtype=torch.float64, device=device)
    arithmetic = grid.Grid()
    met = {
        "times": lambda: arithmetic.times(large)(large),
        "bmm": lambda: arithmetic.bmm(large[None], large[None]),
        "total": lambda: arithmetic.total(large),
        "running": lambda: arithmetic.running(large),
    }
    for name, meet in met.items():
        meet()
        try:
            arithmetic.check()
        except RangeExceeded:
            yield Trial(name, large, large)
        else:
            yield Trial(f"{name} lets them through", large, -large)


def tree(values: list[float], dtype: torch.dtype) -> float:
    """Sum in Python's floats: the upper half is added onto the lower; each step rounds to the dtype."""
    half = 1 << max(len(values) - 1, 0).bit_length()
    values = values + [0.0] * (half - len(values))
    while half > 1:
        half //= 2
        values = [narrow(low + high, dtype) for low, high in zip(values[:half], values[half:], strict=True)]
    return values[0] + 0.0


def narrow(value: float, dtype: torch.dtype) -> float:
    """The nearest number of a dtype; one addition or product of float32 in float64, rounded, is that of float32."""
    return value if dtype == torch.float64 else struct.unpack("f", struct.pack("f", value))[0]


def floats(x: Tensor) -> list[float]:
    """The numbers of a vector."""
    return [float(value) for value in x.cpu()]


def tree_sums(numbers: Numbers) -> Iterator[Trial]:
    """`fold` against the tree in Python, and with zeros behind."""
    for dtype, n, kind in product((torch.float64, torch.float32), (1, 2, 3, 5, 8, 13, 31, 64, 65, 100), KINDS):
        x = numbers.rows(kind, 3, n, dtype)
        got = fold.fold(x)
        values = [[tree(floats(row), dtype)] for row in x]
        yield Trial(f"{dtype}, {n} numbers", got.cpu(), torch.tensor(values, dtype=dtype))
        for zeros in (1, 2, 3, 7, 15, 16, 31, 33, 63, 64) if n != 13 else range(1, 65):
            yield Trial(f"{dtype}, {n} numbers and {zeros} zeros", fold.fold(F.pad(x, (0, zeros))), got)


def tree_products(numbers: Numbers) -> Iterator[Trial]:
    """Products of the arithmetic against those in Python."""
    for dtype, k in product((torch.float64, torch.float32), (1, 3, 17)):
        x, weight = numbers.random(2, k).to(dtype), numbers.random(3, k).to(dtype)
        rows, columns = [floats(row) for row in x], [floats(column) for column in weight]
        values = [
            [tree([narrow(a * b, dtype) for a, b in zip(row, column, strict=True)], dtype) for column in columns]
            for row in rows
        ]
        yield Trial(f"{dtype}, {k} products", fold.Fold().times(weight)(x).cpu(), torch.tensor(values, dtype=dtype))
