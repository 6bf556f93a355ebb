"""GPT-2 (Radford et al., 2019) with a KV cache, for inference. Its modules have the names of published checkpoints.

A cache is allowed because the model is causal: keys and values of a token come from it and those before it, so they
never change. What people get wrong most is a method of its own, here or in `kvref.cache`.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from kvref.cache import Cache, GrowingCache, Padding
from kvref.config import GPTConfig
from kvref.errors import ContextOverflow

Hidden = Float[Tensor, "batch new n_embd"]
"""A vector for each token of a call."""

Mask = Bool[Tensor, "*batch new total"]
"""Which of the `total` = past + new keys each new token sees. Of padded rows each has its own, for all heads."""


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
        """The cache takes the new keys and values, and gives back all. Without a mask every key is visible."""
        q, k, v = (self.split_heads(part) for part in self.c_attn(x).split(self.widths, dim=-1))
        k, v = (self.repeat_heads(part) for part in cache.append(layer, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(self.merge_heads(y))

    def split_heads(self, x: Float[Tensor, "batch new width"]) -> Float[Tensor, "batch heads new head_dim"]:
        """Cut, then swap axes: `view(batch, heads, new, head_dim)` has that shape too, and mixes heads with time."""
        return x.view(x.size(0), x.size(1), -1, self.head_dim).transpose(1, 2)

    def repeat_heads(
        self, x: Float[Tensor, "batch n_kv_head total head_dim"]
    ) -> Float[Tensor, "batch n_head total head_dim"]:
        """Give each query head its head of keys or values: four query heads use heads 0 0 1 1 of two, not 0 1 0 1."""
        repeats = self.n_head // x.size(1)
        return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)

    def merge_heads(self, y: Float[Tensor, "batch n_head new head_dim"]) -> Hidden:
        """Undo `split_heads`: swap the axes back, then join the heads."""
        return y.transpose(1, 2).flatten(-2)


class MLP(nn.Module):
    """The half of a block that looks at no other token, and needs no cache."""

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
        """Normalise before each half, not behind it."""
        x = x + self.attn(self.ln_1(x), mask, cache, layer)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """What names in checkpoints begin with; `GPT.forward` runs it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)


class GPT(nn.Module):
    """GPT-2: tokens in, logits out, and a cache that keeps their keys and values for the next call."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = Transformer(config)

    def forward(
        self,
        tokens: Int[Tensor, "batch new"],
        cache: Cache | None = None,
        padding: Padding | None = None,
        commit: bool = True,
    ) -> tuple[Float[Tensor, "batch new vocab_size"], Cache]:
        """Logits of every new token, and the cache: a new one where none is given.

        New tokens count as past from `cache.commit` on; if a pass dies, or `commit` is False, the past stays as it was.
        `padding` is how many columns fill each row up at the left; it is taken with the first tokens, and kept.

        Raises `ContextOverflow`, or `CacheFull` where slots are lacking, before anything is written.
        """
        cache = GrowingCache() if cache is None else cache
        past, new = cache.length, tokens.size(1)
        self.require_positions(past, new)
        cache.reserve(new)
        padding = cache.padding if past else padding
        mask = self.attention_mask(past, new, padding)
        x = self.transformer.wte(tokens) + self.transformer.wpe(self.position_ids(past, new, padding))
        for layer, block in enumerate(self.transformer.h):
            x = block(x, mask, cache, layer)
        # The token embedding serves as output matrix too.
        logits = F.linear(self.transformer.ln_f(x), self.transformer.wte.weight)
        if commit:
            cache.commit(new, padding)
        return logits, cache

    def require_positions(self, past: int, new: int) -> None:
        """Refuse columns beyond the last position; were they clamped to it, nobody would notice."""
        if not 1 <= new <= self.config.block_size - past:
            raise ContextOverflow(
                f"{new} new tokens onto {past} cached ones; this model takes at least 1 new token and "
                f"{self.config.block_size} in all: give fewer, or crop or reset the cache"
            )

    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> Int[Tensor, "*batch new"]:
        """Go on where the past ends: counted from 0 again, each decoded token is the first. Padding does not count."""
        columns = torch.arange(past, past + new, device=self.transformer.wpe.weight.device)
        return columns if padding is None else (columns - padding[:, None]).clamp(min=0)

    def attention_mask(self, past: int, new: int, padding: Padding | None) -> Mask | None:
        """Visible is what is causal and no padding. A padded query sees nothing; torch gives it zeros."""
        causal = self.causal_mask(past, new)
        if padding is None:
            return causal
        real = self.padding_mask(past + new, padding)
        return real if causal is None else causal & real

    def causal_mask(self, past: int, new: int) -> Bool[Tensor, "new total"] | None:
        """Each new token sees the past and the new ones up to itself: two onto a past of two, `1110` and `1111`.

        For several onto a past, `is_causal=True`, a triangle at the upper left (pytorch/pytorch#108108), is wrong, and
        so is no mask.
        """
        if new == 1:
            return None
        visible = torch.ones(new, past + new, dtype=torch.bool, device=self.transformer.wpe.weight.device)
        return visible.tril(diagonal=past)

    def padding_mask(self, total: int, padding: Padding) -> Bool[Tensor, "batch 1 1 total"]:
        """Hide padding from all heads and new tokens, in every call: its keys stay cached."""
        columns = torch.arange(total, device=padding.device)
        return (columns >= padding[:, None])[:, None, None]
