"""Where the tokens of a schedule come from: any numbers, drawn text, a user's file, or one given prompt."""

from dataclasses import dataclass
from functools import lru_cache

import tiktoken
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from kvref.errors import PromptError
from kvref.prompts import encode
from kvref.schedule import Row


@dataclass(frozen=True)
class AnyTokens:
    """Any tokens of the vocabulary, in any order."""

    vocab_size: int

    def chunk(self, draw: DrawFn, past: int, new: int, rows: int) -> tuple[Row, ...]:
        """`new` tokens for each row, whatever the past. One draw of bytes makes them all: it is quick, and shrinks."""
        del past
        width = 1 + (self.vocab_size - 1).bit_length() // 8
        drawn = draw(byte_strings(rows * new * width))
        numbers = (int.from_bytes(drawn[i : i + width]) for i in range(0, len(drawn), width))
        tokens = [number % self.vocab_size for number in numbers]
        return tuple(tuple(tokens[i : i + new]) for i in range(0, len(tokens), new))


@dataclass(frozen=True)
class DrawnText:
    """Tokens of drawn text: any characters that Unicode has, none at all, or more than fit."""

    encoding: tiktoken.Encoding

    def chunk(self, draw: DrawFn, past: int, new: int, rows: int) -> tuple[Row, ...]:
        """The first `new` tokens of a drawn text for each row, repeated if it is shorter."""
        del past
        return tuple(self.cut(draw(texts(2 * new)), new) for _ in range(rows))

    def cut(self, text: str, new: int) -> Row:
        """Exactly `new` tokens of a text."""
        tokens = encode(text, self.encoding)
        return tuple((tokens * (new // len(tokens) + 1))[:new])


@dataclass(frozen=True)
class FromText:
    """Windows of a user's text, read round its end if it is short."""

    tokens: Row

    def chunk(self, draw: DrawFn, past: int, new: int, rows: int) -> tuple[Row, ...]:
        """`new` tokens from any place of the text for each row."""
        del past
        starts = [draw(st.integers(0, len(self.tokens) - 1)) for _ in range(rows)]
        return tuple(tuple(self.tokens[(start + i) % len(self.tokens)] for i in range(new)) for start in starts)


@dataclass(frozen=True)
class FromPrompt:
    """One given prompt: every row begins with it, and goes on with any tokens."""

    tokens: Row
    rest: AnyTokens

    def chunk(self, draw: DrawFn, past: int, new: int, rows: int) -> tuple[Row, ...]:
        """The tokens that the prompt has at these positions."""
        given = self.tokens[past : past + new]
        if len(given) == new:
            return (given,) * rows
        return tuple(given + more for more in self.rest.chunk(draw, past, new - len(given), rows))


def require_prompt(tokens: Row, block_size: int) -> None:
    """Refuse a prompt that is longer than the model's context."""
    if len(tokens) > block_size:
        raise PromptError(f"the prompt has {len(tokens)} tokens and the context {block_size}: shorten the prompt")


@lru_cache(maxsize=256)
def byte_strings(size: int) -> SearchStrategy[bytes]:
    """Byte strings of one size."""
    return st.binary(min_size=size, max_size=size)


@lru_cache(maxsize=64)
def texts(max_size: int) -> SearchStrategy[str]:
    """Texts of any characters up to some size."""
    return st.text(max_size=max_size)
