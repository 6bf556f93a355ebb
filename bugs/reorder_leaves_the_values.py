"""A reorder of keys alone."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ReorderLeavesTheValues(StaticCache):
    """Every row looks where it should, and finds what belongs to another."""

    @override
    def reorder(self, rows: Sequence[int]) -> None:
        values = self.values
        super().reorder(rows)
        if len(rows) == values.size(1):
            self.values = values  # reference: reordered like the keys


bug = Bug(
    ReorderLeavesTheValues,
    family="batching",
    wrong="A reorder of as many rows as there are moves keys and leaves values.",
    trigger="a reorder to as many rows in another order",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/34232",
        "https://github.com/ggml-org/llama.cpp/pull/5735",
        "https://github.com/ggml-org/llama.cpp/pull/14081",
    ),
    hint="Which tensors make up a row? Compare each with that of the row it came from.",
)
