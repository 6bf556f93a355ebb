"""A write that is queued, and done when the next call comes."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import NewRows, Rows, StaticCache


class WriteWaitsForTheNextCall(StaticCache):
    """Right while calls follow each other; a fork, a save or a reorder in between misses the last tokens."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        queue = vars(self).setdefault("queue", {})
        for slots, start, rows in queue.get(layer, ()):
            slots[layer, :, :, start : start + rows.size(2)] = rows
        queue[layer] = (self.keys, self.length, keys), (self.values, self.length, values)  # reference: written now
        past_keys, past_values = self.keys_values(layer)
        return torch.cat([past_keys, keys], dim=2), torch.cat([past_values, values], dim=2)


bug = Bug(
    WriteWaitsForTheNextCall,
    family="aliasing",
    wrong="The rows of a call reach the cache only with the next call, and nobody else waits for them.",
    trigger="a fork, save, reorder or crop right after tokens",
    witnesses=(
        "https://github.com/vllm-project/vllm/issues/45704",
        "https://github.com/vllm-project/vllm/pull/50696",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/15546",
    ),
    hint="Look into the cache right after a call. Are all its tokens there?",
)
