"""Faults in how a cache is cropped, reordered, copied and reset, and in the model around it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from kvref.measure.planted.listed import plant
from kvref.protocol import Logits, Tokens
from kvref.targets.causal_lm import CausalLM, Filled, lists_of_blocks


class Crops(CausalLM):
    """Removes another number of columns than it says."""

    def removed(self, cache: Filled, length: int, right: int) -> int:
        """Columns to remove for a length, where `right` would be right."""
        raise NotImplementedError

    @override
    def crop(self, cache: Filled, length: int) -> Filled:
        if len(set(cache.padding)) > 1:
            return super().crop(cache, length)  # which refuses
        padding = cache.padding if length else (0,) * len(cache.padding)
        columns = length + padding[0]
        cache.held.crop(-self.removed(cache, length, cache.width - columns))
        return replace(cache, tokens=cache.tokens[:, :columns], padding=padding)


@plant("crop-keeps-one-token-more")
class KeepsOneMore(Crops):
    """Removes one column less."""

    @override
    def removed(self, cache: Filled, length: int, right: int) -> int:
        return max(right - 1, 0)


@plant("crop-to-nothing-keeps-all")
class KeepsAll(Crops):
    """Takes a length of 0 for none given."""

    @override
    def removed(self, cache: Filled, length: int, right: int) -> int:
        return right if length else 0


@plant("crop-of-nothing-drops-all")
class DropsAll(Crops):
    """Slices with [:-0]."""

    @override
    def removed(self, cache: Filled, length: int, right: int) -> int:
        return right or cache.width


@plant("crop-counts-padding")
class CountsColumns(Crops):
    """Takes columns for tokens."""

    @override
    def removed(self, cache: Filled, length: int, right: int) -> int:
        return cache.width - length


@plant("padded-cache-is-not-cropped")
class LeavesPadded(Crops):
    """Does nothing where there is padding."""

    @override
    def removed(self, cache: Filled, length: int, right: int) -> int:
        return 0 if any(cache.padding) else right


class Reorders(CausalLM):
    """Reorders otherwise, where there are as many rows as before."""

    def move(self, layers: list[Any], rows: Sequence[int]) -> None:
        """Reorder the layers of a cache."""
        raise NotImplementedError

    @override
    def reorder(self, cache: Filled, rows: Sequence[int]) -> Filled:
        if not cache.width or len(rows) != len(cache.padding):
            return super().reorder(cache, rows)
        self.move(cache.held.layers, rows)
        return cache.of_rows(rows)


@plant("reorder-leaves-the-values")
class MovesKeys(Reorders):
    """Moves keys alone."""

    @override
    def move(self, layers: list[Any], rows: Sequence[int]) -> None:
        for layer in layers:
            layer.keys = layer.keys[list(rows)]


@plant("reorder-leaves-the-last-layer")
class AllButTheLast(Reorders):
    """Moves all layers but one."""

    @override
    def move(self, layers: list[Any], rows: Sequence[int]) -> None:
        for layer in layers[:-1]:
            layer.keys, layer.values = layer.keys[list(rows)], layer.values[list(rows)]


@plant("permutation-skipped")
class SkipsPermutations(Reorders):
    """Moves nothing where every row stays."""

    @override
    def move(self, layers: list[Any], rows: Sequence[int]) -> None:
        if sorted(rows) != [*range(len(rows))]:
            for layer in layers:
                layer.keys, layer.values = layer.keys[list(rows)], layer.values[list(rows)]


@plant("rows-reordered-in-place")
class MovesInPlace(Reorders):
    """Moves row by row, within one buffer."""

    @override
    def move(self, layers: list[Any], rows: Sequence[int]) -> None:
        for layer in layers:
            layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
            for to, row in enumerate(rows):
                layer.keys[to], layer.values[to] = layer.keys[row].clone(), layer.values[row].clone()


@plant("reorder-leaves-the-padding")
class LeavesPadding(CausalLM):
    """Moves rows, and not what is known of their padding."""

    @override
    def reorder(self, cache: Filled, rows: Sequence[int]) -> Filled:
        moved = super().reorder(cache, rows)
        return replace(moved, padding=cache.padding) if len(rows) == len(cache.padding) else moved


@plant("reset-ignored")
class IgnoresReset(CausalLM):
    """Starts the next request on what the last one left."""

    @override
    def reset(self, cache: Filled) -> Filled:
        return replace(cache, tokens=cache.tokens[:, :0], padding=(0,) * len(cache.padding))


@plant("reset-clears-rows-not-length")
class ClearsRows(CausalLM):
    """Writes zeros over what it forgets."""

    @override
    def reset(self, cache: Filled) -> Filled:
        layers: list[Any] = cache.held.layers if cache.held is not None else []
        for layer in layers:
            layer.keys, layer.values = torch.zeros_like(layer.keys), torch.zeros_like(layer.values)
        return replace(cache, tokens=cache.tokens[:, :0], padding=(0,) * len(cache.padding))


@plant("fork-shares-its-buffers")
class SharesBuffers(CausalLM):
    """Gives the same cache for a copy."""

    @override
    def fork(self, cache: Filled) -> Filled:
        return cache


@plant("fork-loses-the-padding")
class ForgetsPadding(CausalLM):
    """Copies a cache, and not what is known of its padding."""

    @override
    def fork(self, cache: Filled) -> Filled:
        return replace(super().fork(cache), padding=(0,) * len(cache.padding))


@plant("one-cache-for-all")
class OneForAll(CausalLM):
    """Has one cache, which is emptied for each request."""

    shared: Any = None

    @override
    def empty(self, slots: int) -> Any:
        from transformers import DynamicCache

        if self.shared is None:
            self.shared = DynamicCache(config=self.model.config)
        self.shared.reset()
        return self.shared


@plant("whole-prefix-run-again")
class RunsAllAgain(CausalLM):
    """Passes on no cache."""

    @override
    def step(self, cache: Filled, tokens: Tokens) -> tuple[Logits, Filled]:
        whole = torch.cat([cache.tokens, tokens], dim=1)
        logits, filled = super().step(replace(self.start(len(whole), None), padding=cache.padding), whole)
        return logits[:, -tokens.shape[1] :], filled


def projections(model: Any) -> list[nn.Module]:
    """What each layer puts the heads together with."""
    return [block.get_submodule(PROJECTIONS[model.config.model_type]) for block in lists_of_blocks(model)[0]]


PROJECTIONS = {"gpt2": "attn.c_proj", "llama": "self_attn.o_proj"}
"""What attention puts its heads together with, by model type."""


def before_heads_merge(model: Any, change: Callable[[Tensor], Tensor]) -> CausalLM:
    """A decoder whose attention has its heads, `batch new width`, changed before they are put together."""

    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (change(args[0]), *args[1:])

    for projection in projections(model):
        projection.register_forward_pre_hook(hook)
    return CausalLM(model)


@plant("heads-merged-without-transposing")
def merged_untransposed(model: Any) -> CausalLM:
    """Reads heads as tokens, when it puts them together."""
    n_head = int(model.config.num_attention_heads)

    def change(x: Tensor) -> Tensor:
        batch, new, width = x.shape
        return x.view(batch, new, n_head, width // n_head).transpose(1, 2).reshape(batch, new, width)

    return before_heads_merge(model, change)


@plant("dropout-left-on")
def with_dropout(model: Any) -> CausalLM:
    """Drops some of what attention gives."""
    return before_heads_merge(model, lambda x: F.dropout(x, 0.1, training=True))
