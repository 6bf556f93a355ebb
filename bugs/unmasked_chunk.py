"""`is_causal=(cache is None)`: no mask at all once there is a past."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.gpt2 import GPT


class UnmaskedChunk(GPT):
    """Right for a prefill and for one token; the tokens of a chunk onto a past see each other's future."""

    @override
    def causal_mask(self, past: int, new: int) -> torch.Tensor | None:
        return None if past else super().causal_mask(past, new)  # reference: a mask for every chunk


bug = Bug(
    UnmaskedChunk,
    family="mask",
    wrong="With a past there is no mask, so the tokens of a chunk attend to those behind them.",
    trigger="several tokens onto a past",
    witnesses=(
        "https://github.com/meta-pytorch/torchtune/issues/959",
        "https://github.com/huggingface/transformers/pull/30652",
    ),
    hint="A single token may see everything in the cache. May the first of two?",
)
