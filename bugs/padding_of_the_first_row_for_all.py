"""One row's padding, for the whole batch."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class PaddingOfTheFirstRowForAll(GPT):
    """An index of zero stands where the row should: right for one row, and for rows of one length."""

    @override
    def padding_mask(self, total: int, padding: Padding) -> torch.Tensor:
        columns = torch.arange(total, device=padding.device)
        return (columns >= padding[:1, None])[:, None, None]  # reference: padding[:, None]


bug = Bug(
    PaddingOfTheFirstRowForAll,
    family="batching",
    wrong="Every row has as many columns hidden as the first row has of padding.",
    trigger="rows of unequal lengths",
    witnesses=(
        "https://github.com/microsoft/onnxruntime/pull/29752",
        "https://github.com/google-research/timesfm/pull/492",
    ),
    hint="Swap two rows of the batch. Do their logits swap too, and nothing else?",
)
