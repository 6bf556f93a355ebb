"""A check that is about to run: its targets, what comes of the laws on them, and what they look like then."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvref.checking import Tick, check
from kvref.diagnosis.diagnose import Diagnosis, diagnose
from kvref.law import Law
from kvref.search import Effort, Outcome
from kvref.targets import Named, Target


class Trial(Protocol):
    """A check, wherever it runs."""

    @property
    def targets(self) -> Sequence[Named]:
        """What is checked."""
        ...

    def outcomes(self, tick: Tick) -> Iterator[Outcome]:
        """What comes of each law on each target, as it comes."""
        ...

    def diagnoses(self, outcomes: Sequence[Outcome]) -> list[Diagnosis]:
        """What each target that broke a law looks like."""
        ...


@dataclass(frozen=True)
class Here:
    """A check in this process."""

    targets: Sequence[Target]
    laws: Sequence[Law]
    effort: Effort
    max_time: float | None

    def outcomes(self, tick: Tick) -> Iterator[Outcome]:
        """What comes of each law on each target, as it comes."""
        return check(self.targets, self.laws, self.effort, self.max_time, tick)

    def diagnoses(self, outcomes: Sequence[Outcome]) -> list[Diagnosis]:
        """What each target that broke a law looks like."""
        return [said for target in self.targets if (said := diagnose(target, outcomes))]
