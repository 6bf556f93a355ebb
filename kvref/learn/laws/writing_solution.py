"""Writing: the law writing-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(TOKENS, min_size=1, max_size=4), st.lists(TOKENS, min_size=1, max_size=3), TOKENS, st.integers(0, 3))
def law(decoder: Decoder, first: list[int], more: list[int], last: int, free: int) -> None:
    """Tokens onto a full cache are taken and right, or refused; and then it goes on as if nobody had asked."""
    text = torch.tensor([first])
    _, cache = decoder.step(decoder.start(1, len(first) + free), text)
    for new in (more, [last]):
        try:
            logits, cache = decoder.step(cache, torch.tensor([new]))
        except DecoderRaised:
            assert text.size(1) + len(new) > len(first) + free
            continue
        text = torch.cat([text, torch.tensor([new])], dim=1)
        assert torch.equal(logits, decoder.full(text)[:, -len(new) :])
