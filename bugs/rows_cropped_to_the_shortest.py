"""One length for all rows when drafts are rejected."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class RowsCroppedToTheShortest(GrowingCache):
    """Rows that accepted more tokens than another lose them."""

    @override
    def crop_rows(self, lengths: Sequence[int]) -> None:
        least = min(lengths)
        super().crop_rows([least] * len(lengths))  # reference: lengths


bug = Bug(
    RowsCroppedToTheShortest,
    family="batching",
    wrong="A crop of rows cuts all of them to the length of the one that keeps fewest tokens.",
    trigger="rows cropped to unequal lengths",
    witnesses=("https://github.com/Blaizzy/mlx-vlm/issues/1833",),
    hint="Two rows accept 1 and 3 of their drafts. How many does each keep?",
)
