"""Sharing: the law sharing-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(TOKENS, min_size=2, max_size=5), st.lists(TOKENS, min_size=2, max_size=2), st.integers(0, 2))
def law(decoder: Decoder, prompt: list[int], new: list[int], dropped: int) -> None:
    """Two caches that go on in turns, a fork and its origin or two of their own, each give the logits of their text."""
    _, one = decoder.step(decoder.start(1, None), torch.tensor([prompt]))
    kept = max(1, len(prompt) - dropped)
    one = decoder.crop(one, kept)
    _, other = decoder.step(decoder.start(1, None), torch.tensor([new]))
    caches = [one, decoder.fork(one), other]
    texts = [prompt[:kept], prompt[:kept], list(new)]
    for token in new:
        for which, text in enumerate(texts):
            text.append((token + which) % 13)
            logits, caches[which] = decoder.step(caches[which], torch.tensor([text[-1:]]))
            assert torch.equal(logits, decoder.full(torch.tensor([text]))[:, -1:])
