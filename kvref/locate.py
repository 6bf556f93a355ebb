"""Where a cache first went wrong: its keys and values against those of one prefill over the same tokens."""

from itertools import islice

from kvref.decoder import Capability, Decoder, DecoderRaised
from kvref.finding import LawBroken, expect_keys_values
from kvref.schedule import Schedule
from kvref.trace import play, prefilled


def locate(decoder: Decoder, schedule: Schedule, index: int | None) -> str | None:
    """Say which keys or values are the first wrong ones up to a step, or that none is.

    None where the decoder does not show its keys and values, or the step has no cache to look at.
    """
    if index is None or Capability.KEYS_VALUES not in decoder.capabilities:
        return None
    try:
        for step in islice(play(decoder, schedule), index + 1):
            if layers := step.keys_values():
                expect_keys_values(step, layers, prefilled(step), "of one prefill", decoder.lens)
    except LawBroken as error:
        return str(error.divergence)
    except DecoderRaised:
        return None
    return "the keys and values are those of one prefill, so it is how they are read that goes wrong"
