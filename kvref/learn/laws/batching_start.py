"""Batching: write the law batching-law.

Complete `law` until it fails on every sealed bug and holds on every right
cache. The marks say where; but all of it is yours to change, strategies and
arguments too, if only it is called `law` and takes a `decoder`. Only an
assertion counts: a decoder that raises proves nothing.
`kvref learn test batching-law` says which bugs are still alive, and what your
examples never did; `kvref learn hint batching-law` helps in three steps.

Sums are exact here: equal logits have the same bits, however the tokens are cut
into calls, and `torch.equal` compares them. Tokens are 0 to 12, and a row has
room for 12. A cache is whatever came back last; look at it through these alone:

    decoder.full(tokens) -> logits of one pass without a cache
    decoder.start(batch, capacity) -> an empty cache; a capacity of None is room for 12
    decoder.step(cache, tokens) -> logits of the new tokens, and the cache with them in it
    decoder.prefill(cache, tokens, padding) -> as step, for the first tokens, padded at the left: in each row by
        so many columns, whose logits say nothing
    decoder.reorder(cache, rows) -> the cache of these rows, in this order
"""

from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


ROWS = st.lists(st.lists(TOKENS, min_size=3, max_size=3), min_size=2, max_size=4)  # your turn: are they ever unequal?


@given(ROWS, st.lists(TOKENS, min_size=4, max_size=4), st.randoms(use_true_random=False))
def law(decoder: Decoder, rows: list[list[int]], new: list[int], chance: Random) -> None:
    """Rows of a padded batch give what each gives alone, in the prompt, behind it, and when rows have moved."""
    width = max(map(len, rows))
    padding = [width - len(row) for row in rows]
    batch = torch.tensor([[0] * columns + row for row, columns in zip(rows, padding, strict=True)])
    logits, cache = decoder.prefill(decoder.start(len(rows), None), batch, padding)
    for number, row in enumerate(rows):
        assert torch.equal(logits[number, padding[number] :], decoder.full(torch.tensor([row]))[0])
    order = list(range(len(rows)))
    del chance  # your turn: chance.shuffle(order) gives another order; move the rows to it before the next token comes
    tokens = torch.tensor([[token] for token in new[: len(rows)]])
    logits, cache = decoder.step(cache, tokens)
    assert logits.size(0) == len(order)
    # your turn: each row has one token more now; what does it give alone?
