"""Tile: the real matrix kernels, called in such a way that their shape never depends on what else is computed.

A BLAS picks its kernel by the shape, so a row comes out otherwise alone than among forty. Here rows are always
multiplied in tiles of 16, and what a product sums over, when it grows with the cache, in blocks of 64 that are added up
in their order. Large float32 weights go through oneDNN, whose sums do not depend on the number of rows once there
are two. That these kernels treat every place of a tile alike is no promise of theirs; `kvref.exactness.selftest` proves
it on the machine at hand.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.exactness.arithmetic import Arithmetic, Times
from kvref.exactness.fold import fold

ROWS = 16
"""Rows of a tile, and what a weight's sides are filled up to: at the end of other sizes another kernel runs."""

BLOCK = 64
"""How much of the axis that is summed over, and of the columns, goes into one product."""

LARGE = 2**16
"""Numbers in a weight from which on oneDNN is worth its call, some 40 microseconds."""


class Tile(Arithmetic):
    """Products at fixed shapes, each result wide."""

    name = "tile"

    @override
    def times(self, weight: Float[Tensor, "out k"]) -> Times:
        weight = self.widen(weight)
        if onednn_takes(weight):
            # In oneDNN's own layout, or it would be turned into that at every call: most of the time of a single row.
            packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 2)
            return lambda x: by_onednn(self.widen(x), packed)
        out, k = weight.shape
        turned = filled(weight.t(), ROWS, ROWS)
        inner, wide = turned.shape

        def product(x: Tensor) -> Tensor:
            rows = x.size(0)
            tiles = turned.new_zeros(rows + -rows % ROWS, inner)
            tiles.as_strided((rows, k), (inner, 1)).copy_(x)
            return by_tiles(tiles, turned).as_strided((rows, out), (wide, 1))

        return product

    @override
    def bmm(self, a: Float[Tensor, "batch m k"], b: Float[Tensor, "batch k n"]) -> Float[Tensor, "batch m n"]:
        a, b = self.widen(a), self.widen(b)
        (batch, m, k), n = a.shape, b.size(2)
        if not (batch and m and k and n):
            return a.new_zeros(batch, m, n)
        a, b = filled(a, ROWS, BLOCK), filled(b, BLOCK, BLOCK)
        if a.size(1) == ROWS and a.size(2) == b.size(2) == BLOCK:
            return torch.bmm(a, b)[:, :m, :n]
        return torch.cat([blockwise(rows, b) for rows in torch.split(a, ROWS, dim=1)], dim=1)[:, :m, :n]

    @override
    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, added: Tensor | None, root: float
    ) -> Tensor | None:
        """By tiles of queries and blocks of keys: fewer calls than the steps one by one, whatever the length."""
        (*lead, new, head_dim), (total, width) = query.shape, value.shape[-2:]
        if max(head_dim, width) > BLOCK or key.shape[:-2] != query.shape[:-2] or not (query.numel() and value.numel()):
            return None
        batch, rows, columns = math.prod(lead), new + -new % ROWS, total + -total % BLOCK
        queries = query.new_zeros(batch, rows, BLOCK)
        torch.mul(query, root, out=queries.view(*lead, rows, BLOCK)[..., :new, :head_dim])
        keys = key.new_zeros(batch, columns, BLOCK)
        torch.mul(key, root, out=keys.view(*lead, columns, BLOCK)[..., :total, :head_dim])
        scores = by_blocks(queries, keys).view(*lead, rows, columns)[..., :new, :total]
        if added is not None:
            scores = scores + added
        elif visible is not None:
            scores = scores.masked_fill(~visible, -torch.inf)
        largest = scores.amax(-1, keepdim=True).clamp_min_(torch.finfo(scores.dtype).min)
        exponentials = (scores - largest).exp_()
        weights = query.new_zeros(batch, rows, columns)
        total_of_row = self.total(exponentials).clamp_min_(0.5)
        torch.div(exponentials, total_of_row, out=weights.view(*lead, rows, columns)[..., :new, :total])
        values = value.new_zeros(batch, columns, BLOCK)
        values.view(*lead, columns, BLOCK)[..., :total, :width] = value
        return over_blocks(weights, values).view(*lead, rows, BLOCK)[..., :new, :width]

    @override
    def layer_norm(
        self, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor | None:
        if x.device.type != "cpu":
            return None  # there its kernel goes by the alignment of its operands
        return torch.layer_norm(x.contiguous(), shape, weight, bias, eps)

    @override
    def total(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows 1"]:
        x = self.widen(x)
        if x.device.type != "cpu" or not x.size(-1):
            return fold(x)
        # A running sum has to go from the first number to the last.
        return x.cumsum(-1).narrow(-1, x.size(-1) - 1, 1)


def filled(x: Float[Tensor, "*batch rows columns"], rows: int, columns: int) -> Tensor:
    """A fresh copy, filled up with zeros to whole tiles.

    It is a copy even where nothing is to fill, for kernels differ by alignment, and by which axis lies inside.
    """
    missing = -x.size(-2) % rows, -x.size(-1) % columns
    if missing == (0, 0):
        return x.clone(memory_format=torch.contiguous_format)
    return torch.constant_pad_nd(x, (0, missing[1], 0, missing[0]))


def by_tiles(x: Float[Tensor, "filled_rows k"], weight: Float[Tensor, "k out"]) -> Float[Tensor, "filled_rows out"]:
    """`x @ weight`, a tile of rows at a time."""
    if x.size(0) == ROWS:
        return torch.mm(x, weight)
    return torch.cat([torch.mm(part, weight) for part in torch.split(x, ROWS)])


def by_onednn(x: Float[Tensor, "rows k"], packed: Tensor) -> Float[Tensor, "rows out"]:
    """`x @ weight.T` by oneDNN, which holds the weight. A single row runs another kernel there, so it is given two."""
    pair = x.expand(2, -1) if x.size(0) == 1 else x
    return torch.ops.mkldnn._linear_pointwise(pair.contiguous(), packed, None, "none", [], "")[: x.size(0)]


def by_blocks(
    queries: Float[Tensor, "batch filled_rows 64"], keys: Float[Tensor, "batch filled_columns 64"]
) -> Float[Tensor, "batch filled_rows filled_columns"]:
    """`queries @ keys.T`, a tile of queries and a block of keys at a time."""
    batch, columns, _ = keys.shape
    blocks = keys.view(-1, BLOCK, BLOCK).transpose(1, 2)
    if queries.size(1) == ROWS and columns == BLOCK:
        return torch.bmm(queries, blocks)
    parts: list[Tensor] = []
    for part in torch.split(queries, ROWS, dim=1):
        products = torch.bmm(part.repeat_interleave(columns // BLOCK, 0), blocks)
        parts.append(products.view(batch, -1, ROWS, BLOCK).transpose(1, 2).reshape(batch, ROWS, columns))
    return torch.cat(parts, dim=1)


def over_blocks(
    weights: Float[Tensor, "batch filled_rows filled_columns"], values: Float[Tensor, "batch filled_columns 64"]
) -> Float[Tensor, "batch filled_rows 64"]:
    """`weights @ values`, a tile of rows and a block of values at a time; blocks are added up in their order."""
    batch, columns, _ = values.shape
    blocks = values.view(-1, BLOCK, BLOCK)
    if weights.size(1) == ROWS and columns == BLOCK:
        return torch.bmm(weights, blocks)
    parts: list[Tensor] = []
    for part in torch.split(weights, ROWS, dim=1):
        by_block = part.view(batch, ROWS, -1, BLOCK).transpose(1, 2).reshape(-1, ROWS, BLOCK)
        products = torch.bmm(by_block.contiguous(), blocks).view(batch, -1, ROWS, BLOCK)
        out = products[:, 0]
        for block in range(1, columns // BLOCK):
            out = out + products[:, block]
        parts.append(out)
    return torch.cat(parts, dim=1)


def blockwise(a: Float[Tensor, "batch 16 k"], b: Float[Tensor, "batch k n"]) -> Float[Tensor, "batch 16 n"]:
    """One tile of rows times everything, in blocks of the axis that is summed over and of the columns."""
    columns: list[Tensor] = []
    for right in torch.split(b, BLOCK, dim=2):
        parts = zip(torch.split(a, BLOCK, dim=2), torch.split(right, BLOCK, dim=1), strict=True)
        products = [torch.bmm(part.contiguous(), block.contiguous()) for part, block in parts]
        out = products[0]
        for product in products[1:]:
            out += product
        columns.append(out)
    return torch.cat(columns, dim=2)


def onednn_takes(weight: Tensor) -> bool:
    """Whether a weight is large enough for oneDNN, and of a kind that it multiplies."""
    kind = weight.dtype == torch.float32 and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    return kind and weight.numel() >= LARGE
