"""A mask of ones and zeros that is added, and hides nothing."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class PaddingMaskAddedToScores(GPT):
    """Attention takes a mask of numbers as something to add to the scores, one of booleans as what may be seen."""

    @override
    def attention_mask(self, past: int, new: int, padding: Padding | None) -> torch.Tensor | None:
        causal = self.causal_mask(past, new)
        if padding is None:
            return causal
        real = self.padding_mask(past + new, padding)
        added = real.to(self.transformer.wte.weight.dtype)  # reference: real, which is boolean
        return added if causal is None else causal & real


bug = Bug(
    PaddingMaskAddedToScores,
    family="numerics",
    wrong="In a decoding step padding is not hidden: its score is only lower than the others by one.",
    trigger="a single token onto rows of unequal lengths",
    witnesses=(
        "https://github.com/onnx/onnx/pull/8068",
        "https://github.com/microsoft/onnxruntime/issues/28904",
    ),
    hint="What does attention do with a mask of numbers?",
)
