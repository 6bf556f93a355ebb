"""One vector of positions for all rows of a padded batch."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class PaddedRowsSharePositions(GPT):
    """The longest row is right; in the others the padding counts as tokens."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        shared = None if padding is None else padding.min().expand_as(padding)  # reference: padding
        return super().position_ids(past, new, shared)


bug = Bug(
    PaddedRowsSharePositions,
    family="position",
    wrong="Every row of a padded batch has the positions of the longest one.",
    trigger="rows of unequal lengths",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/3095",
        "https://github.com/mosaicml/examples/pull/257",
        "https://github.com/TransformerLensOrg/TransformerLens/pull/1610",
    ),
    hint="Which position does the first real token of a short row get in a batch, and which alone?",
)
