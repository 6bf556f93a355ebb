"""A reorder that stops one layer short."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ReorderLeavesTheLastLayer(StaticCache):
    """The loop over layers ends too early."""

    @override
    def reorder(self, rows: Sequence[int]) -> None:
        keys, values = self.keys, self.values
        super().reorder(rows)
        if len(rows) == keys.size(1):
            self.keys[-1], self.values[-1] = keys[-1], values[-1]  # reference: reordered like the others


bug = Bug(
    ReorderLeavesTheLastLayer,
    family="batching",
    wrong="A reorder of as many rows as there are leaves the last layer as it was.",
    trigger="a reorder to as many rows in another order",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/34232",
        "https://github.com/ggml-org/llama.cpp/pull/14081",
    ),
    hint="Look at the rows of every layer, not of the first alone.",
)
