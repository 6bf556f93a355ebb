"""Operators that add up numbers of one tensor, worked out by the arithmetic."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.registry import instead_of

LAST = (-1, [-1], (-1,))
"""Ways to say the last axis, which nearly all sums are over."""


def total(arithmetic: Arithmetic, x: Tensor, dims: Sequence[int] | int | None, keepdim: bool) -> Tensor:
    """Sum over some axes, all of them for none given, wide."""
    if dims in LAST or dims == x.ndim - 1:
        result = arithmetic.total(x)
        return result if keepdim else result.squeeze(-1)
    dims = range(x.ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    axes = sorted(dim % x.ndim for dim in dims) if x.ndim else []
    kept = [dim for dim in range(x.ndim) if dim not in axes]
    shape = [x.size(dim) for dim in kept]
    flat = x.permute(*kept, *axes).reshape(*shape, math.prod(x.size(dim) for dim in axes))
    result = arithmetic.total(flat).squeeze(-1)
    for axis in axes if keepdim else []:
        result = result.unsqueeze(axis)
    return result


@instead_of("sum")
def sum_(
    arithmetic: Arithmetic,
    x: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Sum over some axes."""
    x = x if dtype is None else x.to(dtype)
    return total(arithmetic, x, dim, keepdim).to(x.dtype)


