"""A file that holds whole allocation steps of the buffer."""

from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class SavedUpToTheAllocationStep(StaticCache):
    """What is saved is rounded up to a multiple of four slots, and all of it counts as tokens when it is read."""

    @override
    def state(self) -> dict[str, Tensor]:
        step = min(-(-self.length // 4) * 4, self.capacity)
        cut = {"keys": self.keys[:, :, :, :step], "values": self.values[:, :, :, :step]}  # reference: up to length
        return {**super().state(), **cut}


bug = Bug(
    SavedUpToTheAllocationStep,
    family="read",
    wrong="Free slots are saved with the tokens, and are tokens when the cache is restored.",
    trigger="saving a cache whose length is no multiple of four",
    witnesses=(
        "https://github.com/ml-explore/mlx-examples/issues/977",
        "https://github.com/ml-explore/mlx-lm/pull/1673",
        "https://github.com/microsoft/onnxruntime/pull/23615",
    ),
    hint="How long is the cache before it is saved, and how long after it is restored?",
)
