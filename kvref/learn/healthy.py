"""Caches that are right, on which a student's law has to hold: those of the reference, and one like no other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kvref import weights
from kvref.cache import GrowingCache
from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.generate import as_lists
from kvref.gpt2 import GPT
from kvref.lens import Lens
from kvref.protocol import Logits, Tokens
from kvref.targets.reference import GrowingDecoder, StaticDecoder

VOCAB, ROOM = 13, 12
"""Tokens that a student may draw, and how many of them a row may have."""

SHAPES = (
    GPTConfig(block_size=ROOM, vocab_size=VOCAB, n_layer=2, n_head=2, n_embd=8),
    GPTConfig(block_size=ROOM, vocab_size=VOCAB, n_layer=2, n_head=4, n_embd=8, n_kv_head=2),
)
"""Shapes that decoders have; sealed bugs have the second, where heads share keys and values."""

LENS = Lens("tile", torch.float32)
"""Numerics under which equal means the same bits."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The tokens of each row, which are never changed: what is done to them gives others."""

    rows: tuple[tuple[int, ...], ...]


class ReplayingDecoder:
    """A decoder whose cache is the text: each call runs all of it again. Slow, and right in every logit.

    Handles never change, so a law that throws away the one that a call gives goes on from an old one. And they hold no
    keys and values to look at.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.vocab_size, self.block_size = model.config.vocab_size, model.config.block_size

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a past."""
        return self.model(tokens)[0]

    def start(self, batch: int, capacity: int | None) -> Texts:
        """Empty rows."""
        del capacity
        return Texts(((),) * batch)

    def step(self, cache: Texts, tokens: Tokens) -> tuple[Logits, Texts]:
        """Run every row from its first token."""
        rows = [(*row, *new) for row, new in zip(cache.rows, as_lists(tokens), strict=True)]
        return self.replay(rows, tokens.size(1)), Texts(tuple(rows))

    def prefill(self, cache: Texts, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Texts]:
        """Run the first tokens of every row, without its padding."""
        del cache
        rows = [tuple(row[columns:]) for row, columns in zip(as_lists(tokens), padding, strict=True)]
        return self.replay(rows, tokens.size(1)), Texts(tuple(rows))

    def replay(self, rows: Sequence[tuple[int, ...]], new: int) -> Logits:
        """Logits of the last tokens of every row."""
        width = max(map(len, rows))
        padding, passing = [width - len(row) for row in rows], GrowingCache()
        passing.padding = torch.tensor(padding)
        padded = [[0] * columns + list(row) for row, columns in zip(rows, padding, strict=True)]
        return self.model(torch.tensor(padded), passing)[0][:, -new:]

    def length(self, cache: Texts) -> int:
        """Tokens in the longest row."""
        return max(map(len, cache.rows))

    def crop(self, cache: Texts, length: int) -> Texts:
        """Keep the first `length` tokens of every row."""
        return Texts(tuple(row[:length] for row in cache.rows))

    def fork(self, cache: Texts) -> Texts:
        """The same texts: nobody can change them."""
        return Texts(cache.rows)

    def reorder(self, cache: Texts, rows: Sequence[int]) -> Texts:
        """Make the batch of these rows."""
        return Texts(tuple(cache.rows[row] for row in rows))

    def reset(self, cache: Texts) -> Texts:
        """As many empty rows."""
        return self.start(len(cache.rows), None)


def healthy() -> Iterator[tuple[str, Decoder]]:
    """Decoders that are right, and what a student is told of their caches."""
    small, shared = (weights.loud(shape) for shape in SHAPES)
    yield "a cache that grows", Decoder(GrowingDecoder(shared), lens=LENS)
    yield "a cache that is allocated once", Decoder(StaticDecoder(small), lens=LENS)
    yield "a cache that is the text, which every call runs again", Decoder(ReplayingDecoder(shared), lens=LENS)
