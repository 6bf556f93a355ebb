"""Masks: the law masks-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(TOKENS, min_size=1, max_size=5), st.lists(TOKENS, min_size=1, max_size=5))
def law(decoder: Decoder, past: list[int], new: list[int]) -> None:
    """Tokens that come at once onto a past get the logits that they get one by one onto the same past."""
    chunk = torch.tensor([new])
    _, cache = decoder.step(decoder.start(1, None), torch.tensor([past]))
    together, _ = decoder.step(cache, chunk)
    _, cache = decoder.step(decoder.start(1, None), torch.tensor([past]))
    single = list[torch.Tensor]()
    for place in range(len(new)):
        logits, cache = decoder.step(cache, chunk[:, place : place + 1])
        single.append(logits)
    assert torch.equal(together, torch.cat(single, dim=1))
