"""A restored cache that no longer knows its padding."""

from collections.abc import Mapping

from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class RestoreLosesThePadding(GrowingCache):
    """It is in the file, and is not read back."""

    @override
    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        self.padding = None  # reference: state.get("padding")


bug = Bug(
    RestoreLosesThePadding,
    family="lifetime",
    wrong="Padding counts as tokens after a cache was saved and restored.",
    trigger="restoring rows of unequal lengths",
    witnesses=(
        "https://github.com/kekzl/imp/pull/1189",
        "https://github.com/openvinotoolkit/openvino/pull/37381",
        "https://github.com/vllm-project/vllm-metal/pull/144",
    ),
    hint="Keys and values are the same after the restore. What else was there?",
)
