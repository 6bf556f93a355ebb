"""A crop that gives up in silence."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class PaddedCacheIsNotCropped(StaticCache):
    """Rows of unequal lengths are more work to cut; they are left as they are."""

    @override
    def crop(self, length: int) -> None:
        if self.padding is None:  # reference: in every case
            super().crop(length)


bug = Bug(
    PaddedCacheIsNotCropped,
    family="eviction",
    wrong="A cache with padding is not cropped at all, and nobody is told.",
    trigger="a crop of rows that came with padding, or were cropped one by one",
    witnesses=(
        "https://github.com/ml-explore/mlx-lm/pull/1109",
        "https://github.com/paiml/aprender/pull/2014",
        "https://github.com/ml-explore/mlx-swift-lm/issues/424",
    ),
    hint="Does a crop always crop? Try it with each kind of content.",
)
