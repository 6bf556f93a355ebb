"""Operators that add numbers up in the order in which they come: running sums, and sums into places.

On the CPU each place gets its numbers one after the other, in the order of the index and on one thread where that
matters, so that the result depends on them alone. Elsewhere the order is the hardware's, and what cannot be worked out
otherwise is refused.
"""

from typing import Any

import torch
from torch import Tensor

from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.registry import instead_of


@instead_of("cumsum")
def cumsum(arithmetic: Arithmetic, x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Running sum, in which each number is a sum over those up to it."""
    x = x if dtype is None else x.to(dtype)
    if not x.ndim or not x.numel():
        return x.clone()
    last = x.movedim(dim, -1)
    return arithmetic.running(last).movedim(-1, dim).to(x.dtype)


@instead_of("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(
    arithmetic: Arithmetic,
    x: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    """Write values into places, or add them up there."""
    del arithmetic, unsafe
    require_order(x, accumulate)
    places: Any = tuple(indices)  # None in it is a whole axis, which torch's own annotation does not say
    if not accumulate:
        return torch.index_put(x, places, values)
    # With more threads large calls add as they come.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return torch.index_put(x, places, values, accumulate=True)
    finally:
        torch.set_num_threads(threads)


@instead_of("index_add")
def index_add(
    arithmetic: Arithmetic, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """Add slices into places."""
    del arithmetic
    require_order(x, adds=True)
    return torch.index_add(x, dim, index, source if alpha == 1 else source * alpha)


@instead_of("scatter_add")
def scatter_add(arithmetic: Arithmetic, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Add numbers into places."""
    del arithmetic
    require_order(x, adds=True)
    return torch.scatter_add(x, dim, index, source)


def require_order(x: Tensor, adds: bool) -> None:
    """Refuse to add into places where the hardware decides on the order."""
    if adds and x.device.type != "cpu":
        raise NotImplementedError
