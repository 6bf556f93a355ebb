"""A crop that keeps columns and not tokens."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class CropCountsPadding(StaticCache):
    """The padding stays, so a row that is padded keeps fewer of its tokens."""

    @override
    def crop(self, length: int) -> None:
        self.require_length(length)
        self.length = length  # reference: crop_rows first where there is padding


bug = Bug(
    CropCountsPadding,
    family="eviction",
    wrong="A crop counts the columns of padding as tokens to keep.",
    trigger="a crop of rows of unequal lengths",
    witnesses=(
        "https://github.com/ekryski/mlx-swift-lm/issues/218",
        "https://github.com/ml-explore/mlx-lm/pull/1486",
        "https://github.com/lablup/mlxcel/issues/994",
    ),
    hint="A row of 2 columns of padding and 3 tokens is cropped to 2 tokens. Which columns may go?",
)
