"""TransformerLens: its bridge around any model of transformers that it knows, tiny and with loud weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import torch
from typing_extensions import override

from kvref.errors import CacheFull, TargetError
from kvref.protocol import Logits, Tokens
from kvref.targets.causal_lm import CausalLM, Filled
from kvref.targets.packages import imported
from kvref.targets.padding import padding_changes
from kvref.targets.tiny import model_types, tiny_model

KINDS = ()


class Bridged(CausalLM):
    """A bridge, which takes and gives the cache of transformers that the model around which it is makes."""

    def __init__(self, bridge: Any) -> None:
        self.bridge = bridge
        super().__init__(bridge.original_model)
        if why := padding_changes(self.full, self.full_padded, self.device):
            self.refuses["prefill"] = why

    def full_padded(self, tokens: Tokens, padding: Sequence[int]) -> Logits:
        """One pass without a cache over rows that are padded on the left."""
        return self.bridge(tokens, **self.padded(replace(self.start(1, None), padding=tuple(padding)), tokens))

    @override
    def full(self, tokens: Tokens) -> Logits:
        return self.bridge(tokens)

    @override
    def step(self, cache: Filled, tokens: Tokens) -> tuple[Logits, Filled]:
        everything = torch.cat([cache.tokens, tokens], dim=1)
        if everything.shape[1] - min(cache.padding) > cache.capacity:
            raise CacheFull(f"{everything.shape[1]} tokens do not fit into a cache for {cache.capacity}")
        told: Mapping[str, Any] = self.padded(cache, tokens) if any(cache.padding) else {}
        asked = {"return_type": "logits_and_cache", "use_cache": True, "past_key_values": cache.held}
        logits, held = self.bridge(tokens, **asked, **told)
        return logits, Filled(held, everything, cache.capacity, cache.padding)

    @override
    def length(self, cache: Filled) -> int:
        return (0 if cache.held is None else cache.held.get_seq_length()) - min(cache.padding)

    @override
    def padded(self, cache: Filled, tokens: Tokens) -> Mapping[str, Any]:
        # The bridge works out positions by itself.
        return {"attention_mask": super().padded(cache, tokens)["attention_mask"]}


def make(asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> Bridged:
    """A bridge around a model type of transformers."""
    del kind
    known = list(names())
    if asked not in known:
        near = get_close_matches(asked, known, 1)
        hint = f"did you mean {near[0] if near else 'gpt2'}?"
        raise TargetError(f"TransformerLens has no bridge for the model type {asked!r}; {hint}")
    sources = imported("transformer_lens.model_bridge.sources", "transformer-lens")
    model: Any = tiny_model(asked, dtype=dtype)
    bridge = sources.build_bridge_from_module(model.to(device), type(model).__name__, hf_config=model.config)
    return Bridged(bridge.eval().requires_grad_(False))


def names() -> Iterator[str]:
    """Model types of transformers whose class for text TransformerLens has a bridge for."""
    factory = imported("transformer_lens.factories.architecture_adapter_factory", "transformer-lens")
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for name in model_types():
        if MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name] in factory.SUPPORTED_ARCHITECTURES:
            yield name
