"""Rows whose keys move without their values."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding, StaticCache


class CroppedRowsMoveKeysOnly(StaticCache):
    """The loop over both is there elsewhere; here one half of it is missing."""

    @override
    def realign(self, padding: Padding, length: int) -> None:
        values = self.values.clone()
        super().realign(padding, length)
        self.values = values  # reference: moved like the keys


bug = Bug(
    CroppedRowsMoveKeysOnly,
    family="eviction",
    wrong="When rows move to end in one column, their keys move and their values stay.",
    trigger="rows cropped to unequal lengths",
    witnesses=(
        "https://github.com/ml-explore/mlx-lm/pull/1427",
        "https://github.com/ekryski/mlx-swift-lm/issues/218",
    ),
    hint="Compare both halves of a row with what it held before.",
)
