"""Why a cache is allowed at all: what comes later changes nothing before it."""

from itertools import pairwise

from kvref.capability import Capability
from kvref.contents import Content
from kvref.decoder import Decoder
from kvref.finding import LawBroken, expect, expect_keys_values, expect_logits, expect_same
from kvref.law import Check, law, saw
from kvref.lens import SAME_BITS
from kvref.operations import Extend
from kvref.schedule import Schedule
from kvref.strategies import schedules, twins
from kvref.trace import Step, as_tensor, first_rows, play, prefilled


@law(
    given=twins(),
    must_see=("a later token of the same call differs", "a later token of an uncached pass differs"),
)
def test_later_tokens_change_nothing_earlier(decoder: Decoder, schedule: Schedule) -> None:
    """Two sequences that begin alike have the same logits as far as they are alike.

        a[:t] = b[:t]  implies  logits(a)[:t] = logits(b)[:t]

    It holds without a cache too; where it does not, nothing of the past can be kept. A dropped mask breaks it inside
    one call, when the tokens of a chunk see each other's future. Redundant on the catalogue, it stays as the premise of
    all others: where it fails, no cache can be right.
    """
    require_causality(decoder, schedule)


@law(
    given=schedules(),
    needs=(Capability.KEYS_VALUES, Capability.LOSSLESS),
    must_see=("rows stay while tokens are appended", "rows of one pass over all tokens"),
)
def test_past_keys_and_values_never_change(decoder: Decoder, schedule: Schedule) -> None:
    """Once made, keys and values are final: appending leaves every bit, and one longer pass makes the same ones.

    A row that is transformed again when it is read, or a slot that two tokens share, breaks it long before a logit that
    anyone looks at is wrong. Redundant on the catalogue, it stays since it shows a fault where it begins, and not where
    a logit first moves.
    """
    require_finality(decoder, schedule)


@law(
    given=twins(),
    needs=(Capability.WITHOUT_MASK, Capability.KEYS_VALUES, Capability.LOSSLESS),
    must_see=("causality fails without the mask", "finality fails without the mask, if there is a second layer"),
)
def test_without_the_mask_causality_and_finality_fail(decoder: Decoder, schedule: Schedule) -> None:
    """With every token seeing every other, causality fails, and in the second layer finality too.

    This is the control of the two laws above: a check that passes on a bidirectional model checks nothing.
    """
    unmasked = decoder.without_mask()
    lengths = [state[0].length for op, state in schedule if isinstance(op, Extend) and op.cache == 0]
    alike = common(*schedule.contents[-1])
    if any(past < alike < length for past, length in pairwise([0, *lengths])):
        held = "without its mask the decoder is causal all the same"
        expect(fails(require_causality, unmasked, schedule), held, len(schedule) - 1)
        saw("causality fails without the mask")
    if len(lengths) > 1:
        if decoder.size("n_layer") > 1:
            held = "without its mask the decoder's rows are final all the same"
            expect(fails(require_finality, unmasked, schedule), held, len(schedule) - 1)
        saw("finality fails without the mask, if there is a second layer")


def require_causality(decoder: Decoder, schedule: Schedule) -> None:
    """Compare two caches fed in the same chunks, as far as their tokens are alike, and uncached passes over both."""
    before: dict[int, Step] = {}
    for step in play(decoder, schedule):
        if step.new and step.cache == 0:
            before[step.past] = step
        elif step.new and (want := before[step.past].logits) is not None:
            alike = common(before[step.past].content, step.content) - step.past
            if alike > 0:
                expect_logits(step, want[:, :alike], "in cache 0, which differs only later")
            if 0 < alike < step.new:
                saw("a later token of the same call differs")
    first, second = schedule.contents[-1]
    if first.length and (alike := common(first, second)) < first.length:
        one, other = (decoder.full(as_tensor(content.rows, decoder))[:, :alike] for content in (first, second))
        if alike:
            expect_same(
                other, one, "in an uncached pass over tokens that differ only later", decoder.lens, 0, len(schedule) - 1
            )
            saw("a later token of an uncached pass differs")


def require_finality(decoder: Decoder, schedule: Schedule) -> None:
    """Compare rows with what they were before each call, and with those of one pass over everything."""
    before: dict[int, Step] = {}
    rows = {}
    for step in play(decoder, schedule):
        if layers := step.keys_values():
            if past := rows.get(step.cache):
                expect_keys_values(step, first_rows(layers, step.past), past, "before this call", SAME_BITS)
                saw("rows stay while tokens are appended")
            rows[step.cache] = step.snapshot()
            before[step.cache] = step
    for step in before.values():
        if layers := step.keys_values():
            one_pass = prefilled(decoder, step.content.rows)
            expect_keys_values(step, layers, one_pass, "of one pass over all tokens", decoder.lens)
            saw("rows of one pass over all tokens")


def common(first: Content, second: Content) -> int:
    """How many leading tokens two caches share in every row."""
    pairs = zip(first.rows, second.rows, strict=True)
    return min(next((i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), len(pair[1])) for pair in pairs)


def fails(check: Check, decoder: Decoder, schedule: Schedule) -> bool:
    """Whether a check raises `LawBroken`."""
    try:
        check(decoder, schedule)
    except LawBroken:
        return True
    return False
