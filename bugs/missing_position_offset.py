"""Position ids that start at 0 in every call."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class MissingPositionOffset(GPT):
    """Every generated token sits at position 0."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        return super().position_ids(0, new, padding)  # reference: arange(past, past + new)


bug = Bug(
    MissingPositionOffset,
    family="position",
    wrong="Position ids count from 0 in every call and ignore the tokens that are cached already.",
    trigger="any token onto a past",
    witnesses=(
        "https://github.com/ml-explore/mlx-lm/pull/93",
        "https://github.com/OpenNMT/CTranslate2/pull/1572",
        "https://github.com/huggingface/transformers/issues/33852",
    ),
    hint="Which position does the model believe the second token to be at?",
)
