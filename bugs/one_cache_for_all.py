"""A cache that belongs to the model, and not to the request."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache
from kvref.targets.reference import GrowingDecoder


class OneCacheForAll(GrowingDecoder):
    """Whoever starts gets the same cache, and empties it for the others."""

    @override
    def start(self, batch: int, capacity: int | None) -> Cache:
        ours: Cache = vars(self).setdefault("ours", self.cache_class())
        ours.reset()
        return ours  # reference: a new one each time


bug = Bug(
    OneCacheForAll,
    family="aliasing",
    wrong="All requests share one cache, which each of them empties when it starts.",
    trigger="a second request beside the first one",
    witnesses=(
        "https://github.com/quantumaikr/quant.cpp/pull/49",
        "https://github.com/DenisovAV/flutter_gemma/issues/308",
        "https://github.com/madroidmaq/mlx-omni-server/issues/108",
    ),
    hint="Two people talk to the model in turns. Where is what the first one said?",
)
