"""A new request whose tokens are at the wrong end of its row."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache, StaticCache


class RefilledRowWrittenAtTheLeft(StaticCache):
    """Rows end in one column; this one starts in the first, and its padding is said to be there."""

    @override
    def put(self, row: int, source: Cache) -> None:
        for layer in range(self.keys.size(0)):
            for mine, new in zip((self.keys, self.values), source.keys_values(layer), strict=True):
                mine[layer, row, :, : source.length] = new[0]  # reference: the last source.length columns


bug = Bug(
    RefilledRowWrittenAtTheLeft,
    family="write",
    wrong="The tokens of a request that takes over a row are written at the left, where its padding should be.",
    trigger="a row given to a request shorter than the batch, and a token after it",
    witnesses=(
        "https://github.com/lablup/mlxcel/pull/76",
        "https://github.com/mosaicml/examples/pull/257",
        "https://github.com/tenstorrent/tt-xla/pull/2953",
    ),
    hint="In which column do the rows of a batch end, and in which does a shorter newcomer?",
)
