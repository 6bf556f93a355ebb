"""A length that is worked out from the slots that are not zero."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ForkCountsUsedSlots(StaticCache):
    """Right until a crop or a reset, which leave what they drop where it is."""

    @override
    def fork(self) -> StaticCache:
        copy = super().fork()
        copy.length = int(self.keys[0, 0, 0].any(dim=-1).sum())  # reference: length
        return copy


bug = Bug(
    ForkCountsUsedSlots,
    family="read",
    wrong="A fork takes every slot that was ever written for a token, those of cropped tokens too.",
    trigger="a fork after a crop or a reset",
    witnesses=(
        "https://github.com/huggingface/transformers/issues/30377",
        "https://github.com/ml-explore/mlx-lm/pull/1673",
    ),
    hint="What is in the slots behind the end after a crop, and does the fork know?",
)
