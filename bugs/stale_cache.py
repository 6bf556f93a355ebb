"""An update that is dropped: the cache stays what the first call made it."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache


class StaleCache(GrowingCache):
    """Every call works on a copy of the first past, and what it appends is lost."""

    @override
    def commit(self, new: int) -> None:
        if self.length == 0:  # reference: always
            super().commit(new)


bug = Bug(
    StaleCache,
    family="write",
    wrong="Only the first call is kept; what later calls append is dropped when they return.",
    trigger="any call after the first one onto a past",
    witnesses=(
        "https://github.com/ggml-org/llama.cpp/pull/11445",
        "https://github.com/huggingface/transformers/pull/46572",
    ),
    hint="Which calls change what the next call finds?",
)
