"""Rows of a batch are strangers, and stay so when they change places."""

from kvref.decoder import Capability, Decoder
from kvref.finding import expect_keys_values, expect_logits
from kvref.law import law, saw
from kvref.lens import SAME_BITS
from kvref.schedule import Crop, Reorder, Reset, Schedule, alone
from kvref.strategies import schedules
from kvref.trace import Uncached, play, run


@law(
    given=schedules(Crop, Reset),
    needs=(Capability.BATCH,),
    must_see=("a row of a batch", "a row of a batch with a past"),
)
def test_a_row_alone_equals_the_row_in_a_batch(decoder: Decoder, schedule: Schedule) -> None:
    """A row gives the same logits alone as in any batch: what its neighbours are does not matter.

    A length, a position or a mask that is shared by rows which differ breaks it.
    """
    together = run(decoder, schedule).logits
    rows = len(schedule.contents[0][0].rows)
    for row in range(rows):
        for step in play(decoder, alone(schedule, row)):
            if (logits := together[step.index]) is not None:
                expect_logits(step, logits[row : row + 1], f"as row {row} of the batch")
                if len(set(schedule.contents[step.index][0].rows)) > 1:
                    saw("a row of a batch with a past" if step.past else "a row of a batch")


@law(
    given=schedules(Reorder, Crop),
    needs=(Capability.REORDER, Capability.BATCH),
    must_see=("rows change places", "a row repeats", "a row is left out", "tokens after a reorder"),
)
def test_reorder_equals_having_had_that_order_from_the_start(decoder: Decoder, schedule: Schedule) -> None:
    """After a reorder each row is, bit for bit, the row it was made from, and goes on as if it had always been there.

    Beam search reorders at every step, mostly with repeats. A reorder of the keys alone, of some layers, or of nothing
    passes every test in which the order is the identity.
    """
    uncached = Uncached(decoder, schedule)
    before, reordered = {}, set[int]()
    for step in play(decoder, schedule):
        if isinstance(step.op, Reorder):
            order, rows = list(step.op.rows), schedule.contents[step.index - 1][step.cache].rows
            if (layers := step.keys_values()) and (past := before.get(step.cache)):
                moved = [(keys[order], values[order]) for keys, values in past]
                expect_keys_values(step, layers, moved, "of the rows it was made from", SAME_BITS)
            if len(set(rows)) == len(rows) > 1:
                saw("rows change places" if order != sorted(order) else "rows keep their order")
                saw("a row repeats" if len(set(order)) < len(order) else "no row repeats")
                saw("a row is left out" if len(set(order)) < len(rows) else "every row stays")
            reordered.add(step.cache)
        elif step.new:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            if step.cache in reordered and step.past:
                saw("tokens after a reorder")
        before[step.cache] = step.snapshot()
