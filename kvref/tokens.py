"""Where the tokens of a schedule come from: any numbers, drawn text, a user's file, or one given prompt."""

from dataclasses import dataclass

import tiktoken
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kvref.errors import PromptError
from kvref.operations import Row
from kvref.prompts import encode
from kvref.strategies import MAX_CHUNK

TEXT = 1 + 3 * 2 * MAX_CHUNK
"""Bytes of a drawn text: its length, and its characters."""

ROW = 17
"""How far apart in a text the windows of two rows are that the same choice makes."""


@dataclass(frozen=True)
class AnyTokens:
    """Any tokens of the vocabulary: zeros, or without order and unlike in every row and position."""

    vocab_size: int

    def tokens(self, choice: tuple[int, int], row: int, past: int, new: int) -> Row:
        """Zeros for a choice of zeros, else numbers that depend on the choice, the row and the position."""
        if choice == (0, 0):
            return (0,) * new
        return tuple(scrambled(choice, row, place) % self.vocab_size for place in range(past, past + new))


@dataclass(frozen=True)
class FromText:
    """Windows of a text, read round its end if it is short."""

    text: Row

    def tokens(self, choice: tuple[int, int], row: int, past: int, new: int) -> Row:
        """A window from any place."""
        del past
        start = choice[0] * 65536 + choice[1] + ROW * row
        return tuple(self.text[(start + i) % len(self.text)] for i in range(new))


@dataclass(frozen=True)
class FromPrompt:
    """One given prompt: every row begins with it, and goes on with any tokens."""

    prompt: Row
    rest: AnyTokens

    def tokens(self, choice: tuple[int, int], row: int, past: int, new: int) -> Row:
        """The tokens that the prompt has at these positions, and others behind its end."""
        given = self.prompt[past : past + new]
        return given + self.rest.tokens(choice, row, past + len(given), new - len(given))


def scrambled(choice: tuple[int, int], row: int, place: int) -> int:
    """A number that looks random (the finaliser of Steele et al., SplitMix, OOPSLA 2014)."""
    mixed = (choice[0] << 16 | choice[1]) + 0x9E3779B97F4A7C15 * (4096 * row + place + 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> shift) * factor & 0xFFFFFFFFFFFFFFFF
    return mixed ^ mixed >> 31


def drawn_text(encoding: tiktoken.Encoding) -> SearchStrategy[FromText]:
    """Texts of any characters that Unicode has, empty, short or longer than what is asked of them."""
    drawn = st.binary(min_size=TEXT, max_size=TEXT)
    return drawn.map(lambda drawn: FromText(tuple(encode(text_of(drawn), encoding))))


def text_of(drawn: bytes) -> str:
    """A text made of bytes, three for each of its characters, and as long as the first one says; of zeros, none."""
    length, numbers = drawn[0] % (len(drawn) // 3 + 1), drawn[1:]
    points = [int.from_bytes(numbers[at : at + 3]) for at in range(0, 3 * length, 3)]
    # By the lowest bits: ASCII, what UTF-8 has two bytes for, three, or any; surrogates are no characters.
    wide = [point // 4 % (0x80, 0x800, 0x10000, 0x110000)[point % 4] for point in points]
    return "".join(chr(point) if not 0xD800 <= point < 0xE000 else "\ufffd" for point in wide)


def require_prompt(tokens: Row, block_size: int) -> None:
    """Refuse a prompt that is longer than the model's context."""
    if len(tokens) > block_size:
        raise PromptError(f"the prompt has {len(tokens)} tokens and the context {block_size}: shorten the prompt")
