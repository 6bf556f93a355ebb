"""Faults in what a model is told: positions, the causal mask, and which columns are padding."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from kvref.measure.planted.listed import plant
from kvref.protocol import Tokens
from kvref.targets.causal_lm import CausalLM, Filled


class Told(CausalLM):
    """Is told every position and the whole mask, and so can be told wrong ones."""

    def first(self, past: int, new: int) -> int:
        """Position of the first new token of a row that has `past` tokens."""
        del new
        return past

    def sees(self, query: Tensor, key: Tensor, past: int) -> Tensor:
        """Whether the token in column `query` sees that in column `key`, where `past` columns came before the call."""
        del past
        return key <= query

    @override
    def positions(self, past: int, tokens: Tokens) -> Mapping[str, Any]:
        return self.told(past, tokens, torch.zeros(len(tokens), 1, dtype=torch.long))

    @override
    def padded(self, cache: Filled, tokens: Tokens) -> Mapping[str, Any]:
        return self.told(cache.width, tokens, torch.tensor(cache.padding)[:, None])

    def told(self, past: int, tokens: Tokens, padding: Tensor) -> Mapping[str, Any]:
        """Positions, and which columns are seen, as a mask of four dimensions that a model takes as it is."""
        new = tokens.shape[1]
        firsts = torch.tensor([[self.first(max(past - int(row), 0), new)] for row in padding[:, 0]])
        ahead = (padding - past).clamp_min(0)  # columns of padding among the new ones
        positions = (firsts + torch.arange(new) - ahead).clamp_min(0)
        query, key = torch.arange(past, past + new)[:, None], torch.arange(past + new)
        seen = self.sees(query, key, past)[None] & (key >= padding[:, :, None])
        seen |= (key == query)[None] & (query < padding[:, :, None])  # padding sees itself, or softmax would be NaN
        return {"position_ids": positions, "attention_mask": scores(torch.where(seen, 0.0, -torch.inf), self.dtype)}


def scores(added: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of every head, `batch 1 new columns`."""
    return added.to(dtype).clamp_min(torch.finfo(dtype).min)[:, None]


@plant("missing-position-offset")
class NoOffset(Told):
    """Counts every call from 0."""

    @override
    def first(self, past: int, new: int) -> int:
        return 0


@plant("single-token-at-position-zero")
class SingleAtZero(Told):
    """Counts a call of one token from 0."""

    @override
    def first(self, past: int, new: int) -> int:
        return 0 if new == 1 else past


@plant("decoded-token-one-position-late")
class OneLate(Told):
    """Puts a decoded token one position too far."""

    @override
    def first(self, past: int, new: int) -> int:
        return past + (new == 1 and past > 0)


@plant("chunk-relative-positions")
class ChunkFromZero(Told):
    """Counts a chunk from 0."""

    @override
    def first(self, past: int, new: int) -> int:
        return past if new == 1 else 0


@plant("chunk-number-times-chunk-size")
class ByChunks(Told):
    """Counts whole chunks."""

    @override
    def first(self, past: int, new: int) -> int:
        return past // new * new


@plant("causal-during-decode")
class UpperLeft(Told):
    """Aligns the causal mask to the first column."""

    @override
    def sees(self, query: Tensor, key: Tensor, past: int) -> Tensor:
        return key <= query - past


@plant("unmasked-chunk")
class Unmasked(Told):
    """Has no causal mask behind a past."""

    @override
    def sees(self, query: Tensor, key: Tensor, past: int) -> Tensor:
        return key <= query + (len(key) if past else 0)


@plant("chunk-masked-at-the-upper-left")
class ChunkUpperLeft(Told):
    """Aligns the causal mask of several tokens to the first column."""

    @override
    def sees(self, query: Tensor, key: Tensor, past: int) -> Tensor:
        return key <= query - (past if len(query) > 1 else 0)


class ToldOfPadding(CausalLM):
    """Is told of padding as transformers' generation does, but wrongly."""

    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        """What is said instead of what is right."""
        raise NotImplementedError

    @override
    def padded(self, cache: Filled, tokens: Tokens) -> Mapping[str, Any]:
        return self.mistold(cache, dict(super().padded(cache, tokens)))


@plant("padded-rows-share-positions")
class SharedPositions(ToldOfPadding):
    """Has the positions of the longest row for all."""

    @override
    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        longest = min(range(len(cache.padding)), key=cache.padding.__getitem__)
        return told | {"position_ids": told["position_ids"][longest].expand_as(told["position_ids"])}


@plant("decode-positions-count-padding")
class CountsPadding(ToldOfPadding):
    """Counts columns, once there is a past."""

    @override
    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        columns = cache.width + torch.arange(told["position_ids"].shape[1])
        return told | ({"position_ids": columns.expand_as(told["position_ids"])} if cache.width else {})


@plant("padding-hidden-in-the-prompt-only")
class SeenLater(ToldOfPadding):
    """Hides nothing, once there is a past."""

    @override
    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        return told | ({"attention_mask": torch.ones_like(told["attention_mask"])} if cache.width else {})


@plant("padding-hidden-at-the-right")
class HiddenAtTheRight(ToldOfPadding):
    """Hides as many columns at the other end."""

    @override
    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        return told | {"attention_mask": told["attention_mask"].flip(1)}


@plant("padding-of-the-first-row-for-all")
class FirstRowForAll(ToldOfPadding):
    """Hides in every row what is padding in the first."""

    @override
    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        return told | {"attention_mask": told["attention_mask"][:1].expand_as(told["attention_mask"]).contiguous()}


@plant("padding-mask-grows-at-the-left")
class GrowsAtTheLeft(ToldOfPadding):
    """Puts what is new into the mask before what is old."""

    @override
    def mistold(self, cache: Filled, told: dict[str, Any]) -> Mapping[str, Any]:
        return told | {
            "attention_mask": told["attention_mask"].roll(told["position_ids"].shape[1] * bool(cache.width), 1)
        }


class Lowered(Told):
    """Lowers the scores of padding, and does not hide it."""

    by = 0.0
    decode_only = False

    @override
    def told(self, past: int, tokens: Tokens, padding: Tensor) -> Mapping[str, Any]:
        told = dict(super().told(past, tokens, padding))
        if not self.decode_only or (past and tokens.shape[1] == 1):
            columns = torch.arange(past + tokens.shape[1])
            causal = columns <= torch.arange(past, past + tokens.shape[1])[:, None]
            lowered = torch.where(columns < padding[:, :, None], -self.by, 0.0)
            told["attention_mask"] = scores(torch.where(causal[None], lowered, -torch.inf), self.dtype)
        return told


@plant("hidden-keys-keep-a-weight")
class LoweredByTen(Lowered):
    """Lowers them by ten."""

    by = 10.0


@plant("padding-mask-added-to-scores")
class LoweredByOne(Lowered):
    """Lowers them by one, in a decoding step."""

    by = 1.0
    decode_only = True
