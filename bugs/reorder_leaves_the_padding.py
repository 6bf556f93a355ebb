"""Rows that move, while their padding stays."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class ReorderLeavesThePadding(GrowingCache):
    """A short row that comes to where a long one was is read as a long one."""

    @override
    def reorder(self, rows: Sequence[int]) -> None:
        before = self.padding
        super().reorder(rows)
        if before is not None and len(before) == len(rows):
            self.padding = before  # reference: padding[index]


bug = Bug(
    ReorderLeavesThePadding,
    family="batching",
    wrong="A reorder of as many rows as there are moves keys and values, and not how much of each row is padding.",
    trigger="a reorder to as many rows of unequal lengths",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/34232",
        "https://github.com/ggml-org/llama.cpp/pull/5735",
    ),
    hint="Swap a long row and a short one. How long is each of them now?",
)