@instead_of("mean")
def mean(
    arithmetic: Arithmetic,
    x: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Mean over some axes."""
    x = x if dtype is None else x.to(dtype)
    summed = total(arithmetic, x, dim, keepdim)
    return (summed / (x.numel() / max(summed.numel(), 1))).to(x.dtype)


@instead_of("var")
def var(
    arithmetic: Arithmetic,
    x: Tensor,
    dim: Sequence[int] | int | bool | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Variance over some axes, by the mean of squared distances from the mean."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = (1.0 if unbiased else 0.0) if correction is None else correction
    centre = total(arithmetic, x, dim, keepdim=True)
    count = x.numel() / max(centre.numel(), 1)
    distance = x.to(centre.dtype) - centre / count
    return (total(arithmetic, distance * distance, dim, keepdim) / max(count - correction, 0.0)).to(x.dtype)


@instead_of("var_mean")
def var_mean(
    arithmetic: Arithmetic,
    x: Tensor,
    dim: Sequence[int] | int | bool | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean over some axes."""
    axes = None if isinstance(dim, bool) else dim
    return var(arithmetic, x, dim, unbiased, keepdim, correction=correction), mean(arithmetic, x, axes, keepdim)


@instead_of("native_group_norm")
def native_group_norm(
    arithmetic: Arithmetic,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    inner: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise each group of channels by its mean and variance; the two are left empty, for no decoder uses them."""
    shape = (batch, groups, channels // groups * inner)
    flat, _, _ = native_layer_norm(arithmetic, x.reshape(shape), shape[2:], None, None, eps)
    column = [1, channels] + [1] * (x.ndim - 2)
    parts = [part if part is None else part.view(column) for part in (weight, bias)]
    return scaled(flat.view(x.shape), *parts).to(x.dtype), x.new_empty(0), x.new_empty(0)


@instead_of("std")
def std(
    arithmetic: Arithmetic,
    x: Tensor,
    dim: Sequence[int] | int | bool | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Root of the variance."""
    return var(arithmetic, x, dim, unbiased, keepdim, correction=correction).sqrt()


@instead_of("linalg_vector_norm")
def vector_norm(
    arithmetic: Arithmetic,
    x: Tensor,
    ord: float = 2,  # noqa: A002 - the operator's own name for it
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Root of the sum of squares, or sum of absolute values."""
    x = x if dtype is None else x.to(dtype)
    if ord not in (1, 2):
        raise NotImplementedError
    wide = arithmetic.widen(x)
    summed = total(arithmetic, wide.abs() if ord == 1 else wide * wide, dim, keepdim)
    return (summed if ord == 1 else summed.sqrt()).to(x.dtype)


@instead_of("_softmax", "softmax")
def softmax(arithmetic: Arithmetic, x: Tensor, dim: int, dtype: torch.dtype | bool | None = None) -> Tensor:
    """`exp(x - max)` over its sum. What is masked by -inf adds an exact zero, wherever it stands behind the rest."""
    if dtype is True:
        dtype = torch.float32  # `_softmax` has a flag for half precision in, float32 out
    x = x.to(dtype) if isinstance(dtype, torch.dtype) else x
    if not x.numel():
        return x.clone()
    wide = arithmetic.widen(x)
    e = (wide - wide.amax(dim, keepdim=True)).exp_()
    return narrowed(e.div_(total(arithmetic, e, dim, keepdim=True)), x)


@instead_of("_safe_softmax")
def safe_softmax(arithmetic: Arithmetic, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Softmax, and zeros where everything is masked."""
    x = x if dtype is None else x.to(dtype)
    if not x.numel():
        return x.clone()
    wide = arithmetic.widen(x)
    largest = wide.amax(dim, keepdim=True).clamp_min_(torch.finfo(wide.dtype).min)
    e = (wide - largest).exp_()
    # The largest exponential is 1, so that a sum below it is one of zeros alone.
    return narrowed(e.div_(total(arithmetic, e, dim, keepdim=True).clamp_min_(0.5)), x)


@instead_of("_log_softmax", "log_softmax")
def log_softmax(arithmetic: Arithmetic, x: Tensor, dim: int, dtype: torch.dtype | bool | None = None) -> Tensor:
    """Logarithm of the softmax."""
    if dtype is True:
        dtype = torch.float32
    x = x.to(dtype) if isinstance(dtype, torch.dtype) else x
    wide = arithmetic.widen(x)
    shifted = wide - wide.amax(dim, keepdim=True)
    return (shifted - total(arithmetic, shifted.exp(), dim, keepdim=True).log()).to(x.dtype)


@instead_of("logsumexp")
def logsumexp(arithmetic: Arithmetic, x: Tensor, dim: Sequence[int] | int, keepdim: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials."""
    dim = (dim,) if isinstance(dim, int) else tuple(dim)
    wide = arithmetic.widen(x)
    largest = wide.amax(dim, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0)
    summed = total(arithmetic, (wide - largest).exp(), dim, keepdim=True).log() + largest
    return (summed if keepdim else summed.squeeze(dim)).to(x.dtype)


@instead_of("native_layer_norm")
def native_layer_norm(
    arithmetic: Arithmetic,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by mean and variance; these are given too, or empty where a kernel of torch does it."""
    if (done := arithmetic.layer_norm(x, shape, weight, bias, eps)) is not None:
        return done, x.new_empty(0), x.new_empty(0)
    dims = list(range(-len(shape), 0))
    wide = arithmetic.widen(x)
    count = math.prod(shape)
    centre = total(arithmetic, wide, dims, keepdim=True) / count
    distance = wide - centre
    root = 1.0 / (total(arithmetic, distance * distance, dims, keepdim=True) / count + eps).sqrt()
    return scaled(distance * root, weight, bias).to(x.dtype), centre, root


@instead_of("layer_norm")
def layer_norm(
    arithmetic: Arithmetic,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Normalise by mean and variance."""
    del cudnn_enable
    if (done := arithmetic.layer_norm(x, shape, weight, bias, eps)) is not None:
        return done
    return native_layer_norm(arithmetic, x, shape, weight, bias, eps)[0]


@instead_of("_fused_rms_norm")
def fused_rms_norm(
    arithmetic: Arithmetic, x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """Normalise by the root of the mean square."""
    dims = list(range(-len(shape), 0))
    wide = arithmetic.widen(x)
    square = total(arithmetic, wide * wide, dims, keepdim=True) / math.prod(shape)
    root = 1.0 / (square + (torch.finfo(x.dtype).eps if eps is None else eps)).sqrt()
    return scaled(wide * root, weight, None).to(x.dtype), root


@instead_of("rms_norm")
def rms_norm(
    arithmetic: Arithmetic,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Normalise by the root of the mean square."""
    return fused_rms_norm(arithmetic, x, shape, weight, eps)[0]


def narrowed(wide: Tensor, like: Tensor) -> Tensor:
    """Round to the dtype of an operand."""
    return wide if wide.dtype == like.dtype else wide.to(like.dtype)


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`x * weight + bias`, as far as they are given."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias
