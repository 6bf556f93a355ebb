"""x-transformers: a decoder-only model of its building blocks, with any options of them, tiny and with loud weights."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from kvref.errors import CacheFull, TargetError
from kvref.protocol import Logits, Tokens
from kvref.targets.packages import imported
from kvref.targets.padding import padding_changes
from kvref.targets.tiny import redraw

KINDS = ("whole", "new")
"""How a past is given: the whole text with every call, of which the model runs what is new, or the new tokens alone."""

MODEL: Mapping[str, Any] = {"num_tokens": 99, "max_seq_len": 64}
LAYERS: Mapping[str, Any] = {"dim": 32, "depth": 3, "heads": 4, "attn_dim_head": 8, "verbose": False}

OPTION = re.compile(r",(?=\w+=)")

POSITIONS = ("", "rotary_pos_emb=True", "rotary_xpos=True", "polar_pos_emb=True", "alibi_pos_bias=True")
"""How positions are told: absolute embeddings where nothing else is said."""

WORTH_TRYING = (
    *POSITIONS,
    "rel_pos_bias=True",
    "dynamic_pos_bias=True",
    "scaled_sinu_pos_emb=True",
    "use_abs_pos_emb=False",
    "max_seq_len=0,rotary_pos_emb=True",
    "attn_kv_heads=2",
    "attn_kv_heads=2,rotary_pos_emb=True",
    "attn_one_kv_head=True",
    "attn_value_dim_head=4",
    "rotary_pos_emb=True,attn_flash=True",
    "alibi_pos_bias=True,attn_flash=True",
    "rotary_pos_emb=True,rotate_num_heads=2",
    "attn_max_attend_past=8",
    "attn_qk_norm=True",
    "attn_qk_norm=True,attn_qk_norm_dim_scale=True",
    "attn_qk_rmsnorm=True",
    "attn_value_rmsnorm=True",
    "attn_l2_distance=True",
    "attn_sigmoid=True",
    "attn_softclamp_logits=True",
    "attn_talking_heads=True",
    "attn_pre_talking_heads=True",
    "attn_post_talking_heads=True",
    "attn_pre_scale_post_talking_heads=True",
    "attn_head_scale=True",
    "attn_head_learned_sink=True",
    "attn_add_zero_kv=True",
    "attn_num_mem_kv=4",
    "attn_num_mem_kv=4,rotary_pos_emb=True",
    "attn_sparse_topk=4",
    "attn_hard=True",
    "attn_on_attn=True",
    "attn_gate_values=True",
    "attn_gate_value_heads=True",
    "attn_output_gate=True",
    "attn_swiglu_values=True",
    "attn_laser=True",
    "attn_cog_signed=True",
    "attn_selective=True",
    "attn_use_cope=True",
    "attn_use_rel_proj_pos_bias=True",
    "attn_data_dependent_alibi=True",
    "attn_data_dependent_alibi=True,attn_data_dependent_alibi_per_row=True",
    "attn_orthog_projected_values=True",
    "attn_orthog_projected_values_per_head=True",
    "attn_use_latent_q=True,attn_dim_latent_q=16,attn_use_latent_kv=True,attn_dim_latent_kv=16",
    "rotary_pos_emb=True,attn_use_latent_kv=True,attn_dim_latent_kv=16,attn_latent_rope_subheads=2",
    "add_value_residual=True",
    "add_value_residual=True,learned_value_residual_mix=False",
    "residual_attn=True",
    "shift_tokens=1",
    "shift_tokens=1,rotary_pos_emb=True",
    "use_rmsnorm=True",
    "use_simple_rmsnorm=True",
    "use_scalenorm=True",
    "use_dynamic_tanh=True",
    "use_derf=True",
    "pre_norm=False",
    "pre_and_post_norm=True",
    "sandwich_norm=True",
    "macaron=True",
    "sandwich_coef=1",
    "par_ratio=2",
    "weight_tie_layers=True",
    "only_attn=True",
    "unet_skips=True,depth=4",
    "gate_residual=True",
    "orthog_residual=True",
    "mv_split_residual=True",
    "scale_residual=True",
    "use_layerscale=True",
    "softclamp_output=True",
    "reinject_input=True",
    "reinject_input=True,learned_reinject_input_gate=True",
    "integrate_layers=True",
    "attn_aggregated_residuals=True",
    "num_residual_streams=2",
    "num_residual_streams=2,qkv_receive_diff_residuals=True",
    "gated_multi_residual=True,num_residual_streams=2",
    "ff_glu=True",
    "ff_swish=True",
    "ff_relu_squared=True",
    "ff_post_act_ln=True",
    "ff_no_bias=True",
    "ff_deep_embed=True",
    "num_memory_tokens=4",
    "tie_embedding=True",
    "l2norm_embed=True",
    "post_emb_norm=True",
    "emb_dim=16",
    "mixture_of_softmax=True",
    "sigsoftmax_logits=True",
)
"""Options, alone and in a few pairs, that change what is cached, what attention reads, or where tokens stand."""


@dataclass(frozen=True)
class Held:
    """A cache with these tokens in it, padding included. `kept` is None until the first pass."""

    kept: Any
    tokens: Tokens
    capacity: int
    padding: tuple[int, ...]


class XTransformer:
    """A `TransformerWrapper` around a `Decoder`, called as its own generation calls it."""

    def __init__(self, net: Any, kind: str, device: torch.device) -> None:
        if not net.can_cache_kv:
            raise TargetError("x-transformers says by `can_cache_kv` that it cannot cache the keys of such a model")
        self.net, self.kind, self.device = net, kind, device
        self.vocab_size = int(net.num_tokens)
        self.block_size = int(net.max_seq_len) or int(MODEL["max_seq_len"])
        self.attentions: list[Any] = [module for module in net.modules() if type(module).__name__ == "Attention"]
        self.n_layer = len(self.attentions)
        self.refuses = {"crop_rows": "x-transformers has one length for all rows"}
        executed = net.attn_layers.layers_execute_order
        if len(set(executed)) < len(executed):
            self.refuses["layers"] = "it runs its layers more than once"
            self.refuses["keys_values"] = "it runs its layers more than once"
        if any(module.qkv_receive_diff_residuals for module in self.attentions):
            self.refuses["layers"] = "its layers take three views of each token"
        if any(module.use_latent_kv for module in self.attentions):
            self.refuses["keys_values"] = "it keeps latent vectors in their place"
        if why := padding_changes(self.full, self.full_padded, device):
            self.refuses["prefill"] = why

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a cache."""
        return self.net(tokens)

    def full_padded(self, tokens: Tokens, padding: Sequence[int]) -> Logits:
        """One pass without a cache over rows that are padded on the left."""
        return self.net(tokens, seq_start_pos=torch.tensor(list(padding), device=self.device))

    def start(self, batch: int, capacity: int | None) -> Held:
        """Start with nothing: the first pass makes the cache."""
        nothing = torch.empty(batch, 0, dtype=torch.long, device=self.device)
        slots = self.block_size if capacity is None else min(capacity, self.block_size)
        return Held(None, nothing, slots, (0,) * batch)

    def step(self, cache: Held, tokens: Tokens) -> tuple[Logits, Held]:
        """One pass over the new tokens."""
        everything, new = torch.cat([cache.tokens, tokens], dim=1), tokens.shape[1]
        if everything.shape[1] > cache.capacity:
            raise CacheFull(f"{everything.shape[1]} tokens do not fit into a cache for {cache.capacity}")
        told: dict[str, Any] = {}
        if any(cache.padding):
            told["seq_start_pos"] = torch.tensor(cache.padding, device=self.device)
        if cache.kept is not None:
            told |= {"cache": cache.kept, "cache_age": new, "input_not_include_cache": self.kind == "new"}
        given = tokens if self.kind == "new" else everything
        logits, kept = self.net(given, return_intermediates=True, **told)
        return logits, replace(cache, kept=kept, tokens=everything)

    def prefill(self, cache: Held, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Held]:
        """One pass over prompts of different lengths, padded on the left."""
        return self.step(replace(cache, padding=tuple(padding)), tokens)

    def length(self, cache: Held) -> int:
        """Tokens in the longest row, as the cache counts them."""
        return (0 if cache.kept is None else int(cache.kept.cache_length)) - min(cache.padding)

    def keys_values(self, cache: Held, layer: int) -> tuple[Tensor, Tensor]:
        """What a layer keeps, before it is rotated."""
        keys, values = cache.kept.attn_intermediates[layer].cached_kv
        return keys, values

    def layers(self) -> list[nn.Module]:
        """The attention of each layer."""
        return list(self.attentions)

    def crop(self, cache: Held, length: int) -> Held:
        """Keep the first tokens of what is cached, as its own generation cuts it, and of its count."""
        if len(set(cache.padding)) > 1:
            raise NotImplementedError(self.refuses["crop_rows"])
        columns = length + cache.padding[0] if length else 0

        def first(cached: Tensor) -> Tensor:
            return cached[..., :columns, :]

        kept = self.changed(cache.kept, first) if columns else None
        if kept is not None:
            kept.cache_length = columns
        padding = cache.padding if length else (0,) * len(cache.padding)
        return replace(cache, kept=kept, tokens=cache.tokens[:, :columns], padding=padding)

    def reorder(self, cache: Held, rows: Sequence[int]) -> Held:
        """Make the batch of these rows, as its beam search does."""
        order = list(rows)

        def moved(cached: Tensor) -> Tensor:
            return cached[order]

        kept = self.changed(cache.kept, moved)
        return replace(cache, kept=kept, tokens=cache.tokens[order], padding=tuple(cache.padding[row] for row in order))

    def fork(self, cache: Held) -> Held:
        """Copy a cache, as its own `copy` does."""
        return replace(cache, kept=copy(cache.kept))

    def changed(self, kept: Any, change: Callable[[Tensor], Tensor]) -> Any:
        """A copy of a cache with something done to every tensor in it."""
        if kept is None:
            return None
        other = copy(kept)
        for layer in other.attn_intermediates:
            layer.cached_kv = tuple(None if cached is None else change(cached) for cached in layer.cached_kv)
        return other


def make(asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> XTransformer:
    """A model with some options, such as `rotary_pos_emb=True,attn_kv_heads=2`, over the tiny ones."""
    package = imported("x_transformers", "x-transformers")
    of_model = inspect.signature(package.TransformerWrapper).parameters
    options = read_options(asked)
    model = {**MODEL, **{name: value for name, value in options.items() if name in of_model}}
    layers = {**LAYERS, **{name: value for name, value in options.items() if name not in of_model}}
    try:
        net = package.TransformerWrapper(attn_layers=package.Decoder(**layers), **model)
    except (AssertionError, TypeError) as error:
        raise TargetError(f"x-transformers takes no such options together ({asked}): {error}") from error
    redraw(net, 0)
    return XTransformer(net.to(device=device, dtype=dtype).eval().requires_grad_(False), kind, device)


def read_options(asked: str) -> dict[str, Any]:
    """Options in the form NAME=VALUE with commas between; values are Python's numbers, texts, tuples and so on."""
    options: dict[str, Any] = {}
    for option in OPTION.split(asked) if asked else []:
        name, equals, text = option.partition("=")
        try:
            if not (equals and name.isidentifier()):
                raise ValueError
            options[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise TargetError(f"{option!r} is no option; give NAME=VALUE, with commas between") from None
    return options


def names() -> Iterator[str]:
    """Options to try, one target each."""
    yield from WORTH_TRYING
