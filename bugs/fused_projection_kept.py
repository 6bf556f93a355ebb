"""Keys and values that are views of all that the projection gave."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache, NewRows, Rows


class FusedProjectionKept(GrowingCache):
    """The first call's rows are kept as they come, with the queries beside them."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        if layer in self.layers:
            return super().append(layer, keys, values)
        self.grown[layer] = keys, values  # reference: clones of these
        return self.grown[layer]


bug = Bug(
    FusedProjectionKept,
    family="aliasing",
    wrong="A prefill's keys and values are views of the fused projection, and keep all of it in memory.",
    trigger="a first call; only the memory shows it",
    witnesses=(
        "https://github.com/PriorLabs/TabPFN/pull/933",
        "https://github.com/Comfy-Org/ComfyUI/pull/15705",
    ),
    hint="Queries, keys and values come out of one matrix product. Who owns its result?",
)
