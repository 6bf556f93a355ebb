"""A refusal that comes when something has changed already."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class RefusedTooLate(StaticCache):
    """The slots are taken first, and then it turns out that they are too few."""

    @override
    def reserve(self, new: int) -> None:
        if self.length + new > self.capacity:
            self.length = self.capacity  # reference: nothing is changed
        super().reserve(new)


bug = Bug(
    RefusedTooLate,
    family="write",
    wrong="Tokens that do not fit are refused, but the free slots count as used from then on.",
    trigger="any call after one that was refused",
    witnesses=(
        "https://github.com/ggml-org/llama.cpp/pull/9525",
        "https://github.com/ggml-org/llama.cpp/pull/12695",
        "https://github.com/hyprstream/hyprstream/issues/1280",
    ),
    hint="A call was refused. Is the cache still what it was before?",
)
