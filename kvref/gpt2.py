"""GPT-2 with a KV cache: read it top to bottom, it is the whole model.

Model: Radford et al., *Language Models are Unsupervised Multitask Learners*, 2019.
Cache: Shazeer, *Fast Transformer Decoding: One Write-Head is All You Need*, arXiv:1911.02150.
Modules have the names that published checkpoints use, and `kvref.weights` loads those. There is no dropout, since the
model is for inference: run it under `torch.no_grad`, or the cache keeps the graph of every pass.

A cache is allowed because the model is causal: the keys and values of a token are made from that token and
those before it, so once made they never change. What people get wrong most is a small method here or in
`kvref.cache`, and its docstring says what goes wrong there.

Shapes stand in the annotations (jaxtyping). A call runs `new` tokens, and attention reads `total` = past + new columns.
A mask is (new, total), or (batch, 1, new, total) where rows are padded; `*batch` stands for nothing, or for (batch, 1).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from kvref.cache import Cache, GrowingCache, Padding
from kvref.errors import ConfigError, ContextOverflow


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a GPT-2. The defaults are GPT-2 small, 124 M parameters.

    `n_kv_head` counts the heads of keys and values. None is GPT-2's own: one for each query head. Fewer, each shared by
    the same number of query heads, are grouped-query attention (Ainslie et al., arXiv:2305.13245), and one head for
    all is multi-query attention (Shazeer, above).

    Raises `ConfigError` for a size below one, and where `n_head` does not divide `n_embd`, or `n_kv_head` not `n_head`.
    """

    block_size: int = 1024
    vocab_size: int = 50257
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_kv_head: int | None = None

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size is not None and size < 1:
                raise ConfigError(f"{name} is {size}; it must be at least 1")
        if self.n_embd % self.n_head:
            raise ConfigError(
                f"n_head {self.n_head} does not divide n_embd {self.n_embd}; every head needs the same width"
            )
        if self.n_head % self.kv_heads:
            raise ConfigError(
                f"n_kv_head {self.kv_heads} does not divide n_head {self.n_head}; "
                "each must serve the same number of query heads"
            )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values: `n_kv_head`, or where that is None, `n_head`."""
        return self.n_head if self.n_kv_head is None else self.n_kv_head

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.n_embd // self.n_head


SIZES = {
    "gpt2": GPTConfig(),
    "gpt2-medium": GPTConfig(n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": GPTConfig(n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": GPTConfig(n_layer=48, n_head=25, n_embd=1600),
}


class CausalSelfAttention(nn.Module):
    """Every token looks at itself and at the tokens before it, cached or new."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head, self.head_dim = config.n_head, config.head_dim
        kv_width = config.kv_heads * config.head_dim
        self.widths = [config.n_embd, kv_width, kv_width]  # of q, k and v, in the order of the checkpoints
        self.c_attn = nn.Linear(config.n_embd, sum(self.widths))
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(
        self,
        x: Float[Tensor, "batch new n_embd"],
        mask: Bool[Tensor, "*batch new total"] | None,
        cache: Cache,
        layer: int,
    ) -> Float[Tensor, "batch new n_embd"]:
        """Attend from the new tokens to the past and to themselves.

        The cache takes the new keys and values, and gives back those of the past with the new ones after them. Queries
        stay out of it: a query is used in the pass that makes it and never again.
        """
        q, k, v = (self.split_heads(part) for part in self.c_attn(x).split(self.widths, dim=-1))
        k, v = (self.repeat_heads(part) for part in cache.append(layer, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(self.merge_heads(y))

    def split_heads(self, x: Float[Tensor, "batch new width"]) -> Float[Tensor, "batch heads new head_dim"]:
        """Cut the width into heads.

        The view must cut the last axis and only then swap axes: `view(batch, heads, new, head_dim)` has the
        right shape too, and is even right for one token, but it mixes heads with time.
        """
        return x.view(x.size(0), x.size(1), -1, self.head_dim).transpose(1, 2)

    def repeat_heads(
        self, x: Float[Tensor, "batch n_kv_head total head_dim"]
    ) -> Float[Tensor, "batch n_head total head_dim"]:
        """Give each query head its head of keys or values; neighbours share one: 0 0 1 1.

        Tiled, 0 1 0 1, the shape is the same, and half of these four heads read keys that are not theirs. The copies
        live as long as this pass; what the cache holds is not repeated.
        """
        repeats = self.n_head // x.size(1)
        return x if repeats == 1 else x.repeat_interleave(repeats, dim=1)

    def merge_heads(self, y: Float[Tensor, "batch n_head new head_dim"]) -> Float[Tensor, "batch new n_embd"]:
        """Put the heads side by side again: swap axes first, for the reason of `split_heads`."""
        return y.transpose(1, 2).flatten(-2)


class MLP(nn.Module):
    """The position-wise half of a block; it never looks at another token, so it needs no cache."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Float[Tensor, "batch new n_embd"]) -> Float[Tensor, "batch new n_embd"]:
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

    def forward(
        self,
        x: Float[Tensor, "batch new n_embd"],
        mask: Bool[Tensor, "*batch new total"] | None,
        cache: Cache,
        layer: int,
    ) -> Float[Tensor, "batch new n_embd"]:
        """Normalise before each half, as GPT-2 does."""
        x = x + self.attn(self.ln_1(x), mask, cache, layer)
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):
    """The parts of GPT-2 under the names that checkpoints give them; `GPT.forward` below runs them."""

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
        """Logits of every new token, and the cache, of which they are now part.

        The pass has three steps: `reserve` makes sure that there is room, each layer appends its keys and values to
        the same past, and `commit` counts them as past, once, at the end. So a pass that dies half-way leaves the past
        as it was, and with `commit=False` the logits are looked at and the next call goes on as if they had not been.

        Without a cache the tokens are the whole sequence, and a new growing cache comes back. Prompts of different
        lengths are filled up at the left: `padding` counts the filling columns of each row. It is read with the first
        tokens alone; from then on the cache has it.

        Raises `ContextOverflow` or `CacheFull` before anything is written, and what was cached stays usable.
        """
        cache = GrowingCache() if cache is None else cache
        past, new = cache.length, tokens.size(1)
        self.require_room(past, new)
        cache.reserve(new)
        padding = cache.padding if past else padding
        mask = self.attention_mask(past, new, padding)
        x = self.transformer.wte(tokens) + self.transformer.wpe(self.position_ids(past, new, padding))
        for layer, block in enumerate(self.transformer.h):
            x = block(x, mask, cache, layer)
        logits = self.lm_head(self.transformer.ln_f(x))
        if commit:
            cache.commit(new, padding)
        return logits, cache

    def require_room(self, past: int, new: int) -> None:
        """Refuse tokens beyond the last position, while nothing is written yet.

        Without this check the position embedding fails deep in the forward pass, or, where the index is clamped to the
        last position, every token beyond it repeats that position in silence.
        """
        if not 1 <= new <= self.config.block_size - past:
            raise ContextOverflow(
                f"{new} new tokens onto {past} cached ones; this model takes at least 1 new token and "
                f"{self.config.block_size} in all: give fewer, or crop or reset the cache"
            )

    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> Int[Tensor, "*batch new"]:
        """Positions of the new tokens: they go on where the past ends.

        Counting from 0 in every call puts each generated token at position 0. A padded row has fewer tokens than the
        cache has columns, so its positions are its own; those of the padding itself do not matter.
        """
        columns = torch.arange(past, past + new, device=self.transformer.wpe.weight.device)
        return columns if padding is None else (columns - padding[:, None]).clamp(min=0)

    def attention_mask(self, past: int, new: int, padding: Padding | None) -> Bool[Tensor, "*batch new total"] | None:
        """Which keys each new token may see (True); None if it may see all that there are.

        A hidden key gets a weight of exactly zero. A column of padding in a prefill sees nothing at all; torch makes
        its attention zero and not NaN, and no token looks at it.
        """
        causal = self.causal_mask(past, new)
        if padding is None:
            return causal
        real = self.padding_mask(past + new, padding)
        return real if causal is None else causal & real

    def causal_mask(self, past: int, new: int) -> Bool[Tensor, "new total"] | None:
        """Each new token sees the whole past and the new tokens up to itself, and none after it.

        A prefill (no past) has the square causal mask, and a single token needs no mask, since all there is are its
        past and itself. Several tokens onto a past need the same triangle **at the lower right**, to the right of
        `past` columns that all may see. Two shortcuts, common elsewhere, are wrong there: `is_causal=True` means the
        upper left corner, which hides most of the past (pytorch/pytorch#108108), and `is_causal=(cache is None)` drops
        the mask, so that the tokens of a chunk see each other's future.
        """
        if new == 1:
            return None
        visible = torch.ones(new, past + new, dtype=torch.bool, device=self.transformer.wpe.weight.device)
        return visible.tril(diagonal=past)

    def padding_mask(self, total: int, padding: Padding) -> Bool[Tensor, "batch 1 1 total"]:
        """No token sees padding. Its keys are in the cache like all others, so every call must hide it."""
        columns = torch.arange(total, device=padding.device)
        return (columns >= padding[:, None])[:, None, None]

    def lm_head(self, x: Float[Tensor, "batch new n_embd"]) -> Float[Tensor, "batch new vocab_size"]:
        """Logits: the token embedding serves as output matrix too."""
        return F.linear(x, self.transformer.wte.weight)
