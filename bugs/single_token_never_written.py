"""A fast path for one token that does not store what it makes."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import NewRows, Rows, StaticCache


class SingleTokenNeverWritten(StaticCache):
    """The step itself is right, and counted; its slot stays empty for those that follow."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        if keys.size(2) > 1:
            return super().append(layer, keys, values)
        past_keys, past_values = self.keys_values(layer)
        return torch.cat([past_keys, keys], dim=2), torch.cat([past_values, values], dim=2)  # reference: written too


bug = Bug(
    SingleTokenNeverWritten,
    family="write",
    wrong="The keys and values of a single token are attended to and counted, and never written into the cache.",
    trigger="any call after a single token",
    witnesses=(
        "https://github.com/ggml-org/llama.cpp/pull/11445",
        "https://github.com/huggingface/transformers/pull/46572",
        "https://github.com/huggingface/transformers/pull/30108",
    ),
    hint="The first decoded token is right and the second is wrong. What did the second read of the first?",
)
