"""Positions: the law positions-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(st.lists(TOKENS, min_size=1, max_size=3), min_size=1, max_size=4))
def law(decoder: Decoder, pieces: list[list[int]]) -> None:
    """However a text is cut into pieces, each piece gets the logits that it has in the whole text."""
    text = [token for piece in pieces for token in piece]
    want = decoder.full(torch.tensor([text]))
    cache, past = decoder.start(1, None), 0
    for piece in pieces:
        logits, cache = decoder.step(cache, torch.tensor([piece]))
        assert torch.equal(logits, want[:, past : past + len(piece)])
        past += len(piece)
