"""Why a cache is allowed: write the law why-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test why-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint why-law` helps in three steps.

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


# your turn: every row that is drawn here is its own prompt, so nothing is ever cached and found again
@given(st.lists(TOKENS, min_size=1, max_size=12), st.just(0))
def law(decoder: Decoder, tokens: list[int], after: int) -> None:
    """A prompt, and then one token at a time, give the logits of one pass without a cache."""
    row = torch.tensor([tokens])
    want = decoder.full(row)
    prompt = len(tokens) - after
    logits, cache = decoder.step(decoder.start(1, None), row[:, :prompt])
    assert torch.equal(logits, want[:, :prompt])
    for place in range(prompt, len(tokens)):
        logits, cache = decoder.step(cache, row[:, place : place + 1])
        # your turn: what has to be true of these logits?
