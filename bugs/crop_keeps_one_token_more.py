"""A crop to the last token to keep, taken for the number to keep."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class CropKeepsOneTokenMore(StaticCache):
    """One token more than asked for stays, where there is one."""

    @override
    def crop(self, length: int) -> None:
        most = min(self.lengths, default=0)
        super().crop(min(length + 1, most))  # reference: length


bug = Bug(
    CropKeepsOneTokenMore,
    family="eviction",
    wrong="A crop leaves one token more than it should.",
    trigger="a crop that drops something",
    witnesses=(
        "https://github.com/waybarrios/vllm-mlx/pull/311",
        "https://github.com/lablup/mlxcel/issues/994",
        "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/595",
    ),
    hint="Crop five tokens to three, and count.",
)
