"""The check for Python: what the command line does, for a notebook or a test of one's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from kvref.asked import Asked
from kvref.checking import check as check_laws
from kvref.checking import exit_code
from kvref.exactness import MODES
from kvref.exactness.selftest import require
from kvref.finding import Finding
from kvref.law import choose
from kvref.search import Effort, Outcome
from kvref.targets import Bench, OneDecoder, Target
from kvref.targets.module import decoder_of
from kvref.targets.resolve import from_object


@dataclass(frozen=True)
class Result:
    """What came of a check: an outcome for each law on each target."""

    outcomes: tuple[Outcome, ...]

    @property
    def exit_code(self) -> int:
        """The one that `kvref check` ends with: 0 all hold, 1 finding, 4 inconclusive."""
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
        return "\n\n".join(["\n".join(lines), *map(str, self.findings)]).strip()

    __repr__ = __str__


def check(
    target: object,
    *,
    laws: Sequence[str] = (),
    lens: str = "tile",
    device: str = "auto",
    dtype: str | None = None,
    examples: int = Effort.examples,
    seed: int = 0,
    max_time: float | None = None,
    tick: Callable[[str, int], None] = lambda _law, _examples: None,
) -> Result:
    """Try every law, or those that are named, on a target, and give what came of it.

    `target` is what `kvref check` takes, a factory of a decoder, or a decoder: an `nn.Module` of the form
    `(tokens, cache=None) -> (logits, cache)`, or an object with the protocol's methods. `max_time` is in seconds, for
    all laws together. `tick` is called with a law and a number of examples while they are tried. Raises `BadInput` for
    what cannot be tried, and `NotExact` where the lens cannot claim its bits on this machine.

        result = kvref.check(make_decoder, laws=["crop-equals-never-having-appended"])
        result.require()
    """
    asked = Asked(target=target if isinstance(target, str) else None, device=device, lens=lens, dtype=dtypes(dtype))
    bench = asked.bench()
    targets = asked.targets(bench) if isinstance(target, str) else [of_object(target, bench)]
    if lens in MODES:
        require(lens, bench.device)
    return Result(tuple(check_laws(targets, choose(laws), Effort(examples, seed), max_time, tick)))


def dtypes(dtype: str | None) -> tuple[str, ...]:
    """The dtype that is asked for, if one is."""
    return () if dtype is None else (dtype,)


def of_object(target: object, bench: Bench) -> Target:
    """A target from a factory, a class or a decoder, by the name under which it can be found again, if it has one."""
    owner: Any = target if hasattr(target, "__qualname__") else type(target)
    name = f"{owner.__module__}:{owner.__qualname__}"
    if isinstance(target, nn.Module) or (hasattr(target, "step") and not isinstance(target, type)):
        decoder = decoder_of(target, name, bench)
        bench.sources(decoder)  # raises now for what does not fit
        return OneDecoder(name, name + bench.flags, decoder, bench)
    return from_object(target, name, bench, None)
