"""A crop to no tokens that is taken for none."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class CropToNothingKeepsAll(GrowingCache):
    """Zero is false, so the case that drops most drops nothing."""

    @override
    def crop(self, length: int) -> None:
        if length:  # reference: also where length is 0
            super().crop(length)


bug = Bug(
    CropToNothingKeepsAll,
    family="eviction",
    wrong="A crop to zero tokens does nothing.",
    trigger="a crop to zero tokens",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/47433",
        "https://github.com/huggingface/transformers/pull/47977",
        "https://github.com/lablup/mlxcel/issues/994",
    ),
    hint="Try every length that a crop can be asked for, the ends too.",
)
