"""Faults planted to see each law fail: one wrong method each, none of them in the catalogue."""

from collections.abc import Sequence
from typing import Any

import torch
from typing_extensions import override

from kvref.cache import Cache, GrowingCache, Padding, Rows, StaticCache
from kvref.generate import Session, generate_cached
from kvref.protocol import Logits, Sampler, Tokens
from kvref.targets.reference import GrowingDecoder


class RescalesThePast(GrowingCache):
    """Keys that are read are transformed again each time, by one unit in the last place."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        if layer in self.layers:
            past_keys, past_values = self.layers[layer]
            self.layers[layer] = torch.nextafter(past_keys, 2 * past_keys), past_values
        return super().append(layer, keys, values)


class SharesKeysInBatch(GrowingCache):
    """Every row gets the keys of the first."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        return super().append(layer, keys[:1].expand_as(keys), values)


class ReordersKeysOnly(GrowingCache):
    """Beam search with values left behind."""

    @override
    def reorder(self, rows: Sequence[int]) -> None:
        index = list(rows)
        self.layers = {
            layer: (keys[index], values[: len(index)] if len(index) <= len(values) else values[index])
            for layer, (keys, values) in self.layers.items()
        }


class CropsOneShort(StaticCache):
    """Keeps one token more than asked, where there is one."""

    @override
    def crop(self, length: int) -> None:
        super().crop(min(length + 1, self.length))


class ForkSharesItsBuffers(StaticCache):
    """A copy of the object, and not of what it holds."""

    @override
    def fork(self) -> StaticCache:
        copy = super().fork()
        copy.keys, copy.values = self.keys, self.values
        return copy


class ForksTheHighWaterMark(StaticCache):
    """A fork of a cropped cache is as long as the cache once was."""

    high = 0

    @override
    def commit(self, new: int, padding: Padding | None = None) -> None:
        super().commit(new, padding)
        self.high = max(self.high, self.length)

    @override
    def fork(self) -> StaticCache:
        copy = super().fork()
        copy.length = max(self.high, self.length)
        return copy


class ResetKeepsTheLength(GrowingCache):
    """Rows are dropped, and the counter beside them is not."""

    @override
    def reset(self) -> None:
        self.layers, self.grown = {}, {}


class AddsNoise(GrowingCache):
    """A little of whatever a random generator gives, as dropout left on would."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        return super().append(layer, keys + 0.01 * torch.rand_like(keys), values)


class WritesOverTheLastSlots(StaticCache):
    """Past the capacity, writes go to the last slots, and nobody is told."""

    @override
    def reserve(self, new: int) -> None:
        self.length = min(self.length, max(self.capacity - new, 0))


class RefusesTooLate(StaticCache):
    """Refuses what does not fit, when the length is changed already."""

    @override
    def reserve(self, new: int) -> None:
        room = self.capacity - self.length
        if new > room:
            self.length += room
        super().reserve(new)


class CropKeepsTheMemory(GrowingCache):
    """A crop that is a view: the logits are right, and the memory is still held."""

    @override
    def crop(self, length: int) -> None:
        self.require_length(length)
        self.length = length
        self.layers = {
            layer: (keys[:, :, :length], values[:, :, :length]) for layer, (keys, values) in self.layers.items()
        }


class ViewsIntoTheFusedTensor(GrowingCache):
    """Keeps a prefill's keys and values as they come, views that keep the queries alive."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        if layer in self.layers:
            return super().append(layer, keys, values)
        self.grown[layer] = keys, values
        return keys, values


