"""Sharing: write the law sharing-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test sharing-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint sharing-law` helps in three steps.

Sums are exact here: equal logits have the same bits, however the tokens are cut
into calls, and `torch.equal` compares them. Tokens are 0 to 12, and a row has
room for 12. A cache is whatever came back last; look at it through these alone:

    decoder.full(tokens) -> logits of one pass without a cache
    decoder.start(batch, capacity) -> an empty cache; a capacity of None is room for 12
    decoder.step(cache, tokens) -> logits of the new tokens, and the cache with them in it
    decoder.fork(cache) -> a copy that goes its own way
    decoder.crop(cache, length) -> the cache with its first `length` tokens
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(TOKENS, min_size=2, max_size=5), st.lists(TOKENS, min_size=2, max_size=3), st.booleans())
def law(decoder: Decoder, prompt: list[int], new: list[int], forks: bool) -> None:
    """Two caches that go on in turns, a fork and its origin or two of their own, each give the logits of their text."""
    _, one = decoder.step(decoder.start(1, None), torch.tensor([prompt]))
    # your turn: `two` is there and does nothing; both have to go on, each with other tokens, and in turns
    two = decoder.fork(one) if forks else decoder.start(1, None)
    assert two is not None
    text = list(prompt)
    for token in new:
        text.append(token)
        logits, one = decoder.step(one, torch.tensor([[token]]))
        assert torch.equal(logits, decoder.full(torch.tensor([text]))[:, -1:])
