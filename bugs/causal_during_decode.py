"""`is_causal=True` in every call: the triangle in the upper left corner."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import GPT


class CausalDuringDecode(GPT):
    """The mask that PyTorch's `is_causal=True` means: query i sees keys 0 to i, however long the past is."""

    @override
    def causal_mask(self, past: int, new: int) -> torch.Tensor:
        visible = torch.ones(new, past + new, dtype=torch.bool, device=self.transformer.wpe.weight.device)
        return visible.tril()  # reference: tril(diagonal=past), and none for a single token


bug = Bug(
    CausalDuringDecode,
    family="mask",
    wrong="The causal mask is aligned to the upper left corner, so a decoded token sees the first key alone.",
    trigger="any token onto a past",
    witnesses=(
        "https://github.com/pytorch/pytorch/issues/108108",
        "https://github.com/Dao-AILab/flash-attention/issues/517",
        "https://github.com/EleutherAI/gpt-neox/pull/1178",
    ),
    hint="Draw the mask of one query against three keys: which corner is the triangle in?",
)
