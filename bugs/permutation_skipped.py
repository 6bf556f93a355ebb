"""A reorder that acts only where rows repeat or leave."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class PermutationSkipped(StaticCache):
    """As long as every row stays in the batch, nothing seems to change."""

    @override
    def reorder(self, rows: Sequence[int]) -> None:
        if sorted(rows) != list(range(self.keys.size(1))):  # reference: in every case
            super().reorder(rows)


bug = Bug(
    PermutationSkipped,
    family="batching",
    wrong="A reorder in which every row stays is left out.",
    trigger="a permutation of rows with different tokens",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/46612",
        "https://github.com/deepspeedai/DeepSpeed/issues/2506",
    ),
    hint="Swap two beams, and go on with each.",
)
