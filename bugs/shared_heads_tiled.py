"""Heads of keys and values repeated in turn, not in place."""

from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import CausalSelfAttention


class SharedHeadsTiled(CausalSelfAttention):
    """With two of them for four query heads, the middle ones look at each other's."""

    @override
    def repeat_heads(self, x: Tensor) -> Tensor:
        repeats = self.n_head // x.size(1)
        return x.repeat(1, repeats, 1, 1)  # reference: x.repeat_interleave(repeats, dim=1)


bug = Bug(
    SharedHeadsTiled,
    family="layout",
    wrong="Query heads look at the keys and values of another group, with and without a cache alike.",
    trigger="more than one head of keys and values, and more query heads than that",
    witnesses=(
        "https://github.com/apple/axlearn/pull/842",
        "https://github.com/EricLBuehler/candle-vllm/pull/52",
    ),
    hint="With and without the cache it is the same. What can it be compared with then?",
)
