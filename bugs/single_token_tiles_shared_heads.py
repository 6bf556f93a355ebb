"""A fast path for one token that repeats heads in another order."""

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache
from kvref.gpt2 import CausalSelfAttention


class SingleTokenTilesSharedHeads(CausalSelfAttention):
    """Prompts are right; a decoding step pairs query heads with keys of another group."""

    @override
    def forward(self, x: Tensor, mask: Tensor | None, cache: Cache, layer: int) -> Tensor:
        q, k, v = (self.split_heads(part) for part in self.c_attn(x).split(self.widths, dim=-1))
        k, v = cache.append(layer, k, v)
        order = torch.arange(self.n_head, device=x.device) % k.size(1)
        tiled = q.size(2) == 1  # reference: never
        k, v = (part[:, order] if tiled else self.repeat_heads(part) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(self.merge_heads(y))


bug = Bug(
    SingleTokenTilesSharedHeads,
    family="layout",
    wrong="In a decoding step query heads look at the keys and values of another group.",
    trigger="a single token, with more than one head of keys and values and more query heads than that",
    witnesses=(
        "https://github.com/apple/axlearn/pull/842",
        "https://github.com/EricLBuehler/candle-vllm/pull/52",
    ),
    hint="Four query heads share two heads of keys. Which query heads belong to the first?",
)
