"""The bill of a KV cache by formula: bytes, token passes, reads and FLOPs, from the shape of a model alone.

In formulas L is n_layer, d is n_embd, Hkv and Dh are the heads of keys and values and their width, s the bytes of a
number, V the vocabulary, and N the tokens. `kvref.measure.counted` finds the same numbers by running the real code.

A *token pass* is one token that goes once through the model. A position t counts from 0.
"""

from dataclasses import dataclass

import torch

from kvref.config import GPTConfig


@dataclass(frozen=True)
class Flops:
    """Floating-point operations, of which a multiplication and its addition are two; what is cheaper is left out."""

    linear: int
    """In the layers of each block: q, k and v, the projection, the MLP."""
    attention: int
    """Of queries with keys, and of weights with values. Masked pairs count, since they are computed too."""
    head: int
    """Of the last hidden states with the vocabulary."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.linear + self.attention + self.head

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.linear + other.linear, self.attention + other.attention, self.head + other.head)


@dataclass(frozen=True)
class Uses:
    """What happens to the q, k and v of one position in one layer, until the last token is through."""

    computed: int
    """Times that each of the three is computed."""
    query: int
    """Times that the query is read."""
    key: int
    """Queries that read the key, in all passes."""
    value: int
    """Queries that read the value, in all passes."""


def bytes_per_token(config: GPTConfig, dtype: torch.dtype) -> int:
    """Bytes that the cache keeps of one token: 2 * L * Hkv * Dh * s, the 2 for keys and values.

    Grouped-query attention (Ainslie et al., arXiv:2305.13245) makes Hkv smaller, and multi-query attention (Shazeer,
    arXiv:1911.02150) makes it 1.
    """
    return 2 * config.n_layer * config.kv_heads * config.head_dim * dtype.itemsize


def cache_bytes(config: GPTConfig, tokens: int, dtype: torch.dtype, batch: int = 1) -> int:
    """Bytes of the cache of so many tokens in each row."""
    return batch * tokens * bytes_per_token(config, dtype)


def copied_bytes(config: GPTConfig, tokens: int, dtype: torch.dtype, batch: int = 1, prompt: int = 0) -> int:
    """Bytes of the past that a growing cache copies when `tokens` come one by one, behind a prompt in one pass.

    `torch.cat` onto a past of n tokens copies these n, so it is the sum of n from P to P + N - 1: N * P + N(N-1)/2
    tokens. Only rows of the past count. New rows do not, which any cache has to write once; so the first pass, which
    clones its own rows alone, copies nothing. A preallocated cache copies nothing at all.
    """
    rows = tokens * prompt + tokens * (tokens - 1) // 2
    return cache_bytes(config, rows, dtype, batch)


def passes_cached(new: int, prompt: int = 1) -> int:
    """Token passes that generate `new` tokens with a cache: the prompt, then one for each new token but the last.

    The last is sampled, and nobody asks what follows it. Behind a prompt of one token it is N.
    """
    return prompt + new - 1 if new else 0


def passes_naive(new: int, prompt: int = 1) -> int:
    """Token passes that generate `new` tokens without a cache: the prefixes of P to P + N - 1 tokens, each run again.

    Behind a prompt of one token it is N(N+1)/2.
    """
    return new * prompt + new * (new - 1) // 2


def uses_cached(tokens: int, position: int) -> Uses:
    """Uses of a position when so many tokens come one at a time with a cache.

    Its query serves its own row of attention, once. Its key and value are read by itself and by every later token. The
    same holds for any cut of the tokens into passes.
    """
    left = tokens - position
    return Uses(computed=1, query=1, key=left, value=left)


def uses_naive(tokens: int, position: int) -> Uses:
    """Uses of a position when every prefix, of 1 to `tokens` tokens, is run without a cache.

    The N - t prefixes with it compute it again each time. In a prefix of n tokens, n - t queries see its key.
    """
    left = tokens - position
    seen = left * (left + 1) // 2
    return Uses(computed=left, query=left, key=seen, value=seen)


def block_parameters(config: GPTConfig) -> int:
    """Numbers in one block: c_attn, two c_proj and c_fc with their biases, and two norms."""
    d, qkv = config.n_embd, config.n_embd + 2 * config.kv_heads * config.head_dim
    return (d + 1) * qkv + (d + 1) * d + (d + 1) * 4 * d + (4 * d + 1) * d + 4 * d


def parameters(config: GPTConfig) -> int:
    """Numbers in the model, where the head is tied to the token embedding and so counts once."""
    tables = (config.vocab_size + config.block_size) * config.n_embd
    return tables + config.n_layer * block_parameters(config) + 2 * config.n_embd


def weight_bytes(config: GPTConfig, dtype: torch.dtype) -> int:
    """Bytes of the model's parameters."""
    return parameters(config) * dtype.itemsize


def read_bytes(config: GPTConfig, past: int, dtype: torch.dtype, batch: int = 1) -> int:
    """Bytes that one generated token in each row reads at least, onto `past` cached ones: weights, keys and values.

    Of `wpe` only the row of this position is looked up. Of `wte` too, but the tied head reads all of it anyway. Every
    weight counts once for the whole batch, the cache with its newest token for each row.
    """
    weights = parameters(config) - (config.block_size - 1) * config.n_embd
    return weights * dtype.itemsize + cache_bytes(config, past + 1, dtype, batch)


def conversations(config: GPTConfig, tokens: int, dtype: torch.dtype, memory: int) -> int:
    """Conversations of so many tokens whose caches fit into `memory` bytes beside the weights; 0 if not even those."""
    return max(0, memory - weight_bytes(config, dtype)) // cache_bytes(config, tokens, dtype)


def flops(config: GPTConfig, new: int, past: int = 0, batch: int = 1) -> Flops:
    """FLOPs of one pass of `new` tokens onto `past` cached ones."""
    return summed(config, batch * new, batch * new * (past + new))


def summed(config: GPTConfig, tokens: int, pairs: int) -> Flops:
    """FLOPs of so many token passes, in which attention pairs so many queries with keys.

    A product of a vector with an n x m matrix is 2nm. So a token costs 24 d^2 in each layer of a GPT-2: 6 d^2 for q, k
    and v (less with fewer heads of keys and values), 2 d^2 for the projection, 16 d^2 for the MLP. A pair costs 4 d.
    """
    d, kv_width = config.n_embd, config.kv_heads * config.head_dim
    per_token = 2 * d * (d + 2 * kv_width) + 2 * d * d + 16 * d * d
    return Flops(
        linear=config.n_layer * tokens * per_token,
        attention=config.n_layer * pairs * 4 * d,
        head=tokens * 2 * d * config.vocab_size,
    )


def flops_cached(config: GPTConfig, new: int, prompt: int = 1) -> Flops:
    """FLOPs that generate `new` tokens of one row with a cache: the linear layers grow as N, attention as N^2."""
    total = passes_cached(new, prompt)
    return summed(config, total, prompt * prompt + triangle(total) - triangle(prompt) if new else 0)


def flops_naive(config: GPTConfig, new: int, prompt: int = 1) -> Flops:
    """FLOPs that generate `new` tokens of one row without a cache: the linear layers grow as N^2, attention as N^3."""
    return summed(config, passes_naive(new, prompt), pyramid(prompt + new - 1) - pyramid(prompt - 1))


def triangle(n: int) -> int:
    """1 + 2 + ... + n."""
    return n * (n + 1) // 2


def pyramid(n: int) -> int:
    """1 + 4 + ... + n^2."""
    return n * (n + 1) * (2 * n + 1) // 6
