"""Heads that are put together along time."""

from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import CausalSelfAttention


class HeadsMergedWithoutTransposing(CausalSelfAttention):
    """The shape comes out right, and for one token the numbers too."""

    @override
    def merge_heads(self, y: Tensor) -> Tensor:
        batch, _, new, _ = y.shape
        return y.reshape(batch, new, -1)  # reference: y.transpose(1, 2).flatten(start_dim=2)


bug = Bug(
    HeadsMergedWithoutTransposing,
    family="layout",
    wrong="What the heads give for one token goes to several, unless it is alone.",
    trigger="several tokens at once, with several heads",
    witnesses=(
        "https://github.com/BobMcDear/attorch/issues/14",
        "https://github.com/LMCache/LMCache/pull/4467",
        "https://github.com/vllm-project/vllm/pull/29887",
    ),
    hint="Which axis has to be next to the last one before two are joined?",
)
