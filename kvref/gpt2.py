"""GPT-2 (Radford et al., 2019) with a KV cache, for inference.

Keys and values of a token depend on it and on those before it, so they never change, and a cache may keep them. A pass
reserves room there, appends the new ones layer by layer, and when all is done commits them: see `kvref.cache`.
Positions and masks are in `kvref.masks`; checkpoints are loaded in `kvref.weights`.
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
        kv_width = config.kv_heads * config.head_dim  # n_embd in GPT-2; less where query heads share keys
        self.widths = [config.n_embd, kv_width, kv_width]  # of q, k and v
        self.c_attn = nn.Linear(config.n_embd, sum(self.widths))
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Hidden, mask: Mask | None, cache: Cache, layer: int) -> Hidden:
        """The cache takes the new keys and values, and gives back all: those of the past, then these."""
        q, k, v = (self.split_heads(part) for part in self.c_attn(x).split(self.widths, dim=-1))
        k, v = (self.repeat_heads(part) for part in cache.append(layer, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(self.merge_heads(y))

    def split_heads(self, x: Float[Tensor, "batch new width"]) -> Float[Tensor, "batch heads new head_dim"]:
        """Cut, then swap axes: one `view` to the final shape would mix heads with time."""
        return x.view(x.size(0), x.size(1), -1, self.head_dim).transpose(1, 2)

    def repeat_heads(
        self, x: Float[Tensor, "batch n_kv_head total head_dim"]
    ) -> Float[Tensor, "batch n_head total head_dim"]:
        """Neighbours share: of four query heads over two of keys, the first two use the first."""
        repeats = self.n_head // x.size(1)
        return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)

    def merge_heads(self, y: Float[Tensor, "batch n_head new head_dim"]) -> Hidden:
        """Undo `split_heads`."""
        return y.transpose(1, 2).flatten(-2)


class MLP(nn.Module):
    """The half of a block that looks at no other token."""

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
    """Embeddings, blocks and the last norm; `GPT.look` runs them."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)


class GPT(PositionsAndMasks):
    """The whole `nn.Module`: tokens in, logits and a cache out."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.transformer = Transformer(config)

    def forward(self, tokens: Int[Tensor, "batch new"], cache: Cache | None = None) -> tuple[Logits, Cache]:
        """Logits of every new token, and the cache, which now holds them: a new one where none is given."""
        cache = GrowingCache() if cache is None else cache
        logits = self.look(tokens, cache)
        cache.commit(tokens.size(1))
        return logits, cache

    def look(self, tokens: Int[Tensor, "batch new"], cache: Cache) -> Logits:
        """Logits of new tokens that the cache does not keep, until `commit` makes them past.

        Raises `ContextOverflow` or `CacheFull` where there is no room for them, before anything is written.
        """
        past, new, padding = cache.length, tokens.size(1), cache.padding
        self.require_positions(past, new)
        cache.reserve(new)
        mask = self.attention_mask(past, new, padding)  # None where all is visible, as to one new token
        x = self.transformer.wte(tokens) + self.transformer.wpe(self.position_ids(past, new, padding))
        for layer, block in enumerate(self.transformer.h):
            x = block(x, mask, cache, layer)
        return F.linear(self.transformer.ln_f(x), self.transformer.wte.weight)  # the embedding is the output matrix
