"""A new request with the values of the last one."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache, StaticCache


class RefilledRowKeepsOldValues(StaticCache):
    """Only the keys of the newcomer are written into the row."""

    @override
    def put(self, row: int, source: Cache) -> None:
        for layer in range(self.keys.size(0)):
            keys, _ = source.keys_values(layer)  # reference: and the values
            self.keys[layer, row, :, self.length - source.length : self.length] = keys[0]


bug = Bug(
    RefilledRowKeepsOldValues,
    family="lifetime",
    wrong="A row that is given to another request takes its keys, and keeps the values of the last occupant.",
    trigger="a row given to another request, and a token after it",
    witnesses=(
        "https://github.com/tenstorrent/tt-xla/pull/4190",
        "https://github.com/NVIDIA/TensorRT-LLM/issues/8813",
        "https://github.com/tenstorrent/tt-metal/issues/41215",
    ),
    hint="The new request attends to the right places. What does it find there?",
)
