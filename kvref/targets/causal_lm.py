"""Any causal language model of transformers as a decoder, with its dynamic or its static cache."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from kvref.errors import CacheFull, TargetError
from kvref.protocol import Logits, Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CacheKind = Literal["dynamic", "static"]

CACHES = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""What a model may call its cache, the newest name first. Its argument and the field of its output are named alike."""

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "context_length", "model_max_length")
"""What a config may call the longest sequence."""

UNLIMITED = 64
"""Longest sequence to test where the config names none, as under relative positions."""

HANDS_NONE_BACK = ("recurrent_gemma", "xlm")
"""Model types that fill a cache which they are given, and neither make one nor hand it back."""

AFTER_PADDING = (
    "camembert",
    "data2vec-text",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
"""Model types that count positions from the padding token on, and leave out tokens that are padding. Told where a token
stands, they treat padding as any other."""

FORGETS_POSITIONS = ("bamba",)
"""Model types that count every call from position 0, unless told where its tokens stand."""

WHOLE_SEQUENCE = ("xlm",)
"""Model types that want past tokens together with the new ones, and leave out themselves what is cached."""


@dataclass(frozen=True)
class Filled:
    """A cache with these tokens in it. `held` is None until the model has made it."""

    held: Any
    tokens: Tokens
    capacity: int


class CausalLM:
    """A model of transformers, told no more than it needs. It makes its own dynamic cache in the first step.

    `declares_static` is whether its class says that a static cache fits; others may refuse one, or be wrong with it.
    Raises `TargetError` for a model without a cache.
    """

    def __init__(self, model: "PreTrainedModel", cache: CacheKind = "dynamic", max_batch: int | None = None) -> None:
        self.model: Any = model
        self.preallocates = cache == "static"
        self.declares_static = bool(getattr(model, "_can_compile_fullgraph", False))
        self.max_batch = max_batch
        self.model_type: str = self.model.config.model_type
        self.config: Any = self.model.config.get_text_config(decoder=True)
        self.vocab_size = int(self.config.vocab_size)
        self.first_position = int(self.config.pad_token_id) + 1 if self.model_type in AFTER_PADDING else 0
        named = [size for name in CONTEXTS if (size := getattr(self.config, name, None) or 0) > 0]
        self.block_size = int(named[0] if named else UNLIMITED) - self.first_position
        self.device: torch.device = self.model.device
        self.dtype: torch.dtype = self.model.dtype
        arguments = inspect.signature(inspect.unwrap(type(model).forward)).parameters
        self.name = next((name for name in CACHES if name in arguments), "")
        if not self.name:
            raise TargetError(f"{type(model).__name__} has no cache")

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a cache."""
        return self.model(input_ids=tokens, use_cache=False, **self.positions(0, tokens)).logits

    def start(self, batch: int, capacity: int | None) -> Filled:
        """Start an empty cache."""
        slots = self.block_size if capacity is None else min(capacity, self.block_size)
        return Filled(self.empty(slots), torch.empty(batch, 0, dtype=torch.long, device=self.device), slots)

    def step(self, cache: Filled, tokens: Tokens) -> tuple[Logits, Filled]:
        """One pass over the new tokens."""
        past, everything = cache.tokens.shape[1], torch.cat([cache.tokens, tokens], dim=1)
        if everything.shape[1] > cache.capacity:
            raise CacheFull(f"{everything.shape[1]} tokens do not fit into a cache for {cache.capacity}")
        given = everything if self.model_type in WHOLE_SEQUENCE else tokens
        output: Any = self.model(
            input_ids=given, use_cache=True, **{self.name: cache.held}, **self.positions(past, tokens)
        )
        return output.logits, Filled(output.get(self.name, cache.held), everything, cache.capacity)

    def length(self, cache: Filled) -> int:
        """Tokens in the cache."""
        return cache.tokens.shape[1]

    def empty(self, slots: int) -> Any:
        """An empty cache; None where the model makes it."""
        from transformers import DynamicCache, StaticCache

        if self.preallocates:
            return StaticCache(config=self.model.config, max_cache_len=slots)
        return DynamicCache(config=self.model.config) if self.model_type in HANDS_NONE_BACK else None

    def positions(self, past: int, tokens: Tokens) -> Mapping[str, Any]:
        """The positions of new tokens, where a model does not find them by itself."""
        if self.model_type not in AFTER_PADDING + FORGETS_POSITIONS:
            return {}
        first = self.first_position + past
        return {"position_ids": torch.arange(first, first + tokens.shape[1], device=tokens.device).expand_as(tokens)}
