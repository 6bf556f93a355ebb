"""Why a cache is allowed: the law why-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(TOKENS, min_size=1, max_size=6), st.integers(0, 6), st.data())
def law(decoder: Decoder, prompt: list[int], after: int, data: st.DataObject) -> None:
    """A prompt, and then one token at a time, give the logits of one pass without a cache."""
    answer = data.draw(st.lists(TOKENS, min_size=after, max_size=after))
    row = torch.tensor([prompt + answer])
    want = decoder.full(row)
    logits, cache = decoder.step(decoder.start(1, None), row[:, : len(prompt)])
    assert torch.equal(logits, want[:, : len(prompt)])
    for place in range(len(prompt), row.size(1)):
        logits, cache = decoder.step(cache, row[:, place : place + 1])
        assert torch.equal(logits, want[:, place : place + 1])
