"""Rows that move, and a count of padding that does not follow."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Padding, StaticCache


class CroppedRowsKeepTheirPadding(StaticCache):
    """Keys and values are rolled back, and what is kept beside them is forgotten."""

    @override
    def realign(self, padding: Padding, length: int) -> None:
        before = self.padding
        super().realign(padding, length)
        self.padding = before  # reference: padding


bug = Bug(
    CroppedRowsKeepTheirPadding,
    family="eviction",
    wrong="After a crop of rows the padding of each row is still what it was before.",
    trigger="rows cropped to lengths that change their padding",
    witnesses=(
        "https://github.com/ekryski/mlx-swift-lm/issues/218",
        "https://github.com/ml-explore/mlx-lm/pull/1486",
        "https://github.com/vllm-project/vllm/pull/45614",
    ),
    hint="What belongs to a row apart from its keys and values, and does it move with them?",
)
