"""GPT-2 (Radford et al., 2019) with a KV cache, for inference.

Attention is causal: a token's keys and values depend only on it and on earlier tokens, so later ones never change them,
and a cache may keep them. The cache is in `kvref.cache`, positions and masks are in `kvref.masks`, and `kvref.weights`
loads checkpoints. In shapes, `new` counts the tokens of this call, and `total` is past + new.
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from kvref.cache import Cache, GrowingCache
from kvref.config import GPTConfig
from kvref.masks import Mask, PositionsAndMasks

Hidden = Float[Tensor, "batch new n_embd"]
"""A vector for each token of a call."""

Logits = Float[Tensor, "batch new vocab_size"]
"""Scores of the next token, for each token of a call."""


class CausalSelfAttention(nn.Module):
    """Every token looks at itself and at the tokens before it, cached or new."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head, self.head_dim = config.n_head, config.head_dim
        kv_width = config.kv_heads * config.head_dim  # n_embd in GPT-2; less with grouped-query attention
        self.widths = [config.n_embd, kv_width, kv_width]  # of q, k and v
        self.c_attn = nn.Linear(config.n_embd, sum(self.widths))
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Hidden, mask: Mask | None, cache: Cache, layer: int) -> Hidden:
        """Only `mask` makes it causal; it is None where every key may be seen, as by a single new token."""
        q, k, v = (self.split_heads(part) for part in self.c_attn(x).split(self.widths, dim=-1))
        k, v = cache.append(layer, k, v)  # now of past and new tokens
        y = F.scaled_dot_product_attention(q, self.repeat_heads(k), self.repeat_heads(v), attn_mask=mask)
        return self.c_proj(self.merge_heads(y))

    def split_heads(self, x: Float[Tensor, "batch new width"]) -> Float[Tensor, "batch heads new head_dim"]:
        """Cut, then swap axes: one `view` to the final shape would mix heads with tokens."""
        return x.view(x.size(0), x.size(1), -1, self.head_dim).transpose(1, 2)

    def repeat_heads(
        self, x: Float[Tensor, "batch n_kv_head total head_dim"]
    ) -> Float[Tensor, "batch n_head total head_dim"]:
        """Neighbours share: with 4 query heads and 2 key heads, these are used as 0, 0, 1, 1."""
        repeats = self.n_head // x.size(1)
        return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)

    def merge_heads(self, y: Float[Tensor, "batch n_head new head_dim"]) -> Hidden:
        """Undo `split_heads`."""
        return y.transpose(1, 2).flatten(start_dim=2)


class MLP(nn.Module):
    """The half of a block that works on each token alone."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Hidden) -> Hidden:
        """GPT-2 uses the tanh form of GELU."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One layer: attention, then the MLP, each added to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x: Hidden, mask: Mask | None, cache: Cache, layer: int) -> Hidden:
        """Normalise before each half."""
        x = x + self.attn(self.ln_1(x), mask, cache, layer)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """Only holds the parts, under the names of GPT-2's checkpoints; `GPT.look` runs them."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)


class GPT(PositionsAndMasks):
    """The model. Its base, an `nn.Module`, has `require_positions`, `position_ids` and `attention_mask`."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.transformer = Transformer(config)

    def forward(self, tokens: Int[Tensor, "batch new"], cache: Cache | None = None) -> tuple[Logits, Cache]:
        """Logits of every new token, and the cache, now with these tokens; a new one where none is given.

        Raises `ContextOverflow` or `CacheFull`, with nothing written.
        """
        cache = GrowingCache() if cache is None else cache
        logits = self.look(tokens, cache)
        cache.commit(tokens.size(1))
        return logits, cache

    def look(self, tokens: Int[Tensor, "batch new"], cache: Cache) -> Logits:
        """Logits of tokens that may be thrown away: until a commit they do not count as past, and are written over."""
        past, new = cache.length, tokens.size(1)
        padding = cache.padding  # tokens that each row is padded by at its left, or None
        self.require_positions(past, new)  # raises ContextOverflow
        cache.reserve(new)  # raises CacheFull
        mask, positions = self.attention_mask(past, new, padding), self.position_ids(past, new, padding)
        x = self.transformer.wte(tokens) + self.transformer.wpe(positions)
        for layer, block in enumerate(self.transformer.h):
            x = block(x, mask, cache, layer)
        return F.linear(self.transformer.ln_f(x), self.transformer.wte.weight)  # tied weights
