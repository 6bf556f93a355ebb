"""Counting: the law counting-law, done."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


@given(st.lists(st.tuples(st.lists(TOKENS, min_size=1, max_size=2), st.integers(0, 2)), min_size=1, max_size=3))
def law(decoder: Decoder, turns: list[tuple[list[int], int]]) -> None:
    """In a conversation every turn is answered as if all that was said before were one prompt."""
    conversation, said = decoder.session(), list[int]()
    for turn, number in turns:
        said += turn
        last = conversation.feed(torch.tensor([turn]))
        assert torch.equal(last, decoder.full(torch.tensor([said]))[:, -1])
        (reply,) = conversation.reply(number, greedy)
        for token in reply:
            assert token == int(greedy(decoder.full(torch.tensor([said]))[:, -1]))
            said.append(token)


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The likeliest next token of each row."""
    return logits.argmax(dim=-1)
