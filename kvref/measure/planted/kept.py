"""Faults in what a dynamic cache keeps of the keys and values that it is given."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from typing_extensions import override

from kvref.measure.planted.listed import plant
from kvref.targets.causal_lm import CausalLM


class Keeps(CausalLM):
    """Has a dynamic cache that keeps something else than it should."""

    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        """Do what happens to the new keys and values of a layer, `batch n_kv_head new head_dim`; give what is read."""
        raise NotImplementedError

    @override
    def empty(self, slots: int) -> Any:
        from transformers import DynamicCache

        outer = self

        class Faulty(DynamicCache):
            def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **more: Any) -> Any:
                def update() -> Any:
                    whole: Any = super(Faulty, self)
                    return whole.update(key_states, value_states, layer_idx, *args, **more)

                return outer.keep(self, layer_idx, key_states, value_states, update)

        return Faulty(config=self.model.config)


def rows_of(cache: Any, layer: int) -> tuple[Tensor, Tensor] | None:
    """What a layer keeps; None while it is empty."""
    kept = cache.layers[layer]
    return (kept.keys, kept.values) if kept.get_seq_length() else None


def put(cache: Any, layer: int, keys: Tensor, values: Tensor) -> None:
    """Have a layer keep something."""
    cache.layers[layer].keys, cache.layers[layer].values = keys, values


@plant("stale-cache")
class Stale(Keeps):
    """Drops what later calls append."""

    @override
    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        before, read = rows_of(cache, layer), update()
        if before:
            put(cache, layer, *before)
        return read


@plant("single-token-never-written")
class SingleDropped(Keeps):
    """Drops single tokens."""

    @override
    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        before, read = rows_of(cache, layer), update()
        if keys.shape[2] == 1:
            put(cache, layer, *(before or (keys[:, :, :0], values[:, :, :0])))
        return read


@plant("past-keys-scaled-again")
class ScaledAgain(Keeps):
    """Scales keys that are kept already."""

    @override
    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        if before := rows_of(cache, layer):
            put(cache, layer, before[0] * 0.7, before[1])
        return update()


@plant("stored-in-bfloat16")
class Narrow(Keeps):
    """Rounds what it keeps."""

    @override
    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        read = update()
        put(cache, layer, *(kept.bfloat16().to(kept.dtype) for kept in (rows_of(cache, layer) or ())))
        return read


@plant("captured-slot-replayed")
class Replayed(Keeps):
    """Writes where the first call with as many tokens wrote, as a captured graph does."""

    @override
    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        slots, new = cache.__dict__.setdefault("slots", {}), keys.shape[2]
        before = rows_of(cache, layer)
        if before is None or (layer, new) not in slots:
            slots[layer, new] = before[0].shape[2] if before else 0
            return update()
        update()
        at = slots[layer, new]
        for kept, old, fresh in zip(rows_of(cache, layer) or (), before, (keys, values), strict=True):
            kept[:, :, :-new] = old
            kept[:, :, -new:] = 0.0
            kept[:, :, at : at + new] = fresh
        return rows_of(cache, layer)


@plant("first-two-layers-share-slots")
class SharedSlots(Keeps):
    """Lets the second layer write over the first."""

    @override
    def keep(self, cache: Any, layer: int, keys: Tensor, values: Tensor, update: Callable[[], Any]) -> Any:
        read = update()
        if layer == 1:
            put(cache, 0, *read)
        return read
