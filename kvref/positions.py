"""How wrong the logits of each position are, for a plot: a schedule is played once more beside the uncached pass."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder
from kvref.lens import gaps
from kvref.schedule import Schedule
from kvref.trace import Step, Uncached, play


@dataclass(frozen=True)
class Error:
    """How far the logits that a step gave for a position of a row are from those of one uncached pass.

    `step` counts from 1, as in a printed schedule. `gap` is the largest difference over the largest logit there.
    """

    step: int
    row: int
    position: int
    gap: float


def errors_by_position(decoder: Decoder, schedule: Schedule) -> tuple[Error, ...]:
    """Errors of all logits that a schedule gives, step by step, up to where the decoder raises.

    A decoder whose uncached pass raises has none.
    """
    oracle, found = Uncached(decoder, schedule), list[Error]()
    try:
        for step in play(decoder, schedule):
            found += errors_of(step, oracle)
    except DecoderRaised:
        pass  # up to here is what there is to see
    return tuple(found)


def errors_of(step: Step, oracle: Uncached) -> Iterator[Error]:
    """Errors of the logits of a step; padding has none."""
    if step.logits is None:
        return
    sizes = gaps(step.logits, oracle.logits(step))
    for row, tokens in enumerate(step.answered):
        real = min(len(tokens), sizes.size(1))
        for behind in range(real, 0, -1):
            yield Error(step.index + 1, row, len(tokens) - behind, float(sizes[row, -behind]))
