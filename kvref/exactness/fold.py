"""Fold: every product is rounded, and every sum is one fixed tree of additions.

It is ordinary floating-point arithmetic, written out: IEEE additions and multiplications, element by element, in an
order that this file fixes. So it holds wherever elementwise kernels are IEEE, and it sees a change in the last place of
one number. It is slow, and the order of the keys in memory is part of the result.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.exactness.arithmetic import Arithmetic, Times

BLOCK_BYTES = 32 * 2**20
"""Memory for the products of one block of rows."""


class Fold(Arithmetic):
    """Elementwise products, and a tree of elementwise additions."""

    name = "fold"

    @override
    def times(self, weight: Float[Tensor, "out k"]) -> Times:
        weight = self.widen(weight)
        return lambda x: folded_product(x.to(weight.dtype), weight)

    @override
    def bmm(self, a: Float[Tensor, "batch m k"], b: Float[Tensor, "batch k n"]) -> Float[Tensor, "batch m n"]:
        wide = self.wide(a.dtype)
        a, b = a.to(wide), b.to(wide).transpose(1, 2)
        if not len(a):
            return a.new_zeros(0, a.size(1), b.size(1))
        return torch.stack([folded_product(rows, columns) for rows, columns in zip(a, b, strict=True)])

    @override
    def total(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows 1"]:
        return fold(self.widen(x))


def fold(x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows 1"]:
    """Sum over the last axis: the upper half is added onto the lower until one number is left.

    The axis is filled up with zeros to a power of two. More zeros only add steps in which zeros are added, and adding
    zero changes no bit but the sign of a zero, which the first step makes positive.
    """
    n = x.size(-1)
    if not n:
        return x.new_zeros(*x.shape[:-1], 1)
    half = 1 << (n - 1).bit_length()
    if n == 1:
        return x + 0.0
    x = torch.nn.functional.pad(x, (0, half - n)) if half > n else x
    while half > 1:
        half //= 2
        x = x[..., :half] + x[..., half:]
    return x + 0.0


def folded_product(x: Float[Tensor, "rows k"], weight: Float[Tensor, "out k"]) -> Float[Tensor, "rows out"]:
    """`x @ weight.T` by products and folds, in blocks of rows that bound the memory."""
    rows, (out, k) = x.size(0), weight.shape
    block = max(1, BLOCK_BYTES // max(1, out * (1 << max(k - 1, 0).bit_length()) * x.element_size()))
    if rows <= block:
        return fold(x[:, None, :] * weight).squeeze(-1)
    parts = [fold(part[:, None, :] * weight).squeeze(-1) for part in torch.split(x, block)]
    return torch.cat(parts)
