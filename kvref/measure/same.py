"""Equal first: what is timed is compared with an uncached pass, or there is nothing to compare its time with."""

import torch

from kvref.answers import DecoderRaised, OutOfReach
from kvref.decoder import Decoder
from kvref.errors import BadInput
from kvref.finding import LawBroken
from kvref.judge import native_bound, noise
from kvref.law import EQUALITY, law_called
from kvref.lens import NATIVE, Lens
from kvref.operations import Extend, Start
from kvref.schedule import Schedule
from kvref.verdict import NOISES

CALLS = (9, 1, 1, 1, 1)
"""Tokens in each call of the schedule that is tried: a prefill and single tokens, which is what is timed."""

LARGE = 2**32
"""Bytes of weights from which on the exact lens, which makes its own copy of each, is not tried."""


def require_same(decoder: Decoder, batch: int, weight_bytes: int | None) -> str:
    """Say by which numerics cached logits are those of an uncached pass, the strictest first.

    Raises `BadInput` where they are not by any, or where the decoder raises.
    """
    schedule = schedule_for(decoder, batch)
    small = (weight_bytes or 0) < LARGE and decoder.outside is None
    for kind in ("tile", "promoted", "native") if small else ("native",):
        try:
            with torch.inference_mode():
                seen = under(decoder, kind)
                law_called(EQUALITY).check(seen, schedule)
        except OutOfReach:
            continue
        except DecoderRaised as error:
            raise BadInput(f"{decoder.name} cannot be timed: {str(error).splitlines()[0]}") from None
        except LawBroken as error:
            if kind == "tile":
                continue  # by rounding or by the order of keys, perhaps, which float64 makes vanish
            said = str(error).splitlines()[0]
            raise BadInput(f"{decoder.name} gives other logits with its cache than without: {said}") from None
        return "the same bits (tile)" if seen.lens.exact else f"equal within {seen.lens.bound:.1g} ({kind})"
    raise BadInput(f"{decoder.name} cannot be timed: no numerics were found to compare it under")


def under(decoder: Decoder, kind: str) -> Decoder:
    """The decoder under a lens; where that is not exact, with a bound by the decoder's own noise without a cache."""
    seen = decoder.under(Lens(kind, decoder.lens.dtype))
    if kind == "promoted":
        return seen.under(Lens(kind, decoder.lens.dtype, max(NATIVE.bound, NOISES * noise(seen))))
    return seen.under(Lens(kind, decoder.lens.dtype, native_bound(seen))) if kind == "native" else seen


def schedule_for(decoder: Decoder, batch: int) -> Schedule:
    """Calls of a few tokens, as many as the context has room for, each row with tokens of its own."""
    ops, past = [Start(batch)], 0
    extends = list[Extend]()
    for new in CALLS:
        if past + new <= decoder.block_size:
            rows = tuple(
                tuple((7 * row + 5 * at) % decoder.vocab_size for at in range(past, past + new)) for row in range(batch)
            )
            extends.append(Extend(rows))
            past += new
    return Schedule((*ops, *extends))
