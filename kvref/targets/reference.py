"""The reference as a target: the GPT-2 of `kvref.gpt2` with either of its caches, in many small shapes."""

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file  # pyright: ignore[reportUnknownVariableType] - paths untyped
from torch import Tensor, nn
from typing_extensions import override

from kvref import weights
from kvref.cache import Cache, GrowingCache, Rows, StaticCache
from kvref.capability import Capability
from kvref.choices import Sources
from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.generate import BatchGeneration, Session
from kvref.gpt2 import GPT, CausalSelfAttention
from kvref.operations import count
from kvref.prompts import BYTE_VOCAB, byte_encoding, encode
from kvref.protocol import Logits, Tokens
from kvref.speculate import Propose, Speculation
from kvref.targets.base import DTYPES, Bench

SHAPES = (
    GPTConfig(block_size=8, vocab_size=7, n_layer=1, n_head=1, n_embd=4),
    GPTConfig(block_size=12, vocab_size=13, n_layer=2, n_head=2, n_embd=8),
    GPTConfig(block_size=16, vocab_size=17, n_layer=2, n_head=3, n_embd=15),
    GPTConfig(block_size=9, vocab_size=11, n_layer=3, n_head=4, n_embd=8, n_kv_head=1),
    GPTConfig(block_size=20, vocab_size=19, n_layer=2, n_head=4, n_embd=16, n_kv_head=2),
    GPTConfig(block_size=24, vocab_size=BYTE_VOCAB, n_layer=2, n_head=2, n_embd=16),
)
"""Tiny shapes find the bugs that big ones have, sooner and smaller: one layer and several, odd widths, more heads than
head dims and fewer, heads that share keys and values, a vocabulary that text fits into."""

SEEDS = 3
"""Sets of weights for each shape."""


