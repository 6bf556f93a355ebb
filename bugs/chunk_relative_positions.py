"""Positions that start at 0 in each chunk."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class ChunkRelativePositions(GPT):
    """Right for a prompt and for single tokens; a chunk onto a past counts from its own beginning."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        start = past if new == 1 else 0  # reference: past
        return super().position_ids(start, new, padding)


bug = Bug(
    ChunkRelativePositions,
    family="position",
    wrong="Several tokens onto a past get positions from 0 up, as if they were a prompt.",
    trigger="several tokens onto a past",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/43082",
        "https://github.com/huggingface/transformers/pull/43132",
    ),
    hint="Compare the second turn of a conversation, fed at once and fed token by token.",
)
