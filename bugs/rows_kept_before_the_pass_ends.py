"""Layers that become the past one by one."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import GrowingCache, NewRows, Rows


class RowsKeptBeforeThePassEnds(GrowingCache):
    """Each layer stores its new rows at once, so a pass that dies has changed the layers before that point."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        self.layers[layer] = super().append(layer, keys, values)  # reference: kept in grown until commit
        return self.layers[layer]


bug = Bug(
    RowsKeptBeforeThePassEnds,
    family="write",
    wrong="New rows are part of the past before the pass is over, even if it fails or is not to be kept.",
    trigger="a pass that fails in a layer behind the first, or whose tokens are not kept",
    witnesses=(
        "https://github.com/rajveer43/VeloxQuant-MLX/issues/370",
        "https://github.com/sgl-project/sglang/pull/28374",
    ),
    hint="Interrupt a pass in its second layer, and compare how many rows each layer has.",
)
