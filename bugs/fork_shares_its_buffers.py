"""A copy of the object, and not of what it holds."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ForkSharesItsBuffers(StaticCache):
    """Both caches append in place, into the same slots."""

    @override
    def fork(self) -> StaticCache:
        copy = super().fork()
        copy.keys, copy.values = self.keys, self.values  # reference: clones of both
        return copy


bug = Bug(
    ForkSharesItsBuffers,
    family="aliasing",
    wrong="A fork and its origin write into the same buffers, each over what the other has written.",
    trigger="a fork and its origin that both go on",
    witnesses=(
        "https://github.com/neuralmagic/deepsparse/pull/1224",
        "https://github.com/xLLM-AI/xllm/pull/1984",
        "https://github.com/ggml-org/llama.cpp/issues/3802",
    ),
    hint="Let both go on with different tokens, then go back to the first.",
)
