"""A restored cache with room for as much as the model takes."""

from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache
from kvref.targets.reference import StaticDecoder


class RestoreForgetsTheCapacity(StaticDecoder):
    """The size that was asked for is in the file, and is not read back."""

    @override
    def room_for(self, state: dict[str, Tensor]) -> StaticCache:
        return self.start(state["keys"].size(1), None)  # reference: int(state["capacity"])


bug = Bug(
    RestoreForgetsTheCapacity,
    family="lifetime",
    wrong="A restored cache has another capacity than the one that was saved.",
    trigger="restoring a cache that is smaller than the model's context",
    witnesses=(
        "https://github.com/ml-explore/mlx-examples/issues/977",
        "https://github.com/ml-explore/mlx-swift-lm/issues/443",
    ),
    hint="When is the restored cache full?",
)
