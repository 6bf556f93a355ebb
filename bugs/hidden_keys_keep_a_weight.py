"""A large negative number in place of minus infinity."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class HiddenKeysKeepAWeight(GPT):
    """What has to be hidden is only made unlikely."""

    @override
    def attention_mask(self, past: int, new: int, padding: Padding | None) -> torch.Tensor | None:
        causal = self.causal_mask(past, new)
        if padding is None:
            return causal
        real = self.padding_mask(past + new, padding)
        mask = real if causal is None else causal & real
        return torch.where(mask, 0.0, -10.0).to(self.transformer.wte.weight.dtype)  # reference: mask


bug = Bug(
    HiddenKeysKeepAWeight,
    family="numerics",
    wrong="Padding keeps a small weight, for its scores are lowered by ten and not by infinity.",
    trigger="rows of unequal lengths",
    witnesses=(
        "https://github.com/Dao-AILab/flash-attention/issues/1745",
        "https://github.com/flashinfer-ai/flashinfer/pull/363",
        "https://github.com/microsoft/onnxruntime/issues/28904",
    ),
    hint="How much is exp(-10), and how much is exp of minus infinity?",
)
