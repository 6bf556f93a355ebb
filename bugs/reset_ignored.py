"""A second request on top of the first."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache
from kvref.targets.reference import GrowingDecoder


class ResetIgnored(GrowingDecoder):
    """Nobody empties the cache between two requests."""

    @override
    def reset(self, cache: Cache) -> Cache:
        return cache  # reference: cache.reset() first


bug = Bug(
    ResetIgnored,
    family="lifetime",
    wrong="A reset leaves everything in the cache, so the next request goes on with the last one.",
    trigger="a second request",
    witnesses=(
        "https://github.com/Lightning-AI/litgpt/pull/1596",
        "https://github.com/deepspeedai/DeepSpeed/pull/2669",
        "https://github.com/EleutherAI/gpt-neox/pull/532",
    ),
    hint="Ask the same question twice. Is the answer the same?",
)
