"""keras-hub on its torch backend: any of its causal language models of text, tiny and with loud weights."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, cast

import torch
from torch import Tensor

from kvref.errors import TargetError
from kvref.protocol import Logits, Tokens
from kvref.targets.packages import imported

KINDS = ()

TASK = "CausalLM"
"""What the names of its models end with."""

BLOCK, LAYERS, HEADS = 64, 2, 4

TINY: Mapping[str, Any] = {
    "vocabulary_size": 99,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "num_attention_heads": HEADS,
    "num_query_heads": HEADS,
    "num_key_value_heads": 2,
    "hidden_dim": 32,
    "head_dim": 8,
    "intermediate_dim": 64,
    "max_sequence_length": BLOCK,
    "pretraining_sequence_length": BLOCK,
    "max_position_embeddings": BLOCK,
    "rotary_percentage": 0.5,
    "dropout": 0.0,
    "sliding_window": 8,
    "sliding_window_size": 8,
    "num_experts": 4,
    "top_k": 2,
    "moe_intermediate_dim": 16,
    "shared_expert_intermediate_dim": 16,
    "shared_expert_intermediate_size": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "image_size": None,
    "vision_encoder": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "layer_norm_epsilon": 1e-6,
    "rope_layer_enabled_list": [True] * LAYERS,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0,
}
"""The tiny value of each size that a backbone may take."""

LAYER_TYPES: Mapping[str, Sequence[str]] = {
    "SmolLM3": ["full_attention"] * LAYERS,
    "Qwen3_5": ["linear_attention", "full_attention"],
    "Qwen3_5Moe": ["linear_attention", "full_attention"],
}
"""Kinds of layers, where there are several."""


@dataclass(frozen=True)
class Held:
    """A tensor, or several, with all layers in them, and the place of the next token."""

    kept: Any
    index: int


class KerasHub:
    """A model of keras-hub, called as its own generation calls it."""

    preallocates = True

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model, self.device = model, device
        self.vocab_size, self.block_size, self.n_layer = int(TINY["vocabulary_size"]), BLOCK, LAYERS
        self.refuses = {
            "prefill": "keras-hub pads on the right, and keeps padding among the tokens",
            "crop_rows": "keras-hub has one index for all rows",
            "length": "keras-hub counts no tokens: the caller gives the index",
        }
        if not isinstance(self.start(1, 2).kept, Tensor):
            self.refuses["keys_values"] = "it keeps more than keys and values"

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a cache."""
        return self.model({"token_ids": tokens, "padding_mask": torch.ones_like(tokens, dtype=torch.bool)})

    def start(self, batch: int, capacity: int | None) -> Held:
        """Allocate a cache, in the form that keras-hub's own has, with nothing in it."""
        slots = BLOCK if capacity is None else min(capacity, BLOCK)
        with torch.inference_mode():
            kept: Any = self.model._build_cache(torch.zeros(batch, slots, dtype=torch.long, device=self.device))[-1]
        return Held(each(kept, torch.zeros_like), 0)

    def step(self, cache: Held, tokens: Tokens) -> tuple[Logits, Held]:
        """One pass over the new tokens."""
        logits, _, kept = self.model.call_with_cache(tokens, cache.kept, cache.index)
        return logits, Held(kept, cache.index + tokens.shape[1])

    def keys_values(self, cache: Held, layer: int) -> tuple[Tensor, Tensor]:
        """What a layer keeps, which is heads last but one."""
        keys, values = (cache.kept[:, layer, part, : cache.index].transpose(1, 2) for part in (0, 1))
        return keys, values

    def crop(self, cache: Held, length: int) -> Held:
        """Go on from an earlier index."""
        if not isinstance(cache.kept, Tensor) and length < cache.index:
            raise NotImplementedError("what it keeps besides keys and values cannot go back")
        return replace(cache, index=length)

    def reorder(self, cache: Held, rows: Sequence[int]) -> Held:
        """Make the batch of these rows, as its beam search does."""
        order = list(rows)

        def moved(part: Tensor) -> Tensor:
            return part[order]

        return replace(cache, kept=each(cache.kept, moved))

    def fork(self, cache: Held) -> Held:
        """Copy the tensor."""
        return replace(cache, kept=each(cache.kept, torch.clone))


def each(kept: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with something done to every tensor in it."""
    if kept is None or isinstance(kept, Tensor):
        return None if kept is None else change(kept)
    if isinstance(kept, dict):
        return {name: each(part, change) for name, part in cast("dict[str, Any]", kept).items()}
    return type(kept)(each(part, change) for part in kept)


def make(asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> KerasHub:
    """A model that keras-hub has a causal language model of, by the beginning of its class's name."""
    del kind
    models = hub()
    known = list(names())
    found = next((name for name in known if plain(name) == plain(asked)), None)
    if found is None:
        near = get_close_matches(plain(asked), list(map(plain, known)), 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise TargetError(f"keras-hub has no causal language model {asked!r}; {hint}")
    backbone = getattr(models, f"{found}Backbone")
    takes = inspect.signature(backbone.__init__).parameters
    if "kwargs" in takes and "vocabulary_size" not in takes:  # it hands them on to another's
        takes = inspect.signature(backbone.__mro__[1].__init__).parameters
    sizes = {name: value for name, value in TINY.items() if name in takes}
    if found in LAYER_TYPES:
        sizes["layer_types"] = list(LAYER_TYPES[found])
    body = backbone(**sizes, dtype=str(dtype).removeprefix("torch."))
    model = getattr(models, f"{found}{TASK}")(backbone=body, preprocessor=None)
    redraw(model)
    return KerasHub(model, device)


def hub() -> Any:
    """The models of keras-hub. Raises `TargetError` where keras runs on another backend than torch."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    models = imported("keras_hub", "keras-hub").models
    if (backend := imported("keras", "keras-hub").config.backend()) != "torch":
        raise TargetError(f"keras runs on {backend}, and kvref sees torch alone; set KERAS_BACKEND=torch")
    return models


def redraw(model: Any) -> None:
    """Matrices are normal with deviation 1/sqrt(inputs), vectors moved by 0.2 of a standard normal."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.weights:
        value: Tensor = weight.value.detach()
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.device)
        # Keras has a layer's inputs first; rows of an embedding are vectors.
        inputs = value.shape[-1] if "embedding" in weight.path else value.shape[0] if value.ndim else 1
        drawn = noise / inputs**0.5 if value.ndim > 1 else value.double() + 0.2 * noise
        weight.assign(drawn.to(value.dtype))


def plain(name: str) -> str:
    """A name in small letters alone, so that gpt-neo-x is GPTNeoX."""
    return name.lower().replace("-", "").replace("_", "")


def names() -> Iterator[str]:
    """The beginnings of the names of its causal language models."""
    for name in sorted(dir(hub())):
        if name.endswith(TASK) and name != TASK:
            yield name.removesuffix(TASK)
