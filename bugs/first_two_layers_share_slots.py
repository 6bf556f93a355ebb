"""Layers counted from one, in slots counted from zero."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import NewRows, Rows, StaticCache


class FirstTwoLayersShareSlots(StaticCache):
    """The second layer writes over what the first has written."""

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        slot = max(layer - 1, 0)  # reference: layer
        return super().append(slot, keys, values)


bug = Bug(
    FirstTwoLayersShareSlots,
    family="write",
    wrong="The first two layers use the same slots, so the first finds the second's keys and values in its past.",
    trigger="any token onto a past, with two layers or more",
    witnesses=(
        "https://github.com/EricLBuehler/mistral.rs/pull/300",
        "https://github.com/dingodb/DingoCache/pull/116",
        "https://github.com/invergent-ai/surogate/issues/115",
    ),
    hint="With one layer all is well. Ask each layer of a larger model for its keys.",
)
