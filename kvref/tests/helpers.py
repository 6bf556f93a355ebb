"""What several tests need."""

import torch

from kvref.bug import catalogue
from kvref.config import GPTConfig
from kvref.gpt2 import GPT
from kvref.law import laws
from kvref.search import Effort, Outcome, search
from kvref.targets import Bench, ReferenceTarget
from kvref.targets.reference import Part, kind_of
from kvref.weights import loud

BENCH = Bench()
TINY = GPTConfig(block_size=8, vocab_size=7, n_layer=2, n_head=2, n_embd=8)


def tiny(seed: int = 0, config: GPTConfig = TINY) -> GPT:
    """A small loud model in float64."""
    return loud(config, seed, torch.float64)


def variant(part: Part, kind: str | None = None) -> ReferenceTarget:
    """The reference with one of its classes replaced."""
    kind = kind_of(part, kind, part.__name__)
    return ReferenceTarget(f"{part.__name__}:{kind}", kind, BENCH, part)


def reference(kind: str = "growing") -> ReferenceTarget:
    """The healthy reference."""
    return ReferenceTarget(f"reference:{kind}", kind, BENCH)


def try_law(name: str, target: ReferenceTarget | str, effort: Effort | None = None) -> Outcome:
    """Search for a schedule that breaks a law; a string is a bug of the catalogue."""
    if isinstance(target, str):
        target = catalogue()[target].target(BENCH)
    return search(laws()[name], target, effort or Effort(shrink=False))
