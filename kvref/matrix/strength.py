"""The strength of a check: how many bugs of the catalogue what it ran would kill, as it was measured."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kvref.matrix.gate import Kill
from kvref.matrix.record import Record
from kvref.operations import count
from kvref.search import Outcome, Status

NAMED = 5
"""Bugs that are named."""


@dataclass(frozen=True)
class Strength:
    """How many bugs some laws kill, which they do not, how that is known, and of which bugs it is not."""

    laws: int
    killed: int
    alive: tuple[str, ...]
    known: str
    unmeasured: tuple[str, ...] = ()

    def __str__(self) -> str:
        total = self.killed + len(self.alive)
        verb = "kills" if self.laws == 1 else "kill"
        return (
            f"strength: {count(self.laws, 'law')} {verb} {self.killed} of {total} catalogued bugs, {self.known}"
            f"{named('alive', self.alive)}{named('not measured yet', self.unmeasured)}"
        )


def named(what: str, bugs: Sequence[str]) -> str:
    """A few of some bugs by name, and how many more there are; nothing for none."""
    more = f" and {len(bugs) - NAMED} more" if len(bugs) > NAMED else ""
    return f"; {what}: {', '.join(bugs[:NAMED])}{more}" if bugs else ""


def strength_of(kills: Sequence[Kill], laws: int) -> Strength:
    """Count what has just been measured."""
    alive = tuple(kill.bug for kill in kills if kill.cell is None)
    return Strength(laws, len(kills) - len(alive), alive, "measured now")


def recorded_strength(outcomes: Sequence[Outcome], kept: Record, bugs: Collection[str]) -> Strength:
    """Look up what the laws that were tried kill in the reference, each with as many examples."""
    tried = dict[str, int]()
    for outcome in outcomes:
        name = outcome.law.name
        if outcome.status not in (Status.SKIPPED, Status.BLOCKED, Status.UNDECIDED, Status.RAISED):
            tried[name] = max(tried.get(name, 0), drawn(outcome))
    alive = kept.alive(tried)
    unmeasured = tuple(bug for bug in bugs if bug not in kept.kills)
    return Strength(len(tried), len(kept.kills) - len(alive), tuple(alive), known(kept, tried), unmeasured)


def drawn(outcome: Outcome) -> int:
    """Examples of a search, with those that it would have drawn had nothing been found."""
    return outcome.asked if outcome.finding else min(outcome.examples, outcome.asked)


def known(kept: Record, tried: Mapping[str, int]) -> str:
    """How the figure is known."""
    most = min(max(tried.values(), default=0), kept.examples)
    return f"measured in the reference with {kept.versions}, seed {kept.seed}, up to {count(most, 'example')}"
