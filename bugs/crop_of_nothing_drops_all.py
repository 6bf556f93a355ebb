"""A crop by a negative index."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class CropOfNothingDropsAll(GrowingCache):
    """As many columns are cut off at the end as there are too many; -0 is 0, and cuts off all."""

    @override
    def crop(self, length: int) -> None:
        self.require_length(length)
        if self.padding is not None or not self.layers:
            super().crop(length)
        else:
            end = length - self.length  # reference: length
            self.layers = {n: (k[:, :, :end].clone(), v[:, :, :end].clone()) for n, (k, v) in self.layers.items()}
            self.length = self.layers[0][0].size(2)


bug = Bug(
    CropOfNothingDropsAll,
    family="eviction",
    wrong="A crop to the length that the cache has already empties it.",
    trigger="a crop that has nothing to drop",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/47433",
        "https://github.com/lablup/mlxcel/issues/994",
    ),
    hint="What is x[:-n] when n is 0?",
)
