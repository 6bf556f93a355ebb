"""What is timed: the reference at a published size, or a target of the user's, and what is known of its limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kvref.capability import Capability
from kvref.config import SIZES, GPTConfig
from kvref.decoder import Decoder
from kvref.errors import BadInput
from kvref.generate import SeededSampler, generate_cached
from kvref.gpt2 import GPT
from kvref.lens import Lens
from kvref.measure import formulas
from kvref.measure.peers import Loop, transformers_peers
from kvref.protocol import Implementation, Logits, Tokens
from kvref.targets.base import Target
from kvref.targets.causal_lm import CausalLM
from kvref.targets.reference import DECODERS

TINY = GPTConfig(vocab_size=257, n_layer=2, n_head=2, n_embd=16)
"""A shape as laws are tried on, but with the context of GPT-2: what a pass costs beside its arithmetic."""

SHAPES = {"tiny": TINY, **SIZES}
"""Shapes of the reference that can be measured."""


@dataclass(frozen=True)
class Subject:
    """Ways to run the same tokens through the same weights, each an implementation with a cache of its own kind.

    `config` is the shape where it is the reference's.
    """

    name: str
    decoders: Mapping[str, Decoder]
    config: GPTConfig | None = None
    peers: Mapping[str, Loop] = field(default_factory=dict[str, Loop])

    @property
    def ways(self) -> dict[str, Implementation]:
        """What is called: not through the guards of `Decoder`, which take time of their own."""
        return {name: decoder.given for name, decoder in self.decoders.items()}

    @property
    def first(self) -> Decoder:
        """The decoder whose uncached pass is the naive way."""
        return next(iter(self.decoders.values()))

    @property
    def vocab_size(self) -> int:
        """Tokens that there are."""
        return self.first.vocab_size

    @property
    def block_size(self) -> int:
        """The longest sequence."""
        return min(decoder.block_size for decoder in self.decoders.values())

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.first.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that it computes in."""
        return self.first.lens.dtype

    def full(self, tokens: Tokens) -> Logits:
        """One uncached pass."""
        return self.first.given.full(tokens)

    @property
    def weight_bytes(self) -> int | None:
        """Bytes of all weights; None where the implementation does not show a module."""
        held: Any = next((getattr(self.first.given, name, None) for name in ("model", "module")), None)
        if not isinstance(held, nn.Module):
            return None
        return sum(parameter.numel() * parameter.element_size() for parameter in held.parameters())

    @property
    def model(self) -> GPT | None:
        """The reference's model; None for a target of the user's."""
        held = getattr(self.first.given, "model", None)
        return held if self.config is not None and isinstance(held, GPT) else None

    def read_bytes(self, batch: int, past: int) -> int | None:
        """Bytes that a token in each row reads at least, onto a past: of a target's own, the weights alone."""
        if self.config is not None:
            return formulas.read_bytes(self.config, past, self.dtype, batch)
        return self.weight_bytes

    def loop(self, way: str) -> Loop:
        """Greedy generation with a cache."""
        return lambda prompt, new: generate_cached(self.ways[way], prompt, new, SeededSampler())


def reference_subject(name: str, model: GPT, kinds: Sequence[str], *, peers: bool) -> Subject:
    """The reference with these kinds of cache, and its peers if asked for."""
    lens = Lens("tile", model.transformer.wte.weight.dtype)
    decoders = {k: Decoder(DECODERS[k](model), f"{name} with a {k} cache", lens) for k in kinds}
    return Subject(name, decoders, model.config, transformers_peers(model) if peers else {})


def target_subject(name: str, targets: Sequence[Target]) -> Subject:
    """A target of the user's, with each kind of cache that it has. Raises `BadInput` where it has no steps to time."""
    decoders = [whole_context(largest(target.decoders())) for target in targets]
    if any(Capability.GENERATES_ONLY in decoder.capabilities for decoder in decoders):
        raise BadInput(f"{name} only generates: it has no steps that could be timed")
    return Subject(name, dict(zip(labels([target.name for target in targets]), decoders, strict=True)))


def largest(decoders: Sequence[Decoder]) -> Decoder:
    """The last decoder in the dtype of the first: a target made of many shapes begins with the smallest."""
    return [decoder for decoder in decoders if decoder.lens.dtype == decoders[0].lens.dtype][-1]


def whole_context(decoder: Decoder) -> Decoder:
    """A model of transformers is checked in a short context, for its laws, and timed in all that it has."""
    given = decoder.given
    whole = CausalLM(given.model, given.kind) if isinstance(given, CausalLM) else given
    return Decoder(whole, decoder.name, decoder.lens)


def labels(names: Sequence[str]) -> list[str]:
    """What tells names apart, word by word; `cached` where there is one alone."""
    if len(names) == 1:
        return ["cached"]
    words = [name.replace("(", "").replace(")", "").replace(",", "").replace(":", " ").split() for name in names]
    common = set(words[0]).intersection(*words[1:])
    short = [" ".join(word for word in each if word not in common) for each in words]
    return short if len(set(short)) == len(short) and all(short) else list(names)
