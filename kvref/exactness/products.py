"""Operators that multiply matrices, worked out by the arithmetic.

Their results are contiguous, as those of torch's own kernels are: a decoder may rely on it when it takes a view.
"""

import torch
from torch import Tensor, nn

from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.registry import instead_of


def weight_of(matrix: Tensor) -> tuple[nn.Parameter, bool] | None:
    """The parameter that a matrix, or each of a batch, is, and whether it is turned; None for what is no weight.

    Anything else may have come from tokens, so that its shape grows with them.
    """
    if isinstance(matrix, nn.Parameter):
        return (matrix, False) if matrix.ndim == 2 else None
    base = matrix._base
    if not isinstance(base, nn.Parameter) or (matrix.ndim > 2 and matrix.stride(0) != 0):
        return None
    place = matrix.shape[-2:], matrix.stride()[-2:]
    if place == (base.shape, base.stride()):
        return base, False
    return (base, True) if place == (base.shape[::-1], base.stride()[::-1]) else None


def require_match(a: Tensor, b: Tensor) -> None:
    """Raise what torch raises for operands that do not go together, which filling up to whole tiles would hide."""
    if a.size(-1) != b.size(-2):
        raise RuntimeError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied")
    if a.dtype != b.dtype:
        raise RuntimeError(f"operands must have the same dtype, but got {a.dtype} and {b.dtype}")


def product(arithmetic: Arithmetic, x: Tensor, matrix: Tensor) -> Tensor:
    """`x @ matrix` for two matrices, wide."""
    return batched(arithmetic, x[None], matrix if weight_of(matrix) else matrix[None])[0]


def batched(arithmetic: Arithmetic, a: Tensor, b: Tensor) -> Tensor:
    """Product of two batches of matrices, wide.

    A weight that is repeated for each is multiplied as the weight: torch takes `linear` apart in this way for some
    strides.
    """
    require_match(a, b)
    if not (found := weight_of(b)):
        if a.size(0) != b.size(0):
            raise RuntimeError(f"batches of {a.size(0)} and {b.size(0)} matrices cannot be multiplied")
        return arithmetic.bmm(a, b)
    weight, turned = found
    rows = a.reshape(-1, a.size(-1)) if a.numel() else a.new_zeros(a.size(0) * a.size(1), a.size(2))
    wide = arithmetic.linear(rows, weight) if turned else arithmetic.right(rows, weight)
    return wide.view(a.size(0), a.size(1), b.size(-1))


@instead_of("mm")
def mm(arithmetic: Arithmetic, x: Tensor, matrix: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """`x @ matrix`."""
    return product(arithmetic, x, matrix).to(out_dtype or x.dtype).contiguous()


@instead_of("addmm")
def addmm(
    arithmetic: Arithmetic, bias: Tensor, x: Tensor, matrix: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """`beta * bias + alpha * (x @ matrix)`."""
    return biased(product(arithmetic, x, matrix).to(x.dtype), bias, beta, alpha).contiguous()


@instead_of("linear")
def linear(arithmetic: Arithmetic, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`.

    The product is rounded before the bias is added: torch itself takes this operator apart in more than one way, one of
    which adds the bias afterwards.
    """
    if weight.ndim == 1:
        return linear(arithmetic, x, weight[None], None if bias is None else bias[None]).squeeze(-1)
    if x.size(-1) != weight.size(1) or x.dtype != weight.dtype:
        require_match(x[None], weight.t())
    shape = x.shape
    rows = x if len(shape) == 2 else x.flatten(0, -2) if len(shape) > 2 else x[None]
    found = weight_of(weight)
    if found and not found[1]:
        wide = arithmetic.linear(rows, found[0])
    else:
        wide = arithmetic.bmm(rows[None], weight.t()[None])[0]
    if len(shape) != 2:
        wide = wide.view(*shape[:-1], weight.size(0))
    result = wide if wide.dtype == x.dtype else wide.to(x.dtype)
    return (result if bias is None else result + bias).contiguous()


@instead_of("bmm")
def bmm(arithmetic: Arithmetic, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    """Product of two batches of matrices."""
    return batched(arithmetic, a, b).to(out_dtype or a.dtype).contiguous()


@instead_of("baddbmm")
def baddbmm(arithmetic: Arithmetic, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * bias + alpha * (a @ b)`."""
    return biased(batched(arithmetic, a, b).to(a.dtype), bias, beta, alpha).contiguous()


@instead_of("mv")
def mv(arithmetic: Arithmetic, matrix: Tensor, x: Tensor) -> Tensor:
    """`matrix @ x`."""
    return product(arithmetic, matrix, x[:, None])[:, 0].to(x.dtype)


@instead_of("dot", "vdot")
def dot(arithmetic: Arithmetic, a: Tensor, b: Tensor) -> Tensor:
    """Inner product."""
    require_match(a[None], b[:, None])
    wide = arithmetic.wide(a.dtype)
    return arithmetic.total(a.to(wide) * b.to(wide))[0].to(a.dtype)


def biased(product: Tensor, bias: Tensor, beta: float, alpha: float) -> Tensor:
    """`beta * bias + alpha * product`; a bias times 0 is not looked at, even where it is NaN."""
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


@instead_of("convolution")
def convolution(
    arithmetic: Arithmetic,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Tensor:
    """One-dimensional convolution: each window is multiplied by the taps and summed, as a step of a stream does it."""
    del output_padding
    if transposed or x.ndim != 3:
        raise NotImplementedError
    wide = arithmetic.wide(x.dtype)
    x = torch.nn.functional.pad(x, (padding[0], padding[0])).to(wide)
    windows = x.unfold(2, (weight.size(2) - 1) * dilation[0] + 1, stride[0])[..., :: dilation[0]]
    batch, channels, length, taps = windows.shape
    out = weight.size(0)
    if groups == channels == out:
        result = arithmetic.total(windows * weight.to(wide).view(channels, 1, taps)).squeeze(-1)
    else:
        parts = windows.reshape(batch, groups, channels // groups, length, taps).permute(1, 0, 3, 2, 4)
        matrices = weight.reshape(groups, out // groups, -1).transpose(1, 2)
        products = arithmetic.bmm(parts.reshape(groups, batch * length, -1), matrices)
        result = products.view(groups, batch, length, -1).permute(1, 0, 3, 2).reshape(batch, out, length)
    result = result.to(weight.dtype)
    return result if bias is None else result + bias[:, None]
