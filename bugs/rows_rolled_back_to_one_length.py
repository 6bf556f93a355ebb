"""All rows of a batch are rolled back to the same length, though they accepted different numbers of tokens."""

from typing import Any

from typing_extensions import override

from kvref.bug import Bug
from kvref.speculate import Speculation


class RowsRolledBackToOneLength(Speculation):
    """The row that accepted least decides."""

    @override
    def roll_back(self, cache: Any, lengths: list[int]) -> Any:
        return self.decoder.crop(cache, min(lengths))  # reference: crop_rows(cache, lengths)


bug = Bug(
    RowsRolledBackToOneLength,
    family="sampling loop",
    wrong="After a round all rows keep as many tokens as the one that accepted least, so others miss some of theirs.",
    trigger="rows of a batch that accept different numbers of tokens",
    witnesses=("https://github.com/Blaizzy/mlx-vlm/issues/1833",),
    hint="Two rows accept one and three tokens. How long is each of them now?",
)
