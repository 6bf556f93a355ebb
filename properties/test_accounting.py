"""What is counted outside the model: tokens, rows, bytes and passes. Counts catch what no logit shows."""

from kvref.decoder import Capability, Decoder
from kvref.finding import expect
from kvref.law import law, saw
from kvref.schedule import Crop, Fork, Reorder, Reset, Schedule, Start
from kvref.strategies import schedules
from kvref.trace import Ledger, Step, as_tensor, play


@law(
    given=schedules(Crop, Fork, Reorder, Reset, Start),
    needs=(Capability.LENGTH,),
    must_see=("an empty cache", "a cache with tokens"),
)
def test_lengths_equal_the_tokens_given(decoder: Decoder, schedule: Schedule) -> None:
    """After every operation the cache says how many tokens are in it, and every layer holds as many for each row.

    What is in it is known from plain lists of tokens, kept outside the model. Masks, positions and limits are made from
    the length, so where it is off, all of them are.
    """
    for step in play(decoder, schedule):
        length = step.length
        expect(
            length == step.content.length,
            f"the length is {length}, but {step.content.length} tokens are in",
            step,
        )
        saw("a cache with tokens" if length else "an empty cache")
        for layer, (keys, values) in enumerate(step.keys_values() or []):
            for name, tensor in (("keys", keys), ("values", values)):
                rows, tokens = tensor.size(0), tensor.size(2)
                expect(
                    (rows, tokens) == (len(step.content.rows), length),
                    f"{name} of layer {layer} are {rows} rows of {tokens} tokens, "
                    f"not {len(step.content.rows)} of {length}",
                    step,
                )


@law(
    given=schedules(Crop, Fork, Reorder, Reset),
    needs=(Capability.BYTES,),
    must_see=("bytes of one row", "bytes of several rows"),
)
def test_bytes_equal_the_formula(decoder: Decoder, schedule: Schedule) -> None:
    """A cache holds 2 * n_layer * n_kv_head * head_dim * N * itemsize bytes for each row of the batch.

    The 2 is keys and values; N is the tokens in it, or the slots where it is preallocated. A cache that holds more
    halves the number of conversations that fit, and says so nowhere.
    """
    for step in play(decoder, schedule):
        held, want = decoder.bytes(step.handle), bytes_of(step)
        expect(held == want, f"the cache holds {held} bytes, but its formula gives {want}", step)
        if step.content.length:
            saw("bytes of several rows" if len(step.content.rows) > 1 else "bytes of one row")


@law(
    given=schedules(Crop, Fork, Reorder, Reset),
    needs=(Capability.TENSORS, Capability.KEYS_VALUES),
    must_see=("a cache with tokens",),
)
def test_queries_are_not_stored(decoder: Decoder, schedule: Schedule) -> None:
    """Of each token a cache keeps one key and one value for each layer and head, and nothing else: no query.

    A query is used once, in the pass that makes it. It is easy to keep by accident: keys and values that are views into
    one fused tensor hold all of that tensor, queries included.
    """
    for step in play(decoder, schedule):
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in decoder.tensors(step.handle)}
        elements = sum(storage.nbytes() for storage in storages.values())
        want = bytes_of(step)
        expect(elements <= want, f"tensors of {elements} bytes are kept, but keys and values take {want}", step)
        if step.content.length:
            saw("a cache with tokens")


@law(
    given=schedules(Crop, Fork, Reorder, Reset),
    needs=(Capability.LAYERS,),
    must_see=("one token onto a past", "several tokens onto a past"),
)
def test_every_token_passes_every_layer_once(decoder: Decoder, schedule: Schedule) -> None:
    """N tokens cost N token passes in every layer, however they are cut, and whatever is done in between.

    A cache that is right and runs the prefix again all the same is no cache.
    """
    given, n_layer = 0, len(decoder.layers())
    with Ledger(decoder) as ledger:
        for step in play(decoder, schedule):
            given += step.new * len(step.content.rows)
            passes = {layer: ledger.forwarded[layer] for layer in range(n_layer)}
            expect(
                set(passes.values()) <= {given},
                f"{given} tokens were given so far, but the layers saw {list(passes.values())}",
                step,
            )
            if step.new and step.past:
                saw("several tokens onto a past" if step.new > 1 else "one token onto a past")


@law(given=schedules(max_rows=1), needs=(Capability.LAYERS,), must_see=("three tokens or more",))
def test_n_tokens_cost_n_passes_with_a_cache_and_n_n_plus_1_over_2_without(
    decoder: Decoder, schedule: Schedule
) -> None:
    """Generating N tokens one by one runs N tokens with a cache, and 1 + 2 + ... + N = N(N+1)/2 without one."""
    (row,) = schedule.contents[-1][0].rows
    tokens, n_layer = len(row), len(decoder.layers())
    with Ledger(decoder) as naive:
        for end in range(1, tokens + 1):
            decoder.full(as_tensor([row[:end]], decoder))
    with Ledger(decoder) as cached:
        handle = decoder.start(1)
        for token in row:
            _, handle = decoder.step(handle, as_tensor([(token,)], decoder))
    for layer in range(n_layer):
        expect(
            cached.forwarded[layer] == tokens,
            f"{tokens} tokens took {cached.forwarded[layer]} passes with a cache",
        )
        triangle = tokens * (tokens + 1) // 2
        expect(
            naive.forwarded[layer] == triangle,
            f"{tokens} tokens took {naive.forwarded[layer]} passes without a cache, not {triangle}",
        )
    if tokens > 2:
        saw("three tokens or more")


def bytes_of(step: Step) -> int:
    """Bytes that keys and values of a cache take: the tokens in it, or the slots where it is preallocated."""
    decoder, content = step.decoder, step.content
    slots = decoder.block_size if content.capacity is None else content.capacity
    tokens = slots if decoder.size("preallocates") else content.length
    row = 2 * decoder.size("n_layer") * decoder.size("n_kv_head") * decoder.size("head_dim") * tokens
    return row * decoder.size("dtype").itemsize * len(content.rows)
