"""What is counted outside the model: tokens, rows, bytes and passes. Counts catch what no logit shows."""

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect, expect_passes
from kvref.generate import SeededSampler, generate_naive
from kvref.law import law, saw
from kvref.operations import Crop, CropRows, Fork, Peek, Refill, Reorder, Reset, Restore
from kvref.schedule import Schedule
from kvref.strategies import EVERY, prompts, schedules
from kvref.trace import Ledger, Step, as_tensor, play

NEW = 5
"""Tokens generated to count the passes."""


@law(
    given=schedules(*EVERY),
    needs=(Capability.LENGTH,),
    must_see=("an empty cache", "a cache with tokens"),
)
def test_lengths_equal_the_tokens_given(decoder: Decoder, schedule: Schedule) -> None:
    """After every operation the cache says how many tokens are in it, and every layer holds as many for each row.

    What is in it is known from plain lists of tokens, kept outside the model. Masks, positions and limits are made from
    the length, so where it is off, all of them are. Redundant on the catalogue, it stays since it asks after every
    operation, and for each row, when no logit has been asked for.
    """
    padded = set[int]()
    for step in play(decoder, schedule):
        length = step.length
        if isinstance(step.op, Reset):
            padded.discard(step.cache)
        if step.content.ragged or (isinstance(step.op, Fork) and step.op.cache in padded):
            padded.add(step.cache)
        expect(
            length == step.content.length,
            f"the length is {length}, but {step.content.length} tokens are in",
            step,
        )
        saw("a cache with tokens" if length else "an empty cache")
        if length and Capability.LENGTHS in decoder.capabilities:
            lengths = tuple(decoder.lengths(step.handle))
            expect(
                lengths == step.content.lengths,
                f"the rows have lengths {lengths}, but {step.content.lengths} tokens are in",
                step,
            )
        for layer, (keys, values) in enumerate(step.keys_values() or []):
            for name, tensor in (("keys", keys), ("values", values)):
                rows, columns, want = tensor.size(0), tensor.size(2), len(step.content.rows)
                # Columns of padding are the decoder's own affair, behind a crop too.
                fits = columns >= length if step.cache in padded else columns == length
                expect(
                    rows == want and fits,
                    f"{name} of layer {layer} are {rows} rows of {columns} tokens, not {want} of {length}",
                    step,
                )


@law(
    given=schedules(Crop, Fork, Reorder, Reset, Restore),
    needs=(Capability.BYTES,),
    must_see=("bytes of a cache with tokens",),
)
def test_bytes_equal_the_formula(decoder: Decoder, schedule: Schedule) -> None:
    """A cache holds 2 * n_layer * n_kv_head * head_dim * N * itemsize bytes for each row of the batch.

    The 2 is keys and values; N is the tokens in it, or the slots where it is preallocated. A cache that holds more
    halves the number of conversations that fit, and says so nowhere. Redundant on the catalogue, it stays since it
    counts what a decoder says that it holds, which servers plan with, and asks for no less than it needs either.
    """
    for step in play(decoder, schedule):
        held, want = decoder.bytes(step.handle), bytes_of(step)
        expect(held == want, f"the cache holds {held} bytes, but its formula gives {want}", step)
        if step.content.length:
            saw("bytes of a cache with tokens")


@law(
    given=schedules(Crop, Fork, Reorder, Reset, Restore),
    needs=(Capability.TENSORS, Capability.KEYS_VALUES),
    must_see=("a cache with tokens",),
)
def test_queries_are_not_stored(decoder: Decoder, schedule: Schedule) -> None:
    """Of each token a cache keeps one key and one value for each layer and head, and nothing else: no query.

    A query is used once, in the pass that makes it. It is easy to keep by accident: keys and values that are views into
    one fused tensor hold all of that tensor, queries included. Redundant on the catalogue, it stays since it counts the
    tensors themselves, whatever a decoder says that it holds.
    """
    for step in play(decoder, schedule):
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in decoder.tensors(step.handle)}
        held, want = sum(storage.nbytes() for storage in storages.values()), bytes_of(step)
        expect(held <= want, f"tensors of {held} bytes are kept, but keys and values take {want}", step)
        if step.content.length:
            saw("a cache with tokens")


@law(
    given=schedules(Crop, CropRows, Fork, Peek, Refill, Reorder, Reset, Restore),
    needs=(Capability.LAYERS,),
    must_see=("one token onto a past", "several tokens onto a past"),
)
def test_every_token_passes_every_layer_once(decoder: Decoder, schedule: Schedule) -> None:
    """N tokens cost N token passes in every layer, however they are cut, and whatever is done in between.

    A cache that is right and runs the prefix again all the same is no cache. A layer that the model runs twice for each
    token, without a cache too, counts twice. Redundant on the catalogue, it stays since
    it counts at every step of any schedule, so that the first call that runs too much is named.
    """
    given = 0
    with Ledger(decoder) as ledger:
        for step in play(decoder, schedule):
            given += 0 if step.logits is None else step.logits.size(0) * step.logits.size(1)
            expect_passes(ledger, given, "what was given so far", step)
            if step.new and step.past:
                saw("several tokens onto a past" if step.new > 1 else "one token onto a past")


@law(
    given=prompts(NEW),
    needs=(Capability.LAYERS,),
    must_see=("a prompt of one token", "a longer prompt"),
)
def test_generation_runs_n_tokens_with_a_cache_and_n_n_plus_1_over_2_without(
    decoder: Decoder, schedule: Schedule
) -> None:
    """Generating N tokens from a first one runs N tokens with a cache, and 1 + 2 + ... + N = N(N+1)/2 without one.

    From a prompt of P tokens it is P + N - 1 with a cache, and P + (P+1) + ... + (P+N-1) without; the last token is
    sampled and not run. Passes are all that a cache saves: a loop that runs more of them has none. Redundant on the
    catalogue, it stays since the loop may be the decoder's own, and may run too much where its cache does not.
    """
    prompt = as_tensor(schedule.contents[-1][0].rows, decoder)
    rows, length = prompt.shape
    new = min(NEW, decoder.block_size - length)
    with Ledger(decoder) as naive:
        generate_naive(decoder, prompt, new, SeededSampler())
    with Ledger(decoder) as cached:
        decoder.generate(prompt, new, SeededSampler())
    passes = rows * sum(range(length, length + new))
    expect_passes(naive, passes, f"generating {new} tokens from {length} without a cache", 1)
    passes = rows * (length + new - 1) if new else 0
    expect_passes(cached, passes, f"generating {new} tokens from {length} with a cache", 1)
    if new > 1:
        saw("a longer prompt" if length > 1 else "a prompt of one token")


def bytes_of(step: Step) -> int:
    """Bytes that keys and values of a cache take: the tokens in it, or the slots where it is preallocated."""
    decoder, content = step.decoder, step.content
    slots = decoder.block_size if content.capacity is None else content.capacity
    tokens = slots if decoder.preallocates else content.length
    row = 2 * decoder.size("n_layer") * decoder.size("n_kv_head") * decoder.size("head_dim") * tokens
    return row * decoder.size("dtype").itemsize * len(content.rows)
