"""A padding mask that is made longer at the wrong end."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class PaddingMaskGrowsAtTheLeft(GPT):
    """Columns for the new tokens go in front of those that the mask had, and push it to the right."""

    @override
    def attention_mask(self, past: int, new: int, padding: Padding | None) -> torch.Tensor | None:
        causal = self.causal_mask(past, new)
        if padding is None:
            return causal
        real = self.padding_mask(past + new, padding)
        if past:
            real = torch.cat([real[..., past:], real[..., :past]], dim=-1)  # reference: new columns come last
        return real if causal is None else causal & real


bug = Bug(
    PaddingMaskGrowsAtTheLeft,
    family="mask",
    wrong="Behind a padded prompt the padding mask is shifted: padding is seen, and the first tokens are not.",
    trigger="any token onto rows of unequal lengths",
    witnesses=(
        "https://github.com/huggingface/transformers/pull/34093",
        "https://github.com/huggingface/transformers/pull/40324",
        "https://github.com/huggingface/transformers/pull/32522",
    ),
    hint="Write down the mask of a row with 2 columns of padding before and after one more token.",
)
