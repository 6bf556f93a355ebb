"""Counting: write the law counting-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test counting-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint counting-law` helps in three steps.

Sums are exact here: equal logits have the same bits, however the tokens are cut
into calls, and `torch.equal` compares them. Tokens are 0 to 12, and a row has
room for 12. A cache is whatever came back last; look at it through these alone:

    decoder.full(tokens) -> logits of one pass without a cache
    decoder.start(batch, capacity) -> an empty cache; a capacity of None is room for 12
    decoder.step(cache, tokens) -> logits of the new tokens, and the cache with them in it
    decoder.session() -> a conversation: feed(tokens) gives the logits of its last token, `1 vocab_size`, and
        reply(number, sampler) as many tokens, sampled behind what was fed, as a
        list for the only row
"""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


# your turn: one turn and its reply show little; let conversations go on
@given(st.lists(st.tuples(st.lists(TOKENS, min_size=1, max_size=2), st.integers(1, 2)), min_size=1, max_size=1))
def law(decoder: Decoder, turns: list[tuple[list[int], int]]) -> None:
    """In a conversation every turn is answered as if all that was said before were one prompt."""
    conversation, said = decoder.session(), list[int]()
    for turn, number in turns:
        said += turn
        last = conversation.feed(torch.tensor([turn]))
        assert torch.equal(last, decoder.full(torch.tensor([said]))[:, -1])
        (reply,) = conversation.reply(number, greedy)
        # your turn: which tokens should these be, one by one? `greedy` of the logits of what was said, without a cache
        said += reply


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """The likeliest next token of each row."""
    return logits.argmax(dim=-1)
