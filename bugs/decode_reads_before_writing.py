"""A decoding step that reads its own slot before it has written it."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import NewRows, Rows, StaticCache


class DecodeReadsBeforeWriting(StaticCache):
    """The read and the write are there, in the wrong order."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        read = self.keys[layer].clone(), self.values[layer].clone()
        written = super().append(layer, keys, values)
        end = self.length + keys.size(2)
        return (read[0][:, :, :end], read[1][:, :, :end]) if keys.size(2) == 1 else written  # reference: written


bug = Bug(
    DecodeReadsBeforeWriting,
    family="read",
    wrong="A single token attends to what its slot held before, and not to its own key and value.",
    trigger="a single token",
    witnesses=(
        "https://github.com/vllm-project/vllm/issues/45704",
        "https://github.com/vllm-project/vllm/pull/50696",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/15546",
    ),
    hint="Does a token that is decoded see itself?",
)
