"""A square causal mask at the left of the past."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import GPT


class ChunkMaskedAtTheUpperLeft(GPT):
    """Single tokens are a case of their own, and right; a chunk onto a past sees the first columns alone."""

    @override
    def causal_mask(self, past: int, new: int) -> torch.Tensor | None:
        if new == 1:
            return None
        visible = torch.ones(new, past + new, dtype=torch.bool, device=self.transformer.wpe.weight.device)
        return visible.tril()  # reference: tril(diagonal=past)


bug = Bug(
    ChunkMaskedAtTheUpperLeft,
    family="mask",
    wrong="A chunk has its triangle in the upper left corner: its tokens see neither most of the past nor themselves.",
    trigger="several tokens onto a past",
    witnesses=(
        "https://github.com/keras-team/keras-hub/pull/2977",
        "https://github.com/pytorch/executorch/pull/21749",
        "https://github.com/microsoft/onnxruntime/issues/28904",
    ),
    hint="Draw the mask of two queries against five keys. May the first query see its own key?",
)
