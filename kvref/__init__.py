"""kvref tells whether a KV cache gives the logits that no cache gives, and if not, where and why.

The names below are the library; they are imported when first used, so that `import kvref` does not import torch. What
has the name of its module, as `kvref.law.law` and `kvref.search.search`, is imported from there.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvref.api import Result, check
    from kvref.bug import Bug, catalogue
    from kvref.cache import Cache, GrowingCache, StaticCache
    from kvref.capability import Capability
    from kvref.config import SIZES, GPTConfig
    from kvref.decoder import Decoder
    from kvref.errors import NotInterceptable, RangeExceeded
    from kvref.exactness import exact
    from kvref.finding import Divergence, Finding, LawBroken
    from kvref.gpt2 import GPT
    from kvref.law import Law, laws, saw
    from kvref.lens import Lens
    from kvref.schedule import Schedule
    from kvref.search import Effort, Outcome, Status
    from kvref.targets import Bench, Target
    from kvref.trace import Trace, play, run
    from kvref.verdict import Evidence, Kind, Verdict, decide

__version__ = version("kvref")

_HOMES = {
    "kvref.api": ("Result", "check"),
    "kvref.bug": ("Bug", "catalogue"),
    "kvref.cache": ("Cache", "GrowingCache", "StaticCache"),
    "kvref.capability": ("Capability",),
    "kvref.decoder": ("Decoder",),
    "kvref.errors": ("NotInterceptable", "RangeExceeded"),
    "kvref.exactness": ("exact",),
    "kvref.finding": ("Divergence", "Finding", "LawBroken"),
    "kvref.config": ("SIZES", "GPTConfig"),
    "kvref.gpt2": ("GPT",),
    "kvref.law": ("Law", "laws", "saw"),
    "kvref.schedule": ("Schedule",),
    "kvref.search": ("Effort", "Outcome", "Status"),
    "kvref.targets": ("Bench", "Target"),
    "kvref.trace": ("Trace", "play", "run"),
    "kvref.lens": ("Lens",),
    "kvref.verdict": ("Evidence", "Kind", "Verdict", "decide"),
}

__all__ = [
    "GPT",
    "SIZES",
    "Bench",
    "Bug",
    "Cache",
    "Capability",
    "Decoder",
    "Divergence",
    "Effort",
    "Evidence",
    "Finding",
    "GPTConfig",
    "GrowingCache",
    "Kind",
    "Law",
    "LawBroken",
    "Lens",
    "NotInterceptable",
    "Outcome",
    "RangeExceeded",
    "Result",
    "Schedule",
    "StaticCache",
    "Status",
    "Target",
    "Trace",
    "Verdict",
    "__version__",
    "catalogue",
    "check",
    "decide",
    "exact",
    "laws",
    "play",
    "run",
    "saw",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'kvref' has no attribute {name!r}")