class GrowingDecoder:
    """The reference with a growing cache."""

    preallocates = False

    def __init__(self, model: GPT, cache_class: type[Cache] = GrowingCache) -> None:
        config = model.config
        self.model, self.cache_class = model, cache_class
        self.vocab_size, self.block_size = config.vocab_size, config.block_size
        self.n_layer, self.n_head = config.n_layer, config.n_head
        self.n_kv_head, self.head_dim = config.kv_heads, config.head_dim
        self.dtype, self.device = model.transformer.wte.weight.dtype, model.transformer.wte.weight.device

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a past."""
        return self.model(tokens)[0]

    def start(self, batch: int, capacity: int | None) -> Cache:
        """Start an empty cache; it learns its batch from the first tokens."""
        del batch, capacity
        return self.cache_class()

    def step(self, cache: Cache, tokens: Tokens) -> tuple[Logits, Cache]:
        """One pass over the new tokens."""
        return self.model(tokens, cache)

    def prefill(self, cache: Cache, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Cache]:
        """One pass over the first tokens, some of which are padding."""
        before, cache.padding = cache.padding, torch.tensor(list(padding), device=self.device)
        try:
            return self.model(tokens, cache)
        except BaseException:
            cache.padding = before
            raise

    def peek(self, cache: Cache, tokens: Tokens) -> Logits:
        """One pass over new tokens that the cache does not keep."""
        return self.model.look(tokens, cache)

    def length(self, cache: Cache) -> int:
        """Tokens in the longest row of the cache."""
        return max(cache.lengths, default=0)

    def lengths(self, cache: Cache) -> list[int]:
        """Tokens in each row."""
        return cache.lengths

    def keys_values(self, cache: Cache, layer: int) -> tuple[Rows, Rows]:
        """Keys and values of the past tokens."""
        return cache.keys_values(layer)

    def bytes(self, cache: Cache) -> int:
        """Memory that the cache holds."""
        return cache.bytes

    def tensors(self, cache: Cache) -> list[Tensor]:
        """Every tensor that the cache keeps alive."""
        return cache.tensors()

    def layers(self) -> list[nn.Module]:
        """Blocks of the model."""
        return list(self.model.transformer.h)

    def crop(self, cache: Cache, length: int) -> Cache:
        """Keep the first `length` tokens."""
        cache.crop(length)
        return cache

    def crop_rows(self, cache: Cache, lengths: Sequence[int]) -> Cache:
        """Keep the first tokens of each row."""
        cache.crop_rows(lengths)
        return cache

    def refill(self, cache: Cache, row: int, tokens: Tokens) -> tuple[Logits, Cache]:
        """Run the first tokens of a request alone, and give it a row."""
        logits, alone = self.model(tokens, self.start(1, None))
        cache.insert(row, alone)
        return logits, cache

    def save(self, cache: Cache, path: Path) -> None:
        """Write a cache to a safetensors file."""
        save_file({name: tensor.contiguous() for name, tensor in cache.state().items()}, path)

    def restore(self, path: Path) -> Cache:
        """Read a cache from a file into a new one."""
        state = load_file(path, device=str(self.device))
        cache = self.room_for(state)
        cache.load(state)
        return cache

    def room_for(self, state: dict[str, Tensor]) -> Cache:
        """Give an empty cache that takes what was saved."""
        del state
        return self.cache_class()

    def fork(self, cache: Cache) -> Cache:
        """Copy a cache."""
        return cache.fork()

    def reorder(self, cache: Cache, rows: Sequence[int]) -> Cache:
        """Make the batch of these rows."""
        cache.reorder(rows)
        return cache

    def reset(self, cache: Cache) -> Cache:
        """Forget everything."""
        cache.reset()
        return cache

    def without_mask(self) -> "GrowingDecoder":
        """Give the same weights without a causal mask."""
        unmasked = weights.empty_model(self.model.config, self.dtype, "meta", Unmasked)
        unmasked.transformer = self.model.transformer
        return self.with_model(unmasked)

    def independent(self, tokens: Tokens) -> Logits:
        """The healthy model with the same weights, in float64: what a variant of it should give."""
        healthy = weights.empty_model(self.model.config, torch.float64, str(self.device), GPT)
        healthy.load_state_dict(self.model.state_dict())
        return healthy(tokens)[0]

    def with_all_heads(self) -> "GrowingDecoder":
        """Give the same model with as many heads of keys and values as of queries."""
        return self.with_model(weights.with_all_heads(self.model))

    def with_model(self, model: GPT) -> "GrowingDecoder":
        """Give the same decoder around another model."""
        other = copy(self)
        other.model, other.n_kv_head = model, model.config.kv_heads
        return other


class StaticDecoder(GrowingDecoder):
    """The reference with a preallocated cache."""

    preallocates = True

    def __init__(self, model: GPT, cache_class: type[StaticCache] = StaticCache) -> None:
        super().__init__(model)
        self.static_cache_class = cache_class

    @override
    def start(self, batch: int, capacity: int | None) -> StaticCache:
        slots = self.block_size if capacity is None else capacity
        shape = self.n_layer, batch, self.n_kv_head, slots, self.head_dim
        return self.static_cache_class(*shape, self.dtype, self.device)

    @override
    def room_for(self, state: dict[str, Tensor]) -> StaticCache:
        return self.start(state["keys"].size(1), int(state["capacity"]))

    def poison(self, cache: StaticCache, value: float) -> StaticCache:
        """Fill every free slot."""
        cache.poison(value)
        return cache


class Unmasked(GPT):
    """A model in which every token sees every other: the control that shows what causality is good for."""

    @override
    def causal_mask(self, past: int, new: int) -> Tensor | None:
        return None


DECODERS: dict[str, type[GrowingDecoder]] = {"growing": GrowingDecoder, "static": StaticDecoder}
"""Kinds of cache that the reference has."""

Loop = type[Session] | type[Speculation] | type[BatchGeneration]
"""A class of a loop around the model."""

Part = type[GPT] | type[CausalSelfAttention] | type[Cache] | type[GrowingDecoder] | Loop
"""A class of the reference that someone has derived from: the model, its attention, a cache, the decoder around them,
or a loop around that."""

PARTS = GPT, CausalSelfAttention, Cache, GrowingDecoder, Session, Speculation, BatchGeneration
"""What a part derives from."""


@dataclass(frozen=True)
class ReferenceTarget:
    """The reference with one kind of cache, or a variant of it in which `part` replaces the class it derives from.

    `called` are the arguments that lead to it, where they are not its name.
    """

    name: str
    kind: str
    bench: Bench
    part: Part | None = None
    called: str = ""

    @property
    def command(self) -> str:
        """Arguments of `kvref check` that lead to it."""
        return (self.called or self.name) + self.bench.flags

    def decoders(self) -> Sequence[Decoder]:
        """Every shape with every set of weights, the simplest first."""
        return self.all_decoders

    def capabilities(self) -> frozenset[Capability]:
        """What the reference offers with this cache, in any of its shapes."""
        return frozenset[Capability]().union(*(decoder.capabilities for decoder in self.all_decoders))

    def refusals(self) -> Mapping[Capability, str]:
        """Why a variant offers less, as far as it says."""
        return self.all_decoders[0].refuses

    @cached_property
    def all_decoders(self) -> list[Decoder]:
        """One decoder for each shape, set of weights and dtype."""
        dtypes = self.bench.dtypes or DTYPES
        return [
            self.decoder(self.fitted(shape), seed, dtype)
            for shape in SHAPES
            for seed in range(SEEDS)
            for dtype in dtypes
        ]

    def sources(self, decoder: Decoder) -> Sources:
        """The user's text or prompt, or any tokens."""
        return self.bench.sources(decoder)

    def fitted(self, shape: GPTConfig) -> GPTConfig:
        """Give a shape a vocabulary and a context that the user's text and prompt fit into."""
        if self.bench.text is not None or self.bench.prompt is not None:
            shape = replace(shape, vocab_size=BYTE_VOCAB)
        prompt = [] if self.bench.prompt is None else encode(self.bench.prompt, byte_encoding())
        return replace(shape, block_size=max(shape.block_size, len(prompt) + 1))

    def decoder(self, shape: GPTConfig, seed: int, dtype: torch.dtype = torch.float32) -> Decoder:
        """One decoder; the same arguments give the same weights."""
        model_class = self.part if self.part and issubclass(self.part, GPT) else GPT
        model = weights.loud(shape, seed, dtype, self.bench.device, model_class)
        name = f"{self.name} ({describe(shape)}, weights {seed}, {str(dtype).removeprefix('torch.')})"
        return Decoder(assemble(self.kind, model, self.part), name, self.bench.lens_for(dtype))


