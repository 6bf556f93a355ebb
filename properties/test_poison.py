"""What was never written must not matter. Zeros hide that it does; poison shows it."""

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect_logits
from kvref.law import law, saw
from kvref.operations import Crop, CropRows, Poison, Prefill, Refill, Reorder, Reset
from kvref.schedule import Schedule
from kvref.strategies import schedules
from kvref.trace import Uncached, play


@law(
    given=schedules(Poison, Crop, Reorder, Reset, Prefill, CropRows, Refill),
    needs=(Capability.POISON, Capability.LOSSLESS),
    must_see=("one token after poison", "several tokens after poison"),
)
def test_free_slots_do_not_matter(decoder: Decoder, schedule: Schedule) -> None:
    """Whatever is in the free slots of a cache, huge numbers or NaN, the logits are those of an uncached pass.

    A key of zeros takes its share of the softmax in silence, and NaN times a weight of zero is NaN. Redundant on the
    catalogue, it stays since zeros in free slots hide what attends to them with a small weight; poison cannot be
    missed.
    """
    uncached = Uncached(decoder, schedule)
    poisoned = set[int]()
    for step in play(decoder, schedule):
        if isinstance(step.op, Poison):
            poisoned.add(step.cache)
        elif step.logits is not None:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            if step.cache in poisoned:
                saw("several tokens after poison" if step.new > 1 else "one token after poison")
