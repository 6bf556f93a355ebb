"""Where the tokens of a call stand, and what they see: both change with the past, and both are often got wrong."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from kvref.cache import Padding
from kvref.config import GPTConfig
from kvref.errors import ContextOverflow

Mask = Bool[Tensor, "*batch new total"]
"""Which of the `total` = past + new keys each new token sees. Where rows have padding, shape (batch, 1, new, total)."""


class PositionsAndMasks(nn.Module):
    """Positions and masks of `new` tokens that come onto `past` columns in the cache."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.parameters()).device

    def require_positions(self, past: int, new: int) -> None:
        """Refuse tokens that no position is left for; were they clamped to the last one, nobody would notice.

        Padding counts here, for the cache has room for it as for tokens. Raises `ContextOverflow`.
        """
        if not 1 <= new <= self.config.block_size - past:
            raise ContextOverflow(
                f"{new} new tokens onto {past} cached ones; this model takes at least 1 new token and "
                f"{self.config.block_size} in all: give fewer, or crop or reset the cache"
            )

    def position_ids(self, past: int, new: int, padding: Padding | None = None) -> Int[Tensor, "*batch new"]:
        """Go on where the past ends, not from 0 again. Padding does not count: each row's first token is at 0."""
        columns = torch.arange(past, past + new, device=self.device)
        return columns if padding is None else (columns - padding[:, None]).clamp(min=0)

    def attention_mask(self, past: int, new: int, padding: Padding | None) -> Mask | None:
        """Visible is what is causal and not padding; None: all is.

        Padding itself sees nothing; scaled_dot_product_attention gives zeros for it since torch 2.5 (NaN before).
        """
        causal = self.causal_mask(past, new)
        if padding is None:
            return causal
        real = self.padding_mask(past + new, padding)
        return real if causal is None else causal & real

    def causal_mask(self, past: int, new: int) -> Bool[Tensor, "new total"] | None:
        """Each new token sees the past and the new ones up to itself: two onto a past of two, `1110` and `1111`.

        `is_causal=True` is wrong onto a past: its triangle stands at the upper left, `1000` and `1100`
        (pytorch/pytorch#108108). A single token sees all, and needs no mask.
        """
        if new == 1:
            return None
        visible = torch.ones(new, past + new, dtype=torch.bool, device=self.device)
        return visible.tril(diagonal=past)

    def padding_mask(self, total: int, padding: Padding) -> Bool[Tensor, "batch 1 1 total"]:
        """Hide padding from all heads and new tokens, in every call, since its keys stay cached."""
        columns = torch.arange(total, device=padding.device)
        return (columns >= padding[:, None])[:, None, None]
