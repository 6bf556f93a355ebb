"""A copy without what stands beside the tensors."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ForkLosesThePadding(StaticCache):
    """Buffers and length are copied; which columns are padding is not."""

    @override
    def fork(self) -> StaticCache:
        copy = super().fork()
        copy.padding = None  # reference: padding
        return copy


bug = Bug(
    ForkLosesThePadding,
    family="lifetime",
    wrong="In a fork the padding of short rows counts as tokens.",
    trigger="a fork of rows of unequal lengths",
    witnesses=(
        "https://github.com/vllm-project/vllm-metal/pull/144",
        "https://github.com/ml-explore/mlx-swift-lm/issues/443",
        "https://github.com/kekzl/imp/pull/1189",
    ),
    hint="List what a copy has to have, and look for each in the fork.",
)
