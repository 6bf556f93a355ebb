"""Rows that are not moved when a longer one joins them."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache, GrowingCache


class RefillStretchesItsNeighbours(GrowingCache):
    """The batch gets wider, and the others are said to fill it."""

    @override
    def insert(self, row: int, source: Cache) -> None:
        length = max(self.length, source.length)
        self.reserve(length - self.length)
        padding = self.padded().clone()  # reference: padded() + (length - self.length)
        self.realign(padding, length)
        self.put(row, source)
        padding[row] = length - source.length
        self.padding = padding


bug = Bug(
    RefillStretchesItsNeighbours,
    family="batching",
    wrong="When a longer request joins, the other rows stay at the left, and grow at the right by what is no token.",
    trigger="a row given to a request longer than the batch",
    witnesses=(
        "https://github.com/vllm-project/vllm-metal/pull/144",
        "https://github.com/ml-explore/mlx-swift-lm/issues/443",
    ),
    hint="A request of 5 tokens joins a row of 3. How long is that row afterwards?",
)
