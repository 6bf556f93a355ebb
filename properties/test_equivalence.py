"""Cached equals uncached, however the tokens arrive and whatever was done to the cache."""

import torch

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect_keys_values, expect_logits
from kvref.law import EQUALITY, law, saw
from kvref.operations import Crop, Extend, Prefill, Start
from kvref.schedule import Schedule
from kvref.strategies import EVERY, OFFERED_BY, rechunked, schedules
from kvref.trace import Uncached, first_rows, play, run

APART = {Capability.POISON, Capability.LAYERS, Capability.ATOMIC}
"""Capabilities that no operation on a healthy cache needs: one that dies has a law of its own."""


@law(
    given=schedules(),
    needs=(Capability.LOSSLESS,),
    must_see=("a prefill", "one token onto a past", "several tokens onto a past"),
)
def test_cached_logits_equal_uncached_logits(decoder: Decoder, schedule: Schedule) -> None:
    """Every row of logits that a cache gives is the row that one uncached pass over the same tokens gives.

        step(cache of tokens[:past], tokens[past:]) = full(tokens)[past:]

    This is what makes a cache an optimisation and not another model. Position ids and masks break it most often.
    Redundant on the catalogue, it stays since it needs prefill and decode alone: every decoder can be tried, and its
    schedules are the shortest. Source: Shazeer, arXiv:1911.02150, section 2.4.
    """
    uncached = Uncached(decoder, schedule)
    for step in play(decoder, schedule):
        if step.new:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            several = "several tokens" if step.new > 1 else "one token"
            saw(f"{several} onto a past" if step.past else "a prefill")


@law(
    given=rechunked(),
    needs=(Capability.LOSSLESS,),
    must_see=("two different splits", "the same size at two offsets", "several tokens onto a past"),
    builds_on=(EQUALITY,),
)
def test_any_chunking_gives_the_same_logits_and_rows(decoder: Decoder, schedule: Schedule) -> None:
    """However tokens are cut into calls, their logits, and the keys and values that they leave, are the same.

    Chunked prefill, multi-turn chat and speculative decoding rest on it; no test that prefills once and then decodes
    one token at a time can see it fail. Redundant on the catalogue, it stays since it compares cached passes with each
    other: it speaks too where the uncached pass has a fault of its own.
    """
    splits: tuple[list[int], list[int]] = [], []
    logits, rows = list[torch.Tensor](), None
    for step in play(decoder, schedule):
        if step.new and step.logits is not None:
            splits[step.cache].append(step.new)
            if step.cache == 0:
                logits.append(step.logits)
                rows = step.snapshot()
            else:
                want = torch.cat(logits, dim=1)[:, step.past : step.content.length]
                expect_logits(step, want, "when the tokens are cut as for cache 0")
                if (mine := step.keys_values()) and rows:
                    expect_keys_values(step, mine, first_rows(rows, step.content.length), "of cache 0", decoder.lens)
            if step.past and step.new > 1:
                saw("several tokens onto a past")
    if splits[0] != splits[1]:
        saw("two different splits")
    if len(splits[1]) > len(set(splits[1])):
        saw("the same size at two offsets")


@law(
    given=schedules(*EVERY),
    needs=(Capability.LOSSLESS,),
    needs_one_of=tuple(sorted(frozenset[Capability]().union(*OFFERED_BY.values()) - APART)),
    must_see=("tokens after another operation",),
    builds_on=(EQUALITY,),
)
def test_no_operation_makes_logits_differ_from_uncached_ones(decoder: Decoder, schedule: Schedule) -> None:
    """Whatever was done to a cache, the next logits are those of an uncached pass over what is in it now.

    Operations that are right one by one can be wrong in a row: a crop behind a reorder, a fork of a cropped cache.
    Redundant on the catalogue, it stays for such pairs: the law of an operation draws few others beside it.
    """
    uncached = Uncached(decoder, schedule)
    touched = set[int]()
    for step in play(decoder, schedule):
        if step.logits is not None:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            if step.cache in touched:
                saw("tokens after another operation")
        if not isinstance(step.op, Start | Extend):
            touched.add(step.cache)


@law(
    given=schedules(Crop, Prefill),
    needs=(Capability.WITH_ALL_HEADS,),
    must_see=("tokens under heads that share keys and values",),
)
def test_heads_that_share_keys_equal_heads_that_each_have_a_copy(decoder: Decoder, schedule: Schedule) -> None:
    """Query heads that share a head of keys and values give what they give when each has its own copy.

    Which query heads share is a convention, and a cache that repeats its heads in another order than the weights were
    trained with is wrong in every token. Source: Ainslie et al., arXiv:2305.13245.
    """
    copied = decoder.with_all_heads()
    want = run(copied, schedule).logits
    for step in play(decoder, schedule):
        if (logits := want[step.index]) is not None:
            expect_logits(step, logits, "with a copy of keys and values for each head")
            saw("tokens under heads that share keys and values")
