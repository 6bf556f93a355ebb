"""Where a cache first went wrong: its keys and values against those of one prefill over the same tokens."""

from dataclasses import replace
from itertools import islice

from kvref.answers import DecoderRaised
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import LawBroken, expect_keys_values
from kvref.operations import Row
from kvref.schedule import Schedule
from kvref.trace import FirstLayers, Step, play, prefilled, tokens_of

KEPT = "the keys and values are those of one prefill, so it is how they are read that goes wrong"
"""What is said where no key or value is wrong."""


def locate(decoder: Decoder, schedule: Schedule, index: int | None) -> str | None:
    """Say which keys or values are the first wrong ones up to a step, or that none is.

    None where the decoder does not show its keys and values, the step has no cache to look at, or a row has padding
    before the first wrong ones are found, for one prefill has none.
    """
    if index is None or Capability.KEYS_VALUES not in decoder.capabilities:
        return None
    try:
        for step in islice(play(decoder, schedule), index + 1):
            layers = step.keys_values()
            if layers and step.content.ragged:
                return None
            if layers:
                for row, tokens in enumerate(step.content.rows):
                    compare(step, row, tokens, tokens_of(layers, row, len(tokens)))
    except LawBroken as error:
        return str(error.divergence)
    except DecoderRaised:
        return None
    return KEPT


def compare(step: Step, row: int, tokens: Row, layers: FirstLayers) -> None:
    """Raise `LawBroken` where the keys and values of one row are not those of a prefill of it."""
    if not tokens:
        return
    try:
        want = prefilled(step.decoder, [tokens])
        expect_keys_values(step, layers, want, "of one prefill", step.decoder.lens)
    except LawBroken as error:
        raise LawBroken(replace(error.divergence, row=row)) from None
