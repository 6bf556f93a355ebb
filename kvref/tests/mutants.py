"""Faults planted to see each law fail: one wrong method each, none of them in the catalogue."""

from collections.abc import Sequence

import torch
from typing_extensions import override

from kvref.cache import Cache, GrowingCache, Rows
from kvref.generate import generate_cached
from kvref.measure.verdicts import SharesKeysInBatch
from kvref.protocol import Logits, Sampler, Tokens
from kvref.speculate import Speculation
from kvref.targets.reference import GrowingDecoder


class RescalesThePast(GrowingCache):
    """Keys that are read are transformed again each time, by one unit in the last place."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        if layer in self.layers:
            past_keys, past_values = self.layers[layer]
            self.layers[layer] = torch.nextafter(past_keys, 2 * past_keys), past_values
        return super().append(layer, keys, values)


class FeedsThePromptsLastTokenTwice(GrowingDecoder):
    """The cursor is moved back by one, and the cache is not."""

    def generate(self, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        return generate_cached(self, torch.cat([prompt, prompt[:, -1:]], dim=1), max_new_tokens, sampler)


class KeepsThePaddingOfADeadPrefill(GrowingDecoder):
    """Which columns are padding is noted before the pass, and stays noted when that dies."""

    @override
    def prefill(self, cache: Cache, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Cache]:
        cache.padding = torch.tensor(list(padding), device=self.device)
        return self.model(tokens, cache)


class AcceptsNoDraft(Speculation):
    """Every token is right, and every draft was for nothing."""

    @override
    def accepted(self, draft: list[int], choice: list[int]) -> int:
        return 0


KILLERS: dict[str, list[type]] = {
    "past-keys-and-values-never-change": [RescalesThePast],
    "a-row-alone-equals-the-row-in-a-batch": [SharesKeysInBatch],
    "a-pass-that-dies-leaves-the-cache-as-it-was": [KeepsThePaddingOfADeadPrefill],
    "naive-and-cached-generation-give-the-same-tokens": [FeedsThePromptsLastTokenTwice],
    "speculation-gives-the-greedy-tokens-and-runs-what-it-drafts": [AcceptsNoDraft],
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
    "without-the-mask-causality-and-finality-fail": [
        "bidirectional-ignored",
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
        "padding-of-the-first-row-for-all",
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
    "caches-side-by-side-never-meet": [
        "one-cache-for-all",
    ],
    "a-second-request-equals-a-fresh-cache": [
        "reset-clears-rows-not-length",
        "reset-ignored",
    ],
    "the-same-schedule-gives-the-same-bits": [
        "dropout-left-on",
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
        "refused-too-late",
    ],
    "lengths-equal-the-tokens-given": [
        "stale-cache",
        "padding-counted-as-tokens",
    ],
    "bytes-equal-the-formula": [
        "restore-forgets-the-capacity",
        "crop-keeps-the-buffer",
    ],
    "queries-are-not-stored": [
        "fused-projection-kept",
    ],
    "every-token-passes-every-layer-once": [
        "whole-prefix-run-again",
    ],
    "generation-runs-n-tokens-with-a-cache-and-n-n-plus-1-over-2-without": [
        "whole-prefix-run-again",
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
        "conversation-runs-its-text-again",
    ],
    "free-slots-do-not-matter": [
        "free-slots-attended",
    ],
}
"""Bugs of the catalogue that a law has to be broken by."""

KILLED_BY = {bug: law for law, bugs in reversed(CATALOGUED.items()) for bug in bugs}
"""The first of these laws for each bug."""
