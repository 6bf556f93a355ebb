"""The check for Python: what the command line does, for a notebook or a test of one's own."""

import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kvref.asked import Asked
from kvref.checking import check as check_laws
from kvref.checking import exit_code
from kvref.diagnosis.diagnose import Diagnosis, diagnose
from kvref.errors import BadInput
from kvref.finding import Finding
from kvref.law import choose
from kvref.profile import effort_for
from kvref.search import Outcome
from kvref.targets import Bench, OneDecoder, Target
from kvref.targets.module import decoder_of
from kvref.targets.resolve import from_object, made_by


@dataclass(frozen=True)
class Result:
    """What came of a check: an outcome for each law on each target, and what those look like that break any."""

    outcomes: tuple[Outcome, ...]
    diagnoses: tuple[Diagnosis, ...] = ()

    @property
    def exit_code(self) -> int:
        """The one that `kvref check` ends with, where nothing is expected: 0 all hold, 1 finding, 4 inconclusive."""
        return exit_code(self.outcomes)

    @property
    def held(self) -> bool:
        """Whether every law that could be tried held, and one could."""
        return self.exit_code == 0

    @property
    def findings(self) -> list[Finding]:
        """What was found, the smallest schedule for each law that is broken."""
        return [outcome.finding for outcome in self.outcomes if outcome.finding]

    def require(self) -> None:
        """Raise `AssertionError` with every finding, and with what was left undecided, unless all held."""
        if not self.held:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        """A line for each law, then the findings."""
        lines = [
            f"{outcome.status:9} {outcome.law.name}" + (f"  ({outcome.reason})" if outcome.reason else "")
            for outcome in self.outcomes
            if not outcome.finding
        ]
        guesses = [f"{said.target} {said}" for said in self.diagnoses]
        return "\n\n".join(["\n".join(lines), *map(str, self.findings), *guesses]).strip()

    __repr__ = __str__


def check(
    target: object,
    *,
    laws: Sequence[str] = (),
    lens: str = "tile",
    device: str = "auto",
    dtype: str | None = None,
    profile: str | None = None,
    examples: int | None = None,
    seed: int | None = None,
    max_time: float | None = None,
    tick: Callable[[str, int], None] = lambda _law, _examples: None,
) -> Result:
    """Try every law, or those that are named, on a target, and give what came of it.

    `target` is what `kvref check` takes, a factory of a decoder, or a decoder: an `nn.Module` of the form
    `(tokens, cache=None) -> (logits, cache)`, or an object with the protocol's methods. `profile` is quick, ci or deep;
    `examples` and `seed` go before what it says. `max_time` is in seconds, for all laws together. `tick` is called with
    a law and a number of examples while they are tried. Raises `BadInput` for what cannot be tried, and `NotExact`
    where the lens cannot claim its bits on this machine.

        result = kvref.check(make_decoder, laws=["crop-equals-never-having-appended"])
        result.require()
    """
    if max_time is not None and not max_time > 0:
        raise BadInput(f"some time is needed, not {max_time} s")
    effort = effort_for(profile, examples, seed)
    named = target if isinstance(target, str) else None
    asked = Asked(named, device=device, lens=lens, dtype=() if dtype is None else (dtype,))
    threads = torch.get_num_threads()
    try:
        bench = asked.bench()
        targets = [of_object(target, bench)] if named is None else asked.targets(bench)
        asked.require_lens(bench)
        outcomes = tuple(check_laws(targets, choose(laws), effort, max_time, tick))
        return Result(outcomes, tuple(said for one in targets if (said := diagnose(one, outcomes))))
    finally:
        torch.set_num_threads(threads)


def of_object(target: object, bench: Bench) -> Target:
    """A target from a factory, a class or a decoder. A module is copied, and the caller's own left as it is."""
    owner: Any = target if hasattr(target, "__qualname__") else type(target)
    name = f"{owner.__module__}:{owner.__qualname__}"
    if target is not None and found_again(owner.__module__, owner.__qualname__) is target:
        return from_object(target, name, bench, None)
    made: Any = deepcopy(target) if isinstance(target, nn.Module) else target
    if not isinstance(target, nn.Module) and not hasattr(target, "step"):
        if not callable(made):
            raise BadInput(f"{target!r:.60} is no target: give a string, a factory of decoders, or a decoder")
        made = made_by(made)
    decoder = decoder_of(made, name, bench)
    bench.sources(decoder)  # raises now for what does not fit
    return OneDecoder(name, "", decoder, bench)


def found_again(module: str, name: str) -> object:
    """What a command line finds under a name; None where that is nothing."""
    if module == "__main__" or "." in name:
        return None
    return getattr(sys.modules.get(module), name, None)