class ReadsFreeSlots(StaticCache):
    """A single token attends to the whole buffer, since it needs no mask."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        read = super().append(layer, keys, values)
        return (self.keys[layer], self.values[layer]) if keys.size(2) == 1 else read


class RunsThePrefixAgain(GrowingDecoder):
    """No cache at all: tokens are kept, and run again in every call. The logits are right."""

    @override
    def start(self, batch: int, capacity: int | None) -> Any:
        cache: Any = super().start(batch, capacity)
        cache.seen = torch.empty(batch, 0, dtype=torch.long, device=self.device)
        return cache

    @override
    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Cache]:
        cache.seen = torch.cat([cache.seen, tokens], dim=1)
        fresh: Any = super().start(len(tokens), None)
        logits, fresh = self.model(cache.seen, fresh)
        fresh.seen = cache.seen
        return logits[:, -tokens.size(1) :], fresh


class HasOneCacheForAll(GrowingDecoder):
    """State in the model: whoever starts, starts the one cache anew."""

    the_cache: Cache | None = None

    @override
    def start(self, batch: int, capacity: int | None) -> Cache:
        if self.the_cache is None:
            self.the_cache = super().start(batch, capacity)
        self.the_cache.reset()
        return self.the_cache


class IsStillMasked(GrowingDecoder):
    """A control that controls nothing."""

    @override
    def without_mask(self) -> GrowingDecoder:
        return self


class FeedsThePromptsLastTokenTwice(GrowingDecoder):
    """The cursor is moved back by one, and the cache is not."""

    def generate(self, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        return generate_cached(self, torch.cat([prompt, prompt[:, -1:]], dim=1), max_new_tokens, sampler)


class NeverRunsTheLastToken(GrowingDecoder):
    """A session that forgets the token which was sampled but not run."""

    def session(self) -> Session:
        return Forgetful(self)


class Forgetful(Session):
    """Drops what is pending before the next turn."""

    @override
    def reply(self, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        answer = super().reply(max_new_tokens, sampler)
        self.pending = []
        return answer


KILLERS: dict[str, list[type]] = {
    "no-operation-makes-logits-differ-from-uncached-ones": [ForksTheHighWaterMark],
    "past-keys-and-values-never-change": [RescalesThePast],
    "without-the-mask-causality-and-finality-fail": [IsStillMasked],
    "a-row-alone-equals-the-row-in-a-batch": [SharesKeysInBatch],
    "reorder-equals-having-had-that-order-from-the-start": [ReordersKeysOnly],
    "crop-equals-never-having-appended": [CropsOneShort],
    "a-fork-and-its-origin-never-meet": [ForkSharesItsBuffers],
    "caches-side-by-side-never-meet": [HasOneCacheForAll],
    "a-second-request-equals-a-fresh-cache": [ResetKeepsTheLength],
    "the-same-schedule-gives-the-same-bits": [AddsNoise],
    "what-fits-works-and-one-token-more-is-refused": [WritesOverTheLastSlots, RefusesTooLate],
    "bytes-equal-the-formula": [CropKeepsTheMemory],
    "queries-are-not-stored": [ViewsIntoTheFusedTensor],
    "every-token-passes-every-layer-once": [RunsThePrefixAgain],
    "generation-runs-n-tokens-with-a-cache-and-n-n-plus-1-over-2-without": [RunsThePrefixAgain],
    "naive-and-cached-generation-give-the-same-tokens": [FeedsThePromptsLastTokenTwice],
    "a-conversation-gives-what-its-whole-text-gives": [NeverRunsTheLastToken],
    "a-conversation-runs-each-token-once": [RunsThePrefixAgain, NeverRunsTheLastToken],
    "free-slots-do-not-matter": [ReadsFreeSlots],
}
"""Planted faults that each law has to be broken by."""

CATALOGUED = {
    "cached-logits-equal-uncached-logits": ["missing-position-offset", "causal-during-decode", "unmasked-chunk"],
    "any-chunking-gives-the-same-logits-and-rows": ["missing-position-offset", "unmasked-chunk", "stale-cache"],
    "later-tokens-change-nothing-earlier": ["unmasked-chunk"],
    "lengths-equal-the-tokens-given": ["stale-cache"],
    "past-keys-and-values-never-change": ["missing-position-offset", "stale-cache"],
}
"""Bugs of the catalogue that a law has to be broken by."""
