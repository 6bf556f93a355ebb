"""litgpt: any of its configs, tiny and with loud weights. The cache is inside the model, and the caller counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from kvref.errors import CacheFull, TargetError
from kvref.protocol import Logits, Tokens
from kvref.targets.packages import imported
from kvref.targets.tiny import redraw

KINDS = ("sliced", "masked")
"""What attention reads of the buffers: up to the last position, told by `input_pos_maxp1`, or all, behind a mask."""

LAYERS, WINDOW = 4, 8

TINY: Mapping[str, Any] = {
    "n_layer": LAYERS,
    "n_embd": 32,
    "n_head": 4,
    "head_size": 8,
    "block_size": 64,
    "vocab_size": 99,
    "padded_vocab_size": 99,
    "intermediate_size": 64,
}

TINY_IF_SET: Mapping[str, Any] = {
    "sliding_window_size": WINDOW,
    "attention_scores_scalar": 8,
    "moe_intermediate_size": 16,
    "n_expert": 4,
    "n_expert_per_token": 2,
    "n_expert_groups": 2,
    "n_topk_groups": 1,
    "n_topk_scores_per_group": 1,
    "latent_attention": {
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
}
"""The tiny value of each size that only some configs have."""

KINDS_OF_LAYER = ("sliding_window_indices", "rope_indices")
"""Lists of 0 and 1, one for each layer; tiny, layers of both kinds take turns, where there are both."""

IGNORED = ("name", "hf_config", "rope_base", "norm_eps", "padding_multiple")
"""What makes no other kind of model."""


@dataclass(frozen=True)
class Held:
    """A cache that is put into the model for each pass: its buffers, and how many tokens each row has.

    `reached` is the longest that any row has been, since a ring buffer forgets what is a window behind that.
    """

    buffers: Sequence[nn.Module]
    mask: Tensor
    lengths: tuple[int, ...]
    capacity: int
    reached: int = 0


class LitGPT:
    """A model of litgpt."""

    preallocates = True

    def __init__(self, model: Any, kind: str, device: torch.device) -> None:
        self.model, self.kind, self.device = model, kind, device
        config: Any = model.config
        self.vocab_size, self.block_size = int(config.padded_vocab_size), int(config.block_size)
        self.n_layer = int(config.n_layer)
        sliding = [block.attn for block in self.blocks if getattr(block.attn, "apply_sliding_window_attention", False)]
        self.window: int | None = int(config.sliding_window_size) if sliding else None
        self.refuses = {
            "prefill": "litgpt takes no padding: rows of different lengths have positions of their own",
            "length": "litgpt counts no tokens: the caller gives their positions",
        }
        if self.window:
            self.refuses["atomic"] = "a pass that raises has written over what is leaving the window"
            self.refuses["keys_values"] = "not all of its layers keep the keys and values of every token"

    @property
    def blocks(self) -> list[Any]:
        """The layers of the model."""
        return list(self.model.transformer.h)

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a cache."""
        return self.model(tokens)

    def start(self, batch: int, capacity: int | None) -> Held:
        """Allocate a cache."""
        slots = self.block_size if capacity is None else min(capacity, self.block_size)
        self.model.set_kv_cache(batch, max_seq_length=slots, device=self.device)
        return Held([block.attn.kv_cache for block in self.blocks], self.model.mask_cache, (0,) * batch, slots)

    def step(self, cache: Held, tokens: Tokens) -> tuple[Logits, Held]:
        """One pass over the new tokens; where there is a window, one for each of its length, as litgpt asks for."""
        new = tokens.shape[1]
        if self.window and new > self.window and max(cache.lengths) + new > cache.capacity:
            raise CacheFull(f"{max(cache.lengths) + new} tokens do not fit into a cache for {cache.capacity}")
        for block, buffers in zip(self.blocks, cache.buffers, strict=True):
            block.attn.kv_cache = buffers
        self.model.mask_cache = cache.mask
        logits: list[Tensor] = []
        for begin in range(0, new, self.window or new):
            part = tokens[:, begin : begin + (self.window or new)]
            positions = self.positions(cache.lengths, part.shape[1])
            most: dict[str, int] = (
                {} if self.kind == "masked" else {"input_pos_maxp1": max(cache.lengths) + part.shape[1]}
            )
            logits.append(self.model(part, positions, **most))
            lengths = tuple(length + part.shape[1] for length in cache.lengths)
            cache = replace(cache, lengths=lengths, reached=max(cache.reached, *lengths))
        return torch.cat(logits, dim=1), cache

    def positions(self, lengths: Sequence[int], new: int) -> Tensor:
        """Positions of new tokens: one row of them for all, or else a row for each."""
        begin = torch.tensor(lengths[:1] if len(set(lengths)) == 1 else list(lengths), device=self.device)
        positions = begin[:, None] + torch.arange(new, device=self.device)
        return positions[0] if len(positions) == 1 else positions

    def keys_values(self, cache: Held, layer: int) -> tuple[Tensor, Tensor]:
        """The slots of a layer that tokens are in; shorter rows have theirs on the right, behind zeros."""
        buffers: Any = cache.buffers[layer]
        width = max(cache.lengths)
        keys, values = (
            torch.stack([buffer[row, :, :width].roll(width - n, dims=1) for row, n in enumerate(cache.lengths)])
            for buffer in (buffers.k, buffers.v)
        )
        return keys, values

    def layers(self) -> list[nn.Module]:
        """The blocks of the model."""
        return self.blocks

    def crop(self, cache: Held, length: int) -> Held:
        """Go on from an earlier position."""
        return self.crop_rows(cache, [length] * len(cache.lengths))

    def crop_rows(self, cache: Held, lengths: Sequence[int]) -> Held:
        """Go on from an earlier position in each row."""
        if self.window and cache.reached > self.window and tuple(lengths) != cache.lengths:
            raise NotImplementedError("beyond a window litgpt keeps no past to go back to")
        return replace(cache, lengths=tuple(lengths))

    def reset(self, cache: Held) -> Held:
        """Begin at the first position again, over what is left there, as its own `LLM.generate` does."""
        return replace(cache, lengths=(0,) * len(cache.lengths), reached=0)


