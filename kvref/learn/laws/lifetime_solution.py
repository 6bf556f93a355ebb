"""Lifetime: the law lifetime-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(TOKENS, min_size=1, max_size=5), st.integers(0, 6), st.lists(TOKENS, min_size=1, max_size=5))
def law(decoder: Decoder, gone: list[int], kept: int, new: list[int]) -> None:
    """After a crop or a reset, new tokens get the logits that they get if what is gone had never been there."""
    kept = min(kept, len(gone))
    _, cache = decoder.step(decoder.start(1, None), torch.tensor([gone]))
    cache = decoder.crop(cache, kept)
    logits, cache = decoder.step(cache, torch.tensor([new]))
    assert torch.equal(logits, decoder.full(torch.tensor([gone[:kept] + new]))[:, kept:])
    logits, cache = decoder.step(decoder.reset(cache), torch.tensor([new]))
    assert torch.equal(logits, decoder.full(torch.tensor([new])))
