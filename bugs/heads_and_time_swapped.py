"""A view that has the right shape and the wrong order."""

from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import CausalSelfAttention


class HeadsAndTimeSwapped(CausalSelfAttention):
    """Heads are cut out of the axis of time; for one token, or one head, that is the same."""

    @override
    def split_heads(self, x: Tensor) -> Tensor:
        batch, new, _ = x.shape
        return x.reshape(batch, -1, new, self.head_dim)  # reference: view(batch, new, -1, head_dim).transpose(1, 2)


bug = Bug(
    HeadsAndTimeSwapped,
    family="layout",
    wrong="Heads are mixed with tokens whenever there are several of both.",
    trigger="several tokens at once, with several heads",
    witnesses=(
        "https://github.com/BobMcDear/attorch/issues/14",
        "https://github.com/Dao-AILab/flash-attention/issues/772",
        "https://github.com/vllm-project/vllm/issues/49012",
    ),
    hint="Number the elements of two tokens by two heads by two, and see where each goes.",
)