def make(asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> LitGPT:
    """A model of a config that litgpt knows by name."""
    package = imported("litgpt", "litgpt")
    known = [config["name"] for config in configs()]
    if asked not in known:
        near = get_close_matches(asked, known, 1)
        hint = f"did you mean {near[0]}?" if near else "give one such as pythia-14m"
        raise TargetError(f"litgpt has no config {asked!r}; {hint}")
    model = package.GPT(tiny(asked))
    redraw(model, 0)
    return LitGPT(model.to(device=device, dtype=dtype).eval().requires_grad_(False), kind, device)


def configs() -> list[dict[str, Any]]:
    """Every config that litgpt has."""
    return imported("litgpt.config", "litgpt").configs


def tiny(name: str) -> Any:
    """A config with tiny sizes, and whatever else it says."""
    config = imported("litgpt.config", "litgpt").Config
    whole = config.from_name(name)
    sizes = {**TINY, **{size: value for size, value in TINY_IF_SET.items() if getattr(whole, size)}}
    groups = whole.n_head // whole.n_query_groups
    sizes["n_query_groups"] = 4 if groups == 1 else 1 if whole.n_query_groups == 1 else 2
    for kinds in KINDS_OF_LAYER:
        if indices := getattr(whole, kinds):
            both = sorted(set(indices), reverse=True)
            sizes[kinds] = (both * LAYERS)[:LAYERS]
    return config.from_name(name, **sizes)


def names() -> Iterator[str]:
    """The first config of each kind: many differ in their sizes alone."""
    seen = set[str]()
    for config in configs():
        made: dict[str, Any] = {**vars(tiny(config["name"]))}
        # Norms go by the name of the config.
        norms = [word in config["name"] for word in ("Gemma", "OLMo")]
        kind = repr([{key: value for key, value in made.items() if key not in IGNORED}, norms])
        if kind not in seen:
            seen.add(kind)
            yield config["name"]
