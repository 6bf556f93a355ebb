"""A position that counts the new token as one of the past."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class DecodedTokenOnePositionLate(GPT):
    """A decoded token is put one position behind its own; prompts and chunks are right."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        late = int(past > 0 and new == 1)  # reference: 0
        return (super().position_ids(past, new, padding) + late).clamp(max=self.config.block_size - 1)


bug = Bug(
    DecodedTokenOnePositionLate,
    family="position",
    wrong="A single token onto a past is put one position too far.",
    trigger="a single token onto a past",
    witnesses=(
        "https://github.com/microsoft/onnxruntime/pull/12156",
        "https://github.com/microsoft/onnxruntime-genai/pull/2354",
        "https://github.com/tenstorrent/tt-metal/pull/40970",
    ),
    hint="After a prompt of 52 tokens, at positions 0 to 51, which position does the next one get?",
)
