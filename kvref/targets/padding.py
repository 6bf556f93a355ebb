"""Whether padding can be asked of a model at all: where it is wrong without a cache, no cache can be right."""

from collections.abc import Callable, Sequence

import torch

from kvref.errors import one_line
from kvref.lens import relative_gap
from kvref.protocol import Logits, Tokens

ROUNDING = 0.05
"""Share of the largest logit up to which padding counts as borne: bfloat16 rounds by less, a position counted wrongly
changes more."""


def padding_changes(
    full: Callable[[Tokens], Logits], padded: Callable[[Tokens, Sequence[int]], Logits], device: torch.device
) -> str:
    """Why padding cannot be asked of a model: without a cache it is wrong already; nothing where it is not.

    `padded` is an uncached pass over rows that have so many columns of padding on the left.
    """
    tokens = torch.arange(1, 4, device=device)[None]
    with torch.inference_mode():
        try:
            want = full(tokens)
        except Exception:
            return ""  # that is for the laws to say
        try:
            got = padded(torch.cat([tokens.new_zeros(1, 2), tokens], dim=1), [2])[:, 2:]
        except Exception as error:
            return f"without a cache padding raises {one_line(error)}"
    return "" if relative_gap(got, want) < ROUNDING else "without a cache padding makes its logits others too"
