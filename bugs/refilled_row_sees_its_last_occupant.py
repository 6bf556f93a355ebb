"""A new request that is as long as the batch."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache, StaticCache


class RefilledRowSeesItsLastOccupant(StaticCache):
    """What is visible in a row is taken from the batch, so tokens of the last occupant are seen."""

    @override
    def insert(self, row: int, source: Cache) -> None:
        length = max(self.length, source.length)
        self.reserve(length - self.length)
        padding = self.padded() + (length - self.length)
        self.realign(padding, length)
        self.put(row, source)
        padding[row] = 0  # reference: length - source.length
        self.padding = padding


bug = Bug(
    RefilledRowSeesItsLastOccupant,
    family="lifetime",
    wrong="A short request in a row that was used before sees the tokens of the row's last occupant.",
    trigger="a row given to a request shorter than the batch",
    witnesses=(
        "https://github.com/tenstorrent/tt-xla/pull/4190",
        "https://github.com/NVIDIA/TensorRT-LLM/issues/8813",
        "https://github.com/ggml-org/llama.cpp/issues/27148",
    ),
    hint="Give a row to a shorter request. What is in the columns before it?",
)
