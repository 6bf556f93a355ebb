"""Scaled dot-product attention, in the steps of torch's own math path, with its meaning kept."""

import math
from typing import Any

import torch
from torch import Tensor

from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.products import bmm
from kvref.exactness.registry import instead_of
from kvref.exactness.sums import safe_softmax, softmax


@instead_of("scaled_dot_product_attention")
def attention(
    arithmetic: Arithmetic,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention of `batch n_head new head_dim` queries to keys and values.

    `is_causal` masks from the upper left corner, as torch does, also where there are more keys than queries: a decoder
    that relies on it with a cache is wrong here too.
    """
    if dropout_p:
        raise NotImplementedError
    if key.shape[:-1] != value.shape[:-1] or len({query.dtype, key.dtype, value.dtype}) > 1:
        raise RuntimeError(f"query, key and value do not go together: {query.shape}, {key.shape}, {value.shape}")
    dtype = query.dtype
    if dtype in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    if enable_gqa:
        repeats = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    root = math.sqrt(1.0 / math.sqrt(query.size(-1)) if scale is None else abs(scale))
    sign = 1.0 if scale is None or scale >= 0 else -1.0
    mask = masks(query, key, attn_mask, is_causal)
    visible, added = (mask, None) if mask is None or mask.dtype == torch.bool else (None, mask)
    plain = sign > 0 and query.dtype == arithmetic.wide(query.dtype)
    if plain and (done := arithmetic.attend(query, key, value, visible, added, root)) is not None:
        return as_laid_out(done.to(dtype), query)
    scores = matmul(arithmetic, query * (sign * root), key.transpose(-2, -1) * root)
    if mask is None:
        weights = softmax(arithmetic, scores, -1)
    else:
        scores = scores.masked_fill(~mask, -torch.inf) if added is None else scores + added
        weights = safe_softmax(arithmetic, scores, -1)
    return as_laid_out(matmul(arithmetic, weights.to(query.dtype), value).to(dtype), query)


def as_laid_out(out: Tensor, query: Tensor) -> Tensor:
    """The same, with its axes in memory in the order of the query's, as torch's fused kernel leaves them."""
    if out.ndim == 4 and query.stride(1) < query.stride(2):
        return out.transpose(1, 2).contiguous().transpose(1, 2)
    return out.contiguous()


def masks(query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor | None:
    """The masks that hold together, as one."""
    if not is_causal or mask is None:
        return upper_left(query, key) if is_causal else mask
    causal = upper_left(query, key)
    return mask & causal if mask.dtype == torch.bool else mask.masked_fill(~causal, -torch.inf)


def upper_left(query: Tensor, key: Tensor) -> Tensor:
    """The causal mask of as many keys as queries, at the upper left of the scores."""
    return torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()


def matmul(arithmetic: Arithmetic, a: Tensor, b: Tensor) -> Tensor:
    """Product of two stacks of matrices, the leading axes broadcast."""
    lead = a.shape[:-2]
    if b.shape[:-2] != lead:
        lead = torch.add(a[..., 0, 0], b[..., 0, 0]).shape
        a, b = a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])
    batch = math.prod(lead)
    product = bmm(arithmetic, a.reshape(batch, *a.shape[-2:]), b.reshape(batch, *b.shape[-2:]))
    return product.view(*lead, *product.shape[-2:])


@instead_of("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    arithmetic: Arithmetic,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention by torch's fused kernel for the CPU; what it keeps for the backward pass is left empty."""
    grouped = query.size(1) != key.size(1)
    out = attention(arithmetic, query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=grouped)
    return out, query.new_empty(0)


@instead_of("_scaled_dot_product_attention_math")
def math_attention(
    arithmetic: Arithmetic,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Any]:
    """Attention by torch's math path; of its two results decoders use the first."""
    del dropout_mask
    out = attention(arithmetic, query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return out, query.new_empty(0)
