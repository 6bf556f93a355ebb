"""A write beyond the end that is moved to the last slot."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class FullCacheOverwritesItsLastSlot(StaticCache):
    """What a clamped index does: the newest token takes the place of the one before it, and nobody is told."""

    @override
    def reserve(self, new: int) -> None:
        if new == 1:
            self.length = min(self.length, self.capacity - 1)  # reference: refuses
        super().reserve(new)


bug = Bug(
    FullCacheOverwritesItsLastSlot,
    family="write",
    wrong="A single token that does not fit is written over the last one instead of being refused.",
    trigger="a single token onto a full cache that is smaller than the model's context",
    witnesses=(
        "https://github.com/jax-ml/jax/issues/21392",
        "https://github.com/huggingface/candle/pull/3035",
        "https://github.com/huggingface/nanotron/pull/28",
    ),
    hint="Fill a small cache, and go on. Who should say no, and does it?",
)
