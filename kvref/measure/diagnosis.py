"""How often diagnosis names a fault: each is planted in a tiny model of transformers, checked, and diagnosed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from kvref.checking import check
from kvref.decoder import Decoder
from kvref.diagnosis.diagnose import diagnose
from kvref.diagnosis.ranking import place
from kvref.law import laws
from kvref.measure.planted import PLANTS
from kvref.search import Effort, Status
from kvref.targets.base import Bench, OneDecoder
from kvref.targets.hugging_face import LONGEST
from kvref.targets.tiny import tiny_model

MODELS = ("gpt2", "llama")


@dataclass(frozen=True)
class Placed:
    """What came of one fault. `place` is that of the right bug, from 1; of bugs that are as like, it is the last.

    None where no law was broken: the fault is not alive in this model, or what would show it is not offered.
    """

    model: str
    bug: str
    broken: int
    place: int | None = None
    score: float = 0.0
    first: str = ""
    probes: int = 0


def measure_diagnosis(models: Sequence[str], bugs: Sequence[str], examples: int, seed: int) -> Iterator[Placed]:
    """Check each fault in each model with so many examples a law, and find the place of its bug."""
    for model in models:
        for bug in bugs:
            yield placed(model, bug, Effort(examples, seed, shrink=False))


def silent(law: str, done: int) -> None:
    """Hear of progress, and do nothing."""


def placed(model: str, bug: str, effort: Effort) -> Placed:
    """Plant one fault, and diagnose it."""
    bench = Bench()
    implementation = PLANTS[bug](tiny_model(model, dtype=torch.float32))
    implementation.block_size = min(implementation.block_size, LONGEST)
    name = f"{model} with a fault"
    decoder = Decoder(implementation, name, bench.lens_for(torch.float32))
    target = OneDecoder(name, "", decoder, bench)
    outcomes = list(check([target], list(laws().values()), effort, None, silent))
    broken = sum(outcome.status is Status.BROKEN for outcome in outcomes)
    said = diagnose(target, outcomes)
    if said is None:
        return Placed(model, bug, broken)
    score = next(guess.score for guess in said.guesses if guess.bug == bug)
    return Placed(model, bug, broken, place(bug, said.guesses), score, said.guesses[0].bug, said.probes)
