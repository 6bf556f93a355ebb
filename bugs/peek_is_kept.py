"""A read-only pass that appends."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache
from kvref.protocol import Logits, Tokens
from kvref.targets.reference import GrowingDecoder


class PeekIsKept(GrowingDecoder):
    """Logits that somebody only wants to look at change the cache for everybody."""

    @override
    def peek(self, cache: Cache, tokens: Tokens) -> Logits:
        return self.model(tokens, cache)[0]  # reference: self.model.look(tokens, cache)


bug = Bug(
    PeekIsKept,
    family="write",
    wrong="A pass whose tokens are not to be kept appends them to the cache.",
    trigger="a call that only looks",
    witnesses=(
        "https://github.com/huggingface/transformers/pull/46572",
        "https://github.com/huggingface/transformers/issues/28056",
        "https://github.com/huggingface/transformers/pull/43203",
    ),
    hint="Ask twice for the logits of the same token. Should the answers differ?",
)
