"""What public disputes are rebuilt of: small models and caches, some of them wrong, and both ways to their logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from kvref import weights
from kvref.cache import Cache, GrowingCache, Padding, Rows, StaticCache
from kvref.config import GPTConfig
from kvref.gpt2 import GPT
from kvref.protocol import Logits, Tokens
from kvref.scaling import Cached, Full

SHAPE = GPTConfig(block_size=24, vocab_size=17, n_layer=2, n_head=2, n_embd=16)
SPLITS = (5, 1, 3, 1, 2)
"""A prefill, single tokens, and chunks onto a past."""


@dataclass(frozen=True)
class Pair:
    """Both ways to the same logits, and what to run them on."""

    full: Full
    cached: Cached
    dtype: torch.dtype
    tokens: Tokens


def draw_tokens(seed: int, vocab_size: int) -> Tokens:
    """Tokens for a seed, in two rows."""
    return torch.randint(vocab_size, (2, sum(SPLITS)), generator=torch.Generator().manual_seed(seed))


def chunks(tokens: Tokens, splits: Sequence[int]) -> Sequence[Tokens]:
    """Tokens cut into chunks."""
    return cast("Sequence[Tokens]", torch.split(tokens, list(splits), dim=1))


def in_chunks(model: GPT, new_cache: Callable[[], Cache], tokens: Tokens, splits: Sequence[int]) -> Logits:
    """Logits of every token, with a cache."""
    cache, logits = new_cache(), list[Tensor]()
    for chunk in chunks(tokens, splits):
        new, cache = model(chunk, cache)
        logits.append(new)
    return torch.cat(logits, dim=1)


def same_weights(model: GPT, kind: type[GPT]) -> GPT:
    """A model of another class around the same weights."""
    with torch.device("meta"):
        other = kind(model.config)
    other.transformer = model.transformer
    return other.eval()


def quiet(seed: int, dtype: torch.dtype) -> GPT:
    """A model as GPT-2 is initialised, with std 0.02, where attention is almost uniform."""
    model = weights.empty_model(SHAPE, dtype, "cpu")
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = 0.02 * torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(1 + noise if ".ln_" in name and name.endswith("weight") else noise)
    return model.requires_grad_(False)


def pair(
    seed: int,
    dtype: torch.dtype,
    cache: Callable[[], Cache] = GrowingCache,
    kind: type[GPT] = GPT,
    make: Callable[[int, torch.dtype], GPT] | None = None,
) -> Pair:
    """The reference without a cache beside a model and a cache of other classes with its weights."""
    model = make(seed, dtype) if make else weights.loud(SHAPE, seed, dtype)
    stepwise = same_weights(model, kind)

    def full(tokens: Tokens) -> Logits:
        return model(tokens)[0]

    return Pair(full, partial(in_chunks, stepwise, cache), dtype, draw_tokens(seed, SHAPE.vocab_size))


def static(kind: type[StaticCache], dtype: torch.dtype) -> StaticCache:
    """An empty preallocated cache for the two rows."""
    return kind(SHAPE.n_layer, 2, SHAPE.n_head, SHAPE.block_size, SHAPE.head_dim, dtype)


class StaleKey(GrowingCache):
    """The last key of each call in the first layer is that of the token before."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        if layer == 0 and self.length:
            keys = torch.cat([keys[:, :, :-1], keys[:, :, -2:-1]], dim=2)
        return keys, values


class ScalesValues(GrowingCache):
    """Values that are read are too large by 1e-5."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        return keys, values * (1 + 1e-5) if self.length else values


class ScalesByHeadDim(GrowingCache):
    """Scores onto a past are divided by the head dim instead of its root."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        return keys * keys.size(-1) ** -0.5 if self.length else keys, values


class TurnsThePast(GrowingCache):
    """The past is read from where a ring buffer happens to have its seam."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        past = self.length
        turned = [*range(past // 3, past), *range(past // 3), *range(past, keys.size(2))]
        return keys[:, :, turned], values[:, :, turned]


class KeepsKeysRotated(GrowingCache):
    """Keys are kept times a Hadamard matrix, so that they quantise well, and turned back when they are read."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        two = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=keys.dtype)
        hadamard = torch.kron(torch.kron(two, two), two)
        keys, values = super().append(layer, keys @ hadamard, values)
        return keys @ hadamard / len(hadamard), values


