"""Prompts of different lengths in one batch: padding fills them up, and must not matter."""

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect, expect_logits, expect_same
from kvref.generate import SeededSampler, generate_naive
from kvref.law import EQUALITY, law, saw
from kvref.operations import Crop, CropRows, Peek, Prefill, Reorder, Reset, Row
from kvref.schedule import Schedule
from kvref.strategies import ragged_prompts, schedules
from kvref.trace import Uncached, as_tensor, play, run

NEW = 5
"""Tokens generated for each row of a batch."""

NO_END = -1
"""No token of any vocabulary."""


@law(
    given=schedules(Prefill, Reorder, CropRows, Crop, Peek, Reset),
    needs=(Capability.PREFILL, Capability.LOSSLESS),
    must_see=(
        "a padded prefill",
        "one token onto a padded past",
        "several tokens onto a padded past",
        "padding before the longest row",
    ),
    builds_on=(EQUALITY,),
)
def test_padding_changes_nothing(decoder: Decoder, schedule: Schedule) -> None:
    """A row with padding gives the logits of an uncached pass over its tokens alone, in the prefill and ever after.

    Positions count the tokens of the row, not the columns, and no query sees a column of padding, in no call. How much
    padding there is does not matter, nor which token it is. Redundant on the catalogue, it stays since its cases, more
    padding than needed and a padded past, are met in every search; elsewhere by chance.
    """
    uncached = Uncached(decoder, schedule)
    for step in play(decoder, schedule):
        if step.logits is None:
            continue
        expect_logits(step, uncached.logits(step), "in one uncached pass without padding")
        if isinstance(step.op, Prefill):
            saw("a padded prefill")
            if step.op.padding:
                saw("padding before the longest row")
        elif step.new and step.content.ragged:
            saw("one token onto a padded past" if step.new == 1 else "several tokens onto a padded past")


@law(
    given=schedules(Prefill),
    needs=(Capability.PREFILL,),
    must_see=("other padding, then a token",),
)
def test_padding_of_another_token_gives_the_same_bits(decoder: Decoder, schedule: Schedule) -> None:
    """Whichever token fills a prompt up, every logit is the same, bit for bit: its keys and values are never used.

    A weight that is small and not zero lets a little of the padding in, and no comparison with a tolerance sees it.
    Redundant on the catalogue, it stays for the lens that has a bound: a small leak is lost against another pass, and
    here nothing else differs.
    """
    first = run(decoder, schedule).logits
    for step in play(decoder, repadded(schedule, decoder.vocab_size)):
        if (logits := first[step.index]) is not None and step.logits is not None:
            expect_same(step.logits, logits, "with other padding", decoder.lens, step.past, step)
            if step.new and step.past and step.content.ragged:
                saw("other padding, then a token")


@law(
    given=ragged_prompts(NEW),
    needs=(Capability.GENERATE_BATCH, Capability.BATCH, Capability.LOSSLESS),
    must_see=("rows that end at different steps", "prompts of different lengths"),
    generation=True,
)
def test_each_row_of_a_batch_generates_what_it_generates_alone(decoder: Decoder, schedule: Schedule) -> None:
    """Prompts of different lengths, generated together until their end tokens, give what each gives alone.

    The next token comes from the row's own last logits, and a row that has ended adds nothing more. It is so whatever
    the way to generate, where a decoder has several: in chunks, with beams, or by drafts. Alone means without a cache.
    """
    prompts = schedule.contents[-1][0].rows
    new = min(NEW, decoder.block_size - max(map(len, prompts)))
    way = decoder.ways[sum(map(sum, prompts)) % len(decoder.ways)]  # as good as drawn
    free = generates_alone(decoder, prompts[0], new, NO_END, way)
    # An end token that at least one row meets early, and others, if at all, at steps of their own.
    end = free[min(1, len(free) - 1)] if free else NO_END
    want = [generates_alone(decoder, row, new, end, way) for row in prompts]
    got = decoder.generate_batch(prompts, new, end, way)
    by = f"with {end} as end token{f' and by {way}' if way else ''}"
    expect(got == want, f"{by} the batch generates {got}, but its rows alone {want}", 1)
    if len(set(map(len, want))) > 1:
        saw("rows that end at different steps")
    if len(set(map(len, prompts))) > 1:
        saw("prompts of different lengths")


def generates_alone(decoder: Decoder, prompt: Row, new: int, end: int, way: str) -> list[int]:
    """What a way adds to a prompt without a cache, up to an end token."""
    own = decoder.generate_uncached(prompt, new, end, way)
    if own is not None:
        return own
    (answer,) = generate_naive(decoder, as_tensor([prompt], decoder), new, SeededSampler())
    return answer[: answer.index(end) + 1] if end in answer else answer


def repadded(schedule: Schedule, vocab_size: int) -> Schedule:
    """The same with the next token of the vocabulary as padding."""
    ops = [
        Prefill(op.tokens, op.padding, (op.pad + 1) % vocab_size, op.cache) if isinstance(op, Prefill) else op
        for op in schedule.ops
    ]
    return Schedule(tuple(ops))
