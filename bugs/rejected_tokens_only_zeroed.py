"""Rows cropped to the longest, with zeros for what the others drop."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class RejectedTokensOnlyZeroed(StaticCache):
    """A key of zeros is a key: it takes its share of the weight, and the length counts it."""

    @override
    def crop_rows(self, lengths: Sequence[int]) -> None:
        super().crop_rows([min(length, max(lengths)) for length in self.lengths])  # reference: lengths
        for row, (kept, columns) in enumerate(zip(lengths, self.padded().tolist(), strict=True)):
            self.keys[:, row, :, columns + kept : self.length] = 0
            self.values[:, row, :, columns + kept : self.length] = 0


bug = Bug(
    RejectedTokensOnlyZeroed,
    family="batching",
    wrong="Rows that keep fewer tokens than another get zeros in their place, which are attended to.",
    trigger="rows cropped to unequal lengths",
    witnesses=(
        "https://github.com/Blaizzy/mlx-vlm/pull/2113",
        "https://github.com/Blaizzy/mlx-vlm/issues/1962",
        "https://github.com/Blaizzy/mlx-vlm/issues/1833",
    ),
    hint="Which weight does softmax give to a key of zeros?",
)
