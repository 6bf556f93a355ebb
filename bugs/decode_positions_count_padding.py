"""Positions that leave padding out in the first call alone."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class DecodePositionsCountPadding(GPT):
    """The prompt is right; the next token goes on at the width of the cache, padding included."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        known = None if past else padding  # reference: padding in every call
        return super().position_ids(past, new, known)


bug = Bug(
    DecodePositionsCountPadding,
    family="position",
    wrong="Behind a padded prompt the positions of a row count its padding too.",
    trigger="any token onto rows of unequal lengths",
    witnesses=(
        "https://github.com/TransformerLensOrg/TransformerLens/pull/1617",
        "https://github.com/Comfy-Org/ComfyUI/pull/15698",
    ),
    hint="A row has 2 columns of padding and 3 tokens. At which position does its next token belong?",
)
