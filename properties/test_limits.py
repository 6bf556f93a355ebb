"""The last position works, and the one behind it does not."""

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect, expect_keys_values, expect_logits
from kvref.law import EQUALITY, law, saw
from kvref.lens import SAME_BITS
from kvref.operations import Overflow
from kvref.schedule import Schedule
from kvref.strategies import overflows
from kvref.trace import oracle_for, play


@law(
    given=overflows(),
    needs=(Capability.ATOMIC,),
    must_see=("tokens refused by a full cache", "tokens refused while some would fit"),
    builds_on=(EQUALITY,),
)
def test_what_fits_works_and_one_token_more_is_refused(decoder: Decoder, schedule: Schedule) -> None:
    """Every position up to the last gives uncached logits; more tokens than fit raise, and leave the cache as it was.

    A write that clamps to the last slot, or drops what does not fit, answers on with a frozen history. A refusal that
    comes after a write leaves a cache that nobody can use.
    """
    oracle = oracle_for(decoder, schedule)
    before = None
    for step in play(decoder, schedule):
        if isinstance(step.op, Overflow):
            expect(step.refusal is not None, "more tokens than fit were taken without an error", step)
            if Capability.LENGTH in decoder.capabilities:
                length = step.length
                expect(length == step.content.length, f"the refusal left a length of {length}", step)
            if (layers := step.keys_values()) and before:
                expect_keys_values(step, layers, before, "before the refusal", SAME_BITS)
            more = schedule.contents[-1][0].length > step.content.length
            saw("tokens refused while some would fit" if more else "tokens refused by a full cache")
        elif step.new:
            expect_logits(step, oracle.logits(step), oracle.said)
        before = step.snapshot()
