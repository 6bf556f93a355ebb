"""Dropout, while nobody trains."""

import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import CausalSelfAttention


class DropoutLeftOn(CausalSelfAttention):
    """A rate of dropout that is passed on as a number knows nothing of `eval`."""

    @override
    def merge_heads(self, y: Tensor) -> Tensor:
        return F.dropout(super().merge_heads(y), p=0.1)  # reference: no dropout


bug = Bug(
    DropoutLeftOn,
    family="numerics",
    wrong="Some of what attention gives is dropped by chance, in every call.",
    trigger="always, by chance",
    witnesses=(
        "https://github.com/karpathy/nanoGPT/pull/240",
        "https://github.com/meta-pytorch/torchtune/pull/1803",
        "https://github.com/huggingface/pytorch-image-models/pull/1978",
    ),
    hint="Run the same tokens twice, without any cache.",
)
