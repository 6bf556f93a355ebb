"""Rows that are copied one after the other within one buffer."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class RowsReorderedInPlace(StaticCache):
    """A row that was written already is read again for a later one."""

    @override
    def reorder(self, rows: Sequence[int]) -> None:
        order = list(range(max(self.keys.size(1), len(rows))))
        for row, source in enumerate(rows):
            order[row] = order[source]  # reference: the row that stood at source before
        super().reorder(order[: len(rows)])


bug = Bug(
    RowsReorderedInPlace,
    family="aliasing",
    wrong="A reorder reads rows that it has overwritten already, so a swap gives the same row twice.",
    trigger="a reorder that takes a row from further up",
    witnesses=(
        "https://github.com/ggml-org/llama.cpp/pull/5735",
        "https://github.com/ggml-org/llama.cpp/pull/14081",
        "https://github.com/huggingface/transformers/issues/34232",
    ),
    hint="How many rows does it take to swap two?",
)
