"""Positions: write the law positions-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test positions-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint positions-law` helps in three steps.

Sums are exact here: equal logits have the same bits, however the tokens are cut
into calls, and `torch.equal` compares them. Tokens are 0 to 12, and a row has
room for 12. A cache is whatever came back last; look at it through these alone:

    decoder.full(tokens) -> logits of one pass without a cache
    decoder.start(batch, capacity) -> an empty cache; a capacity of None is room for 12
    decoder.step(cache, tokens) -> logits of the new tokens, and the cache with them in it
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


# your turn: a text comes in pieces of any size, and only pieces of one token are drawn here
@given(st.lists(st.lists(TOKENS, min_size=1, max_size=1), min_size=1, max_size=4))
def law(decoder: Decoder, pieces: list[list[int]]) -> None:
    """However a text is cut into pieces, each piece gets the logits that it has in the whole text."""
    text = [token for piece in pieces for token in piece]
    want = decoder.full(torch.tensor([text]))
    cache, past = decoder.start(1, None), 0
    for piece in pieces:
        logits, cache = decoder.step(cache, torch.tensor([piece]))
        assert torch.equal(logits, want[:, past : past + len(piece)])
        past += len(piece)
