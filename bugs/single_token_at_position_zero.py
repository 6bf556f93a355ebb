"""Positions that are worked out for several tokens only."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding
from kvref.gpt2 import GPT


class SingleTokenAtPositionZero(GPT):
    """A call with one token, as every decoding step is, leaves its position at 0."""

    @override
    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> torch.Tensor:
        if new == 1:
            return torch.zeros(1, dtype=torch.long, device=self.transformer.wpe.weight.device)  # reference: past
        return super().position_ids(past, new, padding)


bug = Bug(
    SingleTokenAtPositionZero,
    family="position",
    wrong="A token that comes alone gets position 0, whatever is cached.",
    trigger="a single token onto a past",
    witnesses=(
        "https://github.com/ml-explore/mlx-lm/pull/93",
        "https://github.com/keras-team/keras-hub/pull/2977",
    ),
    hint="Run the same tokens in twos and one by one. Which of the two goes wrong?",
)
