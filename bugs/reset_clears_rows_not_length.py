"""A reset that wipes the buffers and forgets the counter."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class ResetClearsRowsNotLength(StaticCache):
    """The rows of the last request are zeros now, and still counted."""

    @override
    def reset(self) -> None:
        self.padding = None
        for slots in (self.keys, self.values):
            slots.zero_()  # reference: length = 0, and the slots may stay


bug = Bug(
    ResetClearsRowsNotLength,
    family="lifetime",
    wrong="After a reset the next request finds as many tokens of zeros as the last one had.",
    trigger="a second request",
    witnesses=(
        "https://github.com/tenstorrent/tt-metal/pull/40970",
        "https://github.com/rasbt/LLMs-from-scratch/pull/925",
        "https://github.com/neuralmagic/deepsparse/pull/1224",
    ),
    hint="What does a cache consist of besides its tensors?",
)
