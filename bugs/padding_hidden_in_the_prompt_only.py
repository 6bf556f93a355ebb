"""Padding that is hidden in the first call alone."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class PaddingHiddenInThePromptOnly(GPT):
    """The prompt is right; tokens that come later see the padding, whose keys are in the cache like others."""

    @override
    def attention_mask(self, past: int, new: int, padding: Padding | None) -> torch.Tensor | None:
        hidden = None if past else padding  # reference: padding in every call
        return super().attention_mask(past, new, hidden)


bug = Bug(
    PaddingHiddenInThePromptOnly,
    family="mask",
    wrong="Tokens behind a padded prompt attend to its padding.",
    trigger="any token onto rows of unequal lengths",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/3095",
        "https://github.com/TransformerLensOrg/TransformerLens/pull/1617",
        "https://github.com/huggingface/transformers/issues/16811",
    ),
    hint="Whose keys are in the first columns of a short row, and who may see them in the second call?",
)
