"""A length that goes up by one with every call after the first."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ChunkCountedAsOneToken(StaticCache):
    """Right for a prompt and single tokens; a chunk onto a past moves the end by one token."""

    @override
    def commit(self, new: int) -> None:
        counted = 1 if self.length else new  # reference: new
        super().commit(counted)


bug = Bug(
    ChunkCountedAsOneToken,
    family="position",
    wrong="After the prompt every call counts as one token, so what follows a chunk overwrites most of it.",
    trigger="any call after several tokens onto a past",
    witnesses=(
        "https://github.com/huggingface/transformers/pull/30068",
        "https://github.com/huggingface/transformers/issues/30042",
        "https://github.com/skyzh/tiny-llm/pull/46",
    ),
    hint="How many tokens does the cache count after a prompt of 3 and a chunk of 2?",
)
