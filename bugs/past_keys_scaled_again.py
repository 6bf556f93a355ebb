"""A transformation of keys that is done at every read."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache, NewRows, Rows


class PastKeysScaledAgain(GrowingCache):
    """Attention scales scores by itself; here past keys are scaled too, and stored so."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        past = keys[:, :, : self.length] * keys.size(-1) ** -0.5  # reference: as they are
        self.grown[layer] = torch.cat([past, keys[:, :, self.length :]], dim=2), values
        return self.grown[layer]


bug = Bug(
    PastKeysScaledAgain,
    family="numerics",
    wrong="Keys of the past are scaled once more in every call, and kept so.",
    trigger="any token onto a past",
    witnesses=(
        "https://github.com/google-deepmind/gemma/pull/392",
        "https://github.com/google-deepmind/gemma/issues/368",
    ),
    hint="Compare the key of the first token after each call.",
)