def describe(shape: GPTConfig) -> str:
    """A shape in words."""
    layers, heads = count(shape.n_layer, "layer"), count(shape.n_head, "head")
    shared = "" if shape.kv_heads == shape.n_head else f" over {shape.kv_heads} of keys and values"
    return (
        f"{layers}, {heads} of {shape.head_dim}{shared}, block_size {shape.block_size}, vocab_size {shape.vocab_size}"
    )


def assemble(kind: str, model: GPT, part: Part | None = None) -> GrowingDecoder:
    """Put a model behind a kind of cache, with the attention, cache, decoder or loop class given as `part`."""
    if part is None or issubclass(part, GPT):
        return DECODERS[kind](model)
    if issubclass(part, Session | Speculation | BatchGeneration):
        return with_loop(DECODERS[kind](model), part)
    if issubclass(part, CausalSelfAttention):
        return DECODERS[kind](with_attention(model, part))
    if issubclass(part, GrowingDecoder):
        return part(model)
    if issubclass(part, StaticCache):
        return StaticDecoder(model, part)
    return GrowingDecoder(model, part)


def with_attention(model: GPT, kind: type[CausalSelfAttention]) -> GPT:
    """Give a copy of a model with another class of attention in each layer: models are shared, so it stays as it is."""
    other = deepcopy(model)
    for module in other.modules():
        if isinstance(module, CausalSelfAttention):
            module.__class__ = kind
    return other


def with_loop(decoder: GrowingDecoder, loop: Loop) -> GrowingDecoder:
    """Give a decoder a loop of its own, in place of that of kvref."""
    own: Any = decoder
    if issubclass(loop, Session):
        own.session = lambda: loop(decoder)
    elif issubclass(loop, Speculation):

        def speculate(prompt: Tokens, max_new_tokens: int, propose: Propose) -> list[list[int]]:
            return loop(decoder, propose).generate(prompt, max_new_tokens)

        own.speculate = speculate
    else:

        def generate_batch(prompts: Sequence[Sequence[int]], max_new_tokens: int, end: int) -> list[list[int]]:
            return loop(decoder, end).generate(prompts, max_new_tokens)

        own.generate_batch = generate_batch
    return decoder


def kind_of(part: Part, kind: str | None, name: str) -> str:
    """Kind of cache that a variant is tested with; raise `TargetError` when another is asked for than it has."""
    static = issubclass(part, StaticCache | StaticDecoder)
    either = not issubclass(part, Cache | GrowingDecoder)
    fixed = None if either else "static" if static else "growing"
    if kind is not None and fixed not in (None, kind):
        raise TargetError(f"{name} is about the {fixed} cache; it cannot be had with the {kind} one")
    return kind or fixed or "growing"
