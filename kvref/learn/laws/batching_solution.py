"""Batching: the law batching-law, done."""

from random import Random

import torch
from hypothesis import given
from hypothesis import strategies as st

from kvref.decoder import Decoder

TOKENS = st.integers(0, 12)


ROWS = st.lists(st.lists(TOKENS, min_size=1, max_size=5), min_size=2, max_size=4)


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
    chance.shuffle(order)
    cache = decoder.reorder(cache, order)
    tokens = torch.tensor([[token] for token in new[: len(rows)]])
    logits, cache = decoder.step(cache, tokens)
    for number, source in enumerate(order):
        alone = torch.tensor([[*rows[source], new[number]]])
        assert torch.equal(logits[number], decoder.full(alone)[0, -1:])
