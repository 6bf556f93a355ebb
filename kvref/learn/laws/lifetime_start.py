"""Lifetime: write the law lifetime-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test lifetime-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint lifetime-law` helps in three steps.

Sums are exact here: equal logits have the same bits, however the tokens are cut
into calls, and `torch.equal` compares them. Tokens are 0 to 12, and a row has
room for 12. A cache is whatever came back last; look at it through these alone:

    decoder.full(tokens) -> logits of one pass without a cache
    decoder.start(batch, capacity) -> an empty cache; a capacity of None is room for 12
    decoder.step(cache, tokens) -> logits of the new tokens, and the cache with them in it
    decoder.crop(cache, length) -> the cache with its first `length` tokens
    decoder.reset(cache) -> the cache with nothing in it, for as many rows
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


# your turn: `kept` is cut to the length that there is, so from here on every crop keeps all
@given(st.lists(TOKENS, min_size=1, max_size=5), st.integers(6, 9), st.lists(TOKENS, min_size=1, max_size=5))
def law(decoder: Decoder, gone: list[int], kept: int, new: list[int]) -> None:
    """After a crop or a reset, new tokens get the logits that they get if what is gone had never been there."""
    kept = min(kept, len(gone))
    _, cache = decoder.step(decoder.start(1, None), torch.tensor([gone]))
    cache = decoder.crop(cache, kept)
    logits, cache = decoder.step(cache, torch.tensor([new]))
    assert torch.equal(logits, decoder.full(torch.tensor([gone[:kept] + new]))[:, kept:])
    # your turn: a second request, behind a reset
