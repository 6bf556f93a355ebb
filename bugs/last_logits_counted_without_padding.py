"""The last logits of a prompt are looked up at its length, as if it had no padding."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.generate import BatchGeneration
from kvref.protocol import Logits


class LastLogitsCountedWithoutPadding(BatchGeneration):
    """Counts the tokens of a row from the left, where its padding is."""

    @override
    def last(self, logits: Logits, padding: Sequence[int]) -> Float[Tensor, "batch vocab_size"]:
        places = torch.tensor([logits.size(1) - columns - 1 for columns in padding], device=logits.device)
        return logits[torch.arange(len(logits)), places]  # reference: logits[:, -1]


bug = Bug(
    LastLogitsCountedWithoutPadding,
    family="sampling loop",
    wrong="The first new token of a padded row is chosen from logits that are not those of its last token.",
    trigger="prompts of different lengths",
    witnesses=(
        "https://github.com/tenstorrent/tt-xla/pull/4190",
        "https://github.com/vllm-project/vllm/issues/3251",
    ),
    hint="In which column does a row of two tokens end, when the longest row has five?",
)
