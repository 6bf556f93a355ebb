"""Caches that are right, on which a student's law has to hold: those of the reference, and one like no other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

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

SHAPE = GPTConfig(block_size=ROOM, vocab_size=VOCAB, n_layer=2, n_head=4, n_embd=8, n_kv_head=2)
"""The shape of all decoders, those with sealed bugs too, or a law could tell these from right ones by their logits."""

LENS = Lens("tile", torch.float32)
"""Numerics under which equal means the same bits."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The tokens of each row, which are never changed: what is done to them gives others."""

    rows: tuple[tuple[int, ...], ...]


class Passes:
    """A model's passes without a past, each run once: for every cache a law compares with the same ones again."""

    def __init__(self, model: GPT) -> None:
        self.model, self.known = model, dict[tuple[object, ...], Logits]()

    def __call__(self, tokens: Tokens) -> Logits:
        """Logits of one pass."""
        key = tokens.dtype, tokens.shape, tokens.numpy().tobytes()
        if key not in self.known:
            self.known[key] = self.model(tokens)[0]
        return self.known[key].clone()

    def of(self, implementation: GrowingDecoder) -> Decoder:
        """A decoder that runs no such pass twice, if it has this model and passes it as the reference does."""
        if implementation.model is self.model and type(implementation).full is GrowingDecoder.full:
            vars(implementation)["full"] = self
        return Decoder(implementation, lens=LENS)


class ReplayingDecoder:
    """A decoder whose cache is the text: each call runs all of it again. Slow, and right in every logit.

    Handles never change, so a law that throws away the one that a call gives goes on from an old one. And they hold no
    keys and values to look at.
    """

    def __init__(self, passes: Passes) -> None:
        self.model, self.full = passes.model, passes
        self.vocab_size, self.block_size = self.model.config.vocab_size, self.model.config.block_size

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
        if all(len(row) == width for row in rows):
            return self.full(torch.tensor(rows))[:, width - new :]
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


def healthy(passes: Passes) -> Iterator[tuple[str, Decoder]]:
    """Decoders that are right, and what a student is told of their caches."""
    yield "a cache that grows", passes.of(GrowingDecoder(passes.model))
    yield "a cache that is allocated once", passes.of(StaticDecoder(passes.model))
    yield "a cache that is the text, which every call runs again", Decoder(ReplayingDecoder(passes), lens=LENS)
