"""Writing: write the law writing-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test writing-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint writing-law` helps in three steps.

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

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


# your turn: with so many free slots nothing is ever refused
@given(st.lists(TOKENS, min_size=1, max_size=4), st.lists(TOKENS, min_size=1, max_size=3), TOKENS, st.integers(6, 8))
def law(decoder: Decoder, first: list[int], more: list[int], last: int, free: int) -> None:
    """Tokens onto a full cache are taken and right, or refused; and then it goes on as if nobody had asked."""
    text = torch.tensor([first])
    _, cache = decoder.step(decoder.start(1, len(first) + free), text)
    for new in (more, [last]):
        try:
            logits, cache = decoder.step(cache, torch.tensor([new]))
        except DecoderRaised:
            break  # your turn: these were refused, which may be right; but the cache lives on
        text = torch.cat([text, torch.tensor([new])], dim=1)
        assert torch.equal(logits, decoder.full(text)[:, -len(new) :])
