"""A crop that is a view of what was there before."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class CropKeepsTheBuffer(GrowingCache):
    """The slice is right, and holds all of the tensor that it is a slice of."""

    @override
    def crop(self, length: int) -> None:
        if self.padding is not None:
            super().crop(length)
        self.require_length(length)
        self.length = length
        for layer, (keys, values) in self.layers.items():
            self.layers[layer] = keys[:, :, :length], values[:, :, :length]  # reference: clones of these


bug = Bug(
    CropKeepsTheBuffer,
    family="eviction",
    wrong="What was cropped away stays in memory, behind a view of what was kept.",
    trigger="any crop; only the memory shows it",
    witnesses=(
        "https://github.com/ollama/ollama/pull/15065",
        "https://github.com/jjang-ai/vmlx/issues/176",
        "https://github.com/ml-explore/mlx-lm/pull/1077",
    ),
    hint="How much memory does x[:1] keep alive?",
)
