"""Faults planted to see each law fail: one wrong method each, none of them in the catalogue."""

from typing import Any

import torch
from typing_extensions import override

from kvref.cache import Cache, GrowingCache, Rows, StaticCache
from kvref.generate import generate_cached
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


class AddsNoise(GrowingCache):
    """A little of whatever a random generator gives, as dropout left on would."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        return super().append(layer, keys + 0.01 * torch.rand_like(keys), values)


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


KILLERS: dict[str, list[type]] = {
    "past-keys-and-values-never-change": [RescalesThePast],
    "without-the-mask-causality-and-finality-fail": [IsStillMasked],
    "a-row-alone-equals-the-row-in-a-batch": [SharesKeysInBatch],
    "caches-side-by-side-never-meet": [HasOneCacheForAll],
    "the-same-schedule-gives-the-same-bits": [AddsNoise],
    "what-fits-works-and-one-token-more-is-refused": [RefusesTooLate],
    "bytes-equal-the-formula": [CropKeepsTheMemory],
    "queries-are-not-stored": [ViewsIntoTheFusedTensor],
    "every-token-passes-every-layer-once": [RunsThePrefixAgain],
    "generation-runs-n-tokens-with-a-cache-and-n-n-plus-1-over-2-without": [RunsThePrefixAgain],
    "naive-and-cached-generation-give-the-same-tokens": [FeedsThePromptsLastTokenTwice],
    "a-conversation-runs-each-token-once": [RunsThePrefixAgain],
}
"""Planted faults that each law has to be broken by."""

CATALOGUED = {
    "cached-logits-equal-uncached-logits": [
        "missing-position-offset",
        "causal-during-decode",
        "unmasked-chunk",
        "captured-slot-replayed",
        "chunk-counted-as-one-token",
        "chunk-masked-at-the-upper-left",
        "chunk-number-times-chunk-size",
        "chunk-relative-positions",
        "decode-reads-before-writing",
        "decoded-token-one-position-late",
        "first-two-layers-share-slots",
        "past-keys-scaled-again",
        "single-token-at-position-zero",
        "single-token-never-written",
        "stored-in-bfloat16",
    ],
    "any-chunking-gives-the-same-logits-and-rows": [
        "missing-position-offset",
        "unmasked-chunk",
        "stale-cache",
        "write-waits-for-the-next-call",
    ],
    "no-operation-makes-logits-differ-from-uncached-ones": [
        "fork-counts-used-slots",
        "crop-counts-padding",
        "cropped-rows-keep-their-padding",
        "cropped-rows-move-keys-only",
        "decode-positions-count-padding",
        "padded-cache-is-not-cropped",
        "padded-rows-share-positions",
        "padding-hidden-at-the-right",
        "refilled-row-keeps-old-values",
        "reorder-leaves-the-padding",
    ],
    "heads-that-share-keys-equal-heads-that-each-have-a-copy": [
        "shared-heads-tiled",
    ],
    "later-tokens-change-nothing-earlier": [
        "unmasked-chunk",
    ],
    "past-keys-and-values-never-change": [
        "missing-position-offset",
        "stale-cache",
    ],
    "reorder-equals-having-had-that-order-from-the-start": [
        "reorder-leaves-the-values",
        "permutation-skipped",
        "reorder-leaves-the-last-layer",
        "rows-reordered-in-place",
    ],
    "a-crop-of-rows-equals-never-having-appended": [
        "rows-cropped-to-the-shortest",
        "rejected-tokens-only-zeroed",
    ],
    "a-new-occupant-of-a-row-meets-nothing-of-the-last": [
        "refilled-row-sees-its-last-occupant",
        "refill-stretches-its-neighbours",
        "refilled-row-keeps-its-padding",
        "refilled-row-written-at-the-left",
    ],
    "padding-changes-nothing": [
        "padding-hidden-in-the-prompt-only",
        "padding-mask-added-to-scores",
        "padding-mask-grows-at-the-left",
    ],
    "padding-of-another-token-gives-the-same-bits": [
        "hidden-keys-keep-a-weight",
    ],
    "each-row-of-a-batch-generates-what-it-generates-alone": [
        "last-logits-counted-without-padding",
        "finished-row-keeps-writing",
        "heads-and-time-swapped",
        "heads-merged-without-transposing",
        "single-token-tiles-shared-heads",
    ],
    "crop-equals-never-having-appended": [
        "crop-keeps-one-token-more",
        "crop-of-nothing-drops-all",
        "crop-to-nothing-keeps-all",
    ],
    "a-fork-and-its-origin-never-meet": [
        "fork-shares-its-buffers",
        "fork-loses-the-padding",
    ],
    "a-second-request-equals-a-fresh-cache": [
        "reset-clears-rows-not-length",
        "reset-ignored",
    ],
    "a-restored-cache-goes-on-as-the-saved-one": [
        "restore-loses-the-padding",
        "saved-up-to-the-allocation-step",
    ],
    "a-pass-that-dies-leaves-the-cache-as-it-was": [
        "rows-kept-before-the-pass-ends",
    ],
    "a-look-changes-nothing": [
        "peek-is-kept",
    ],
    "what-fits-works-and-one-token-more-is-refused": [
        "full-cache-overwrites-its-last-slot",
        "full-cache-drops-new-tokens",
    ],
    "lengths-equal-the-tokens-given": [
        "stale-cache",
        "padding-counted-as-tokens",
    ],
    "bytes-equal-the-formula": [
        "restore-forgets-the-capacity",
    ],
    "speculation-gives-the-greedy-tokens-and-runs-what-it-drafts": [
        "draft-accepted-past-its-first-error",
        "rows-rolled-back-to-one-length",
    ],
    "a-conversation-gives-what-its-whole-text-gives": [
        "last-token-never-cached",
    ],
    "a-conversation-runs-each-token-once": [
        "pending-token-fed-twice",
    ],
    "free-slots-do-not-matter": [
        "free-slots-attended",
    ],
}
"""Bugs of the catalogue that a law has to be broken by."""

KILLED_BY = {bug: law for law, bugs in reversed(CATALOGUED.items()) for bug in bugs}
"""The first of these laws for each bug."""
