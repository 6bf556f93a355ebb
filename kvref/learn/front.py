"""What a student's law is given for a decoder: what it answers, and nothing of what it is.

A law that told bugs from right caches by their classes, or by what is inside a cache, would say nothing about caches.
So only calls go through, caches are handles without parts, and what is raised has lost its way back.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder
from kvref.protocol import Conversation, Sampler, Tokens


class Cached:
    """A cache, of which a law knows nothing but which one it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "cache"


class Handles:
    """Which cache each handle stands for. A cache that comes back keeps its handle, and a new one gets another."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget the caches of the last example."""
        self.pairs = list[tuple[Cached, Any]]()

    def handle(self, cache: Any) -> Cached:
        """The handle of a cache."""
        known = next((handle for handle, each in self.pairs if each is cache), None)
        if known is None:
            self.pairs.append((known := Cached(), cache))
        return known

    def cache(self, handle: object) -> Any:
        """The cache of a handle. Raises `TypeError` for what is none."""
        for known, cache in self.pairs:
            if known is handle:
                return cache
        raise TypeError(f"a cache is what start or another call gave, not {type(handle).__name__}")


class Front:
    """A decoder as far as the course speaks of it; each argument and answer is as `Decoder` has it."""

    __slots__ = (
        "block_size",
        "crop",
        "fork",
        "full",
        "length",
        "prefill",
        "reorder",
        "reset",
        "session",
        "start",
        "step",
        "vocab_size",
    )

    def __init__(self, decoder: Decoder, handles: Handles) -> None:
        give, take = handles.handle, handles.cache

        def with_cache(answer: tuple[Any, Any]) -> tuple[Any, Cached]:
            return answer[0], give(answer[1])

        def full(tokens: Tokens) -> Any:
            return asked(decoder.full, tokens)

        def length(cache: Cached) -> int:
            return asked(decoder.length, take(cache))

        def start(batch: int, capacity: int | None = None) -> Cached:
            return give(asked(decoder.start, batch, capacity))

        def step(cache: Cached, tokens: Tokens) -> tuple[Any, Cached]:
            return with_cache(asked(decoder.step, take(cache), tokens))

        def prefill(cache: Cached, tokens: Tokens, padding: Sequence[int]) -> tuple[Any, Cached]:
            return with_cache(asked(decoder.prefill, take(cache), tokens, padding))

        def crop(cache: Cached, length: int) -> Cached:
            return give(asked(decoder.crop, take(cache), length))

        def fork(cache: Cached) -> Cached:
            return give(asked(decoder.fork, take(cache)))

        def reorder(cache: Cached, rows: Sequence[int]) -> Cached:
            return give(asked(decoder.reorder, take(cache), rows))

        def reset(cache: Cached) -> Cached:
            return give(asked(decoder.reset, take(cache)))

        def session() -> Talk:
            return Talk(asked(decoder.session))

        self.vocab_size, self.block_size = decoder.vocab_size, decoder.block_size
        self.full, self.start, self.step, self.prefill, self.length = full, start, step, prefill, length
        self.crop, self.fork, self.reorder, self.reset = crop, fork, reorder, reset
        self.session = session

    def __repr__(self) -> str:
        return "decoder"


class Talk:
    """A conversation, in the same way."""

    __slots__ = ("feed", "reply")

    def __init__(self, conversation: Conversation) -> None:
        def feed(tokens: Tokens) -> Any:
            return asked(conversation.feed, tokens)

        def reply(max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
            return asked(conversation.reply, max_new_tokens, sampler)

        self.feed, self.reply = feed, reply


def asked(call: Callable[..., Any], *args: Any) -> Any:
    """What a decoder answers; what it raises has nothing left in it of where that was."""
    try:
        return call(*args)
    except DecoderRaised as error:
        raised = error
    for error in (raised, raised.error):
        error.__traceback__ = error.__context__ = error.__cause__ = None
    raise raised
