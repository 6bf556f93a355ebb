"""A mask for padding at the right, over padding at the left."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class PaddingHiddenAtTheRight(GPT):
    """As many columns are hidden as there should be, at the other end of the row."""

    @override
    def padding_mask(self, total: int, padding: Padding) -> torch.Tensor:
        columns = torch.arange(total, device=padding.device)
        return (columns < total - padding[:, None])[:, None, None]  # reference: columns >= padding


bug = Bug(
    PaddingHiddenAtTheRight,
    family="mask",
    wrong="Rows that are padded at the left have their last tokens hidden, and their padding seen.",
    trigger="rows of unequal lengths",
    witnesses=(
        "https://github.com/mosaicml/examples/pull/257",
        "https://github.com/lablup/mlxcel/pull/76",
        "https://github.com/fla-org/flash-linear-attention/issues/431",
    ),
    hint="At which end of a row does the model put padding, and at which does the mask expect it?",
)
