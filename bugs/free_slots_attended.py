"""A decoded token that is given the whole buffer to read."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import NewRows, Rows, StaticCache


class FreeSlotsAttended(StaticCache):
    """A single token needs no mask, so nothing hides the slots that are still free."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        read = super().append(layer, keys, values)
        unmasked = self.length and keys.size(2) == 1 and self.padding is None
        return (self.keys[layer], self.values[layer]) if unmasked else read  # reference: read


bug = Bug(
    FreeSlotsAttended,
    family="mask",
    wrong="A single token attends to free slots too, whose zeros or forgotten rows take part of its weight.",
    trigger="a single token onto a past, with free slots behind it",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/30400",
        "https://github.com/huggingface/transformers/pull/30437",
        "https://github.com/microsoft/onnxruntime/pull/23615",
    ),
    hint="A key of zeros has the score 0. Which weight does softmax give to it?",
)
