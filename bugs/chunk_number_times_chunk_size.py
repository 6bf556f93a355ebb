"""A chunk that starts at a multiple of its own size."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class ChunkNumberTimesChunkSize(GPT):
    """Right as long as all chunks are equally long; a shorter last chunk is put too far to the left."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        start = past // new * new  # reference: past
        return super().position_ids(start, new, padding)


bug = Bug(
    ChunkNumberTimesChunkSize,
    family="position",
    wrong="The first position of a chunk is rounded down to a multiple of the size of the chunk.",
    trigger="several tokens onto a past that is no multiple of their number",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/43082",
        "https://github.com/huggingface/transformers/pull/43132",
    ),
    hint="Cut a prompt into chunks of 4, 4 and 3. Where does the third begin?",
)