class StoresBfloat16(GrowingCache):
    """Keys and values are kept in bfloat16, and read in the dtype of the model."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        stored = super().append(layer, keys.to(torch.bfloat16), values.to(torch.bfloat16))
        return stored[0].to(keys.dtype), stored[1].to(keys.dtype)


class StoresCoarsely(StaticCache):
    """Keys and values are written into a buffer of another dtype, and read in the dtype of the model."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        stored = super().append(layer, keys, values)
        return stored[0].to(keys.dtype), stored[1].to(keys.dtype)


class ReadsTheWholeBuffer(StaticCache):
    """Free slots are read too, and hold what memory held; the mask hides them."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        self.poison(float("nan"))
        super().append(layer, keys, values)
        return self.keys[layer], self.values[layer]


class MasksTheWholeBuffer(GPT):
    """The mask is as wide as the buffer."""

    @override
    def causal_mask(self, past: int, new: int) -> Tensor:
        return torch.ones(new, self.config.block_size, dtype=torch.bool).tril(diagonal=past)


class TopLeft(GPT):
    """Chunks onto a past get the mask that `is_causal=True` means."""

    @override
    def causal_mask(self, past: int, new: int) -> Tensor | None:
        return None if new == 1 else torch.ones(new, past + new, dtype=torch.bool).tril()


class SeesTheMean(GPT):
    """Embeddings are centred over the tokens of the call: without a cache each sees those behind it."""

    @override
    def look(self, tokens: Tokens, cache: Cache) -> Logits:
        def centred(_: object, __: object, x: Tensor) -> Tensor:
            return x - x.mean(dim=1, keepdim=True)

        hook = self.transformer.wte.register_forward_hook(centred)
        try:
            return super().look(tokens, cache)
        finally:
            hook.remove()


def centred(seed: int) -> Pair:
    """A model that is not causal without a cache, beside itself with one."""
    model = same_weights(weights.loud(SHAPE, seed), SeesTheMean)

    def full(tokens: Tokens) -> Logits:
        return model(tokens)[0]

    return Pair(full, partial(in_chunks, model, GrowingCache), torch.float32, draw_tokens(seed, SHAPE.vocab_size))


PAD = 3


class Padded(GPT):
    """Sees `PAD` tokens of padding on the left, and neither attends to them nor counts them."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> Tensor:
        return (super().position_ids(past, new, padding) - PAD).clamp_min(0)

    @override
    def attention_mask(self, past: int, new: int, padding: Padding | None = None) -> Tensor:
        visible = torch.ones(new, past + new, dtype=torch.bool).tril(diagonal=past)
        hidden = torch.arange(past + new) < PAD
        # Padding sees itself, so that no row is without a key.
        return (visible & ~hidden) | torch.eye(past + new, dtype=torch.bool)[past:]


class CountsPadding(Padded):
    """Positions are right in the prefill, and count the padding afterwards."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> Tensor:
        return GPT.position_ids(self, past, new) if past else super().position_ids(past, new, padding)


def padded(seed: int, kind: type[GPT]) -> Pair:
    """Rows alone beside the same rows with padding in front."""
    plain = pair(seed, torch.float32, kind=kind)

    def cached(tokens: Tokens, splits: Sequence[int]) -> Logits:
        padding = torch.zeros(tokens.size(0), PAD, dtype=torch.long)
        first, *rest = splits
        return plain.cached(torch.cat([padding, tokens], dim=1), [first + PAD, *rest])[:, PAD:]

    return Pair(plain.full, cached, plain.dtype, plain.tokens)


def kept_cache(seed: int) -> Pair:
    """A preallocated cache that was made long before, and is emptied for each request."""
    the_cache = static(StaticCache, torch.float32)

    def emptied() -> Cache:
        the_cache.reset()
        return the_cache

    return pair(seed, torch.float32, emptied)


def transformers_model(seed: int, model_type: str, dtype: torch.dtype, shift: int = 0) -> Pair:
    """A tiny model of transformers with its own cache; decoded tokens stand `shift` too far, where that is given."""
    from kvref.targets.causal_lm import CausalLM
    from kvref.targets.tiny import tiny_model

    model = CausalLM(tiny_model(model_type, seed, "eager", dtype))

    def positions(past: int, tokens: Tokens) -> dict[str, Tensor]:
        first = past + shift if past else 0
        return {"position_ids": torch.arange(first, first + tokens.size(1)).expand_as(tokens)}

    if shift:
        model.positions = positions

    def cached(tokens: Tokens, splits: Sequence[int]) -> Logits:
        logits, cache = list[Tensor](), model.start(tokens.size(0), None)
        for chunk in chunks(tokens, splits):
            new, cache = model.step(cache, chunk)
            logits.append(new)
        return torch.cat(logits, dim=1)

    return Pair(model.full, cached, dtype, draw_tokens(seed, model.vocab_size))
