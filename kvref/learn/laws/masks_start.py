"""Masks: write the law masks-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test masks-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint masks-law` helps in three steps.

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


@given(st.lists(TOKENS, min_size=1, max_size=5), st.lists(TOKENS, min_size=1, max_size=5))
def law(decoder: Decoder, past: list[int], new: list[int]) -> None:
    """Tokens that come at once onto a past get the logits that they get one by one onto the same past."""
    del past  # your turn: it is drawn, and nobody runs it
    chunk = torch.tensor([new])
    together, _ = decoder.step(decoder.start(1, None), chunk)
    cache, single = decoder.start(1, None), list[torch.Tensor]()
    for place in range(len(new)):
        logits, cache = decoder.step(cache, chunk[:, place : place + 1])
        single.append(logits)
    # your turn: they are as many; what else has to be true of them? torch.cat(single, dim=1) joins them
    assert together.size(1) == len(single)
