"""A new request with the padding of the last one."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache, GrowingCache


class RefilledRowKeepsItsPadding(GrowingCache):
    """Its keys and values are written; how many columns before it are empty is not."""

    @override
    def insert(self, row: int, source: Cache) -> None:
        length = max(self.length, source.length)
        self.reserve(length - self.length)
        padding = self.padded() + (length - self.length)
        self.realign(padding, length)
        self.put(row, source)
        self.padding = padding  # reference: padding[row] = length - source.length before it


bug = Bug(
    RefilledRowKeepsItsPadding,
    family="batching",
    wrong="A row that is given to another request keeps its old padding: too little or too much of it is seen.",
    trigger="a row given to a request of another length",
    witnesses=(
        "https://github.com/tenstorrent/tt-xla/pull/4190",
        "https://github.com/ml-explore/mlx-swift-lm/issues/443",
    ),
    hint="Which numbers describe a row, and which of them does a new occupant bring?",
)
