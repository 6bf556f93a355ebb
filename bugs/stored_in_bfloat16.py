"""A cache that is narrower than the model."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class StoredInBfloat16(GrowingCache):
    """The pass that makes keys and values uses them as they are; those that follow find them rounded."""

    @override
    def commit(self, new: int) -> None:
        super().commit(new)
        for layer, (keys, values) in self.layers.items():
            rounded = keys.bfloat16().to(keys.dtype), values.bfloat16().to(values.dtype)
            self.layers[layer] = rounded  # reference: keys, values


bug = Bug(
    StoredInBfloat16,
    family="numerics",
    wrong="Keys and values are kept in bfloat16, whatever dtype the model runs in.",
    trigger="any token onto a past, in a model of another dtype",
    witnesses=(
        "https://github.com/apple/axlearn/pull/1049",
        "https://github.com/oarriaga/paz/pull/415",
    ),
    hint="How many bits of a key does the next step find?",
)
