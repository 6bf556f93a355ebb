"""Rows of a batch are strangers, and stay so when they change places."""

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect_keys_values, expect_logits
from kvref.law import EQUALITY, law, saw
from kvref.lens import SAME_BITS
from kvref.operations import Crop, CropRows, Prefill, Refill, Reorder, Reset
from kvref.schedule import Schedule, alone
from kvref.strategies import schedules
from kvref.trace import Uncached, first_rows, oracle_for, play, run, tokens_of


@law(
    given=schedules(Crop, Reset, Prefill, CropRows),
    needs=(Capability.BATCH,),
    must_see=("a row of a batch", "a row of a batch with a past"),
)
def test_a_row_alone_equals_the_row_in_a_batch(decoder: Decoder, schedule: Schedule) -> None:
    """A row gives the same logits alone as in any batch: what its neighbours are does not matter.

    A length, a position or a mask that is shared by rows which differ breaks it. Redundant on the catalogue, it stays
    since it needs neither padding nor an operation to show what rows share.
    """
    together = run(decoder, schedule).logits
    rows = len(schedule.contents[0][0].rows)
    for row in range(rows):
        for step in play(decoder, alone(schedule, row)):
            if (logits := together[step.index]) is not None:
                expect_logits(step, logits[row : row + 1, -step.new :], f"as row {row} of the batch")
                if len(set(schedule.contents[step.index][0].rows)) > 1:
                    saw("a row of a batch with a past" if step.past else "a row of a batch")


@law(
    given=schedules(Reorder, Crop, Prefill, CropRows),
    needs=(Capability.REORDER, Capability.BATCH),
    must_see=("rows change places", "a row repeats", "a row is left out", "tokens after a reorder"),
    builds_on=(EQUALITY,),
)
def test_reorder_equals_having_had_that_order_from_the_start(decoder: Decoder, schedule: Schedule) -> None:
    """After a reorder each row is, bit for bit, the row it was made from, and goes on as if it had always been there.

    Beam search reorders at every step, mostly with repeats. A reorder of the keys alone, of some layers, or of nothing
    passes every test in which the order is the identity. Redundant on the catalogue, it stays since rows are compared
    where they were moved, bit for bit: the finding names the reorder, not a later token. A lossy cache is compared with
    a fresh one whose rows had that order from the start.
    """
    oracle = oracle_for(decoder, schedule)
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
        elif step.logits is not None:
            expect_logits(step, oracle.logits(step), oracle.said)
            if step.cache in reordered and step.past:
                saw("tokens after a reorder")
        before[step.cache] = step.snapshot()


@law(
    given=schedules(CropRows, Prefill, Reorder),
    needs=(Capability.CROP_ROWS, Capability.BATCH, Capability.LOSSLESS),
    must_see=("rows cropped to different lengths", "a row cropped to nothing", "tokens onto rows of different lengths"),
    builds_on=(EQUALITY,),
)
def test_a_crop_of_rows_equals_never_having_appended(decoder: Decoder, schedule: Schedule) -> None:
    """Each row keeps, bit for bit, as many of its tokens as it is told to, and goes on as if it had never had more.

    In batched speculation rows accept different numbers of tokens. One length for all is right only while they agree.
    Redundant on the catalogue, it stays since what is kept is compared at once, bit for bit, in the rows that were told
    to keep it.
    """
    uncached = Uncached(decoder, schedule)
    before, cropped = None, False
    for step in play(decoder, schedule):
        if isinstance(step.op, CropRows):
            old = schedule.contents[step.index - 1][step.cache].lengths
            layers = step.keys_values()
            for row, (length, kept) in enumerate(zip(old, step.op.lengths, strict=True)):
                if layers and before and kept:
                    want = first_rows(tokens_of(before, row, length), kept)
                    expect_keys_values(step, tokens_of(layers, row, kept), want, f"of row {row} before", SAME_BITS)
            if len(set(step.op.lengths)) > 1:
                saw("a row cropped to nothing" if 0 in step.op.lengths else "rows cropped to different lengths")
            cropped = True
        elif step.logits is not None:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            if cropped and step.content.ragged:
                saw("tokens onto rows of different lengths")
        before = step.snapshot()


@law(
    given=schedules(Refill, Prefill, CropRows, Crop),
    needs=(Capability.REFILL, Capability.BATCH, Capability.LOSSLESS),
    must_see=(
        "a new occupant shorter than the last",
        "a new occupant longer than every row",
        "tokens after a new occupant",
    ),
    builds_on=(EQUALITY,),
)
def test_a_new_occupant_of_a_row_meets_nothing_of_the_last(decoder: Decoder, schedule: Schedule) -> None:
    """A row that is given to another request is as fresh as a cache of its own, and the other rows do not notice.

    Continuous batching frees a slot and fills it again at every step. Where the last occupant was longer, its rows are
    still in memory, and only the mask hides them. Redundant on the catalogue, it stays since the neighbours are
    compared bit for bit when the row changes hands, before any of them goes on.
    """
    uncached = Uncached(decoder, schedule)
    before, refilled = None, False
    for step in play(decoder, schedule):
        if isinstance(step.op, Refill):
            old, taken = schedule.contents[step.index - 1][step.cache], step.op.row
            layers = step.keys_values()
            for row, length in enumerate(step.content.lengths):
                if layers and before and length and row != taken:
                    want = tokens_of(before, row, length)
                    expect_keys_values(step, tokens_of(layers, row, length), want, f"of row {row} before", SAME_BITS)
            new = len(step.op.tokens)
            if new < old.lengths[taken]:
                saw("a new occupant shorter than the last")
            if new > old.width:
                saw("a new occupant longer than every row")
            refilled = True
        if step.logits is not None:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            if refilled and step.new:
                saw("tokens after a new occupant")
        before = step.snapshot()
