"""A length that is the width of the cache."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache
from kvref.targets.reference import GrowingDecoder


class PaddingCountedAsTokens(GrowingDecoder):
    """Columns that even the longest row does not use are counted."""

    @override
    def length(self, cache: Cache) -> int:
        return cache.length  # reference: max(cache.lengths, default=0)


bug = Bug(
    PaddingCountedAsTokens,
    family="read",
    wrong="The length that the decoder reports is the number of columns, padding included.",
    trigger="a longest row that is padded, as after a reorder without the longest",
    witnesses=(
        "https://github.com/microsoft/onnxruntime/pull/23615",
        "https://github.com/ml-explore/mlx-examples/issues/977",
    ),
    hint="Take the longest row out of a batch. How long is the batch then?",
)
