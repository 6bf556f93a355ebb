"""A recorded write that goes to the place of its recording."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import NewRows, Rows, StaticCache


class CapturedSlotReplayed(StaticCache):
    """For each number of new tokens the first call fixes the slot, as a captured graph does."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        new = keys.size(2)
        first = vars(self).setdefault("captured", {}).setdefault(new, self.length)  # reference: self.length
        self.keys[layer, :, :, first : first + new] = keys
        self.values[layer, :, :, first : first + new] = values
        end = self.length + new
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


bug = Bug(
    CapturedSlotReplayed,
    family="aliasing",
    wrong="Every call writes where the first call with as many tokens wrote.",
    trigger="a second call with as many tokens as one before it",
    witnesses=(
        "https://github.com/flashinfer-ai/flashinfer/pull/4625",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/16290",
        "https://github.com/tinygrad/tinygrad/pull/14278",
    ),
    hint="The first decoding step is right, and so is the first chunk of each size. What do the others have in common?",
)
