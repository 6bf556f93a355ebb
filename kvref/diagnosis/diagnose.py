"""From the outcomes of a check to a guess: the target is probed, and compared with every bug that is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.diagnosis.dictionary import dictionary
from kvref.diagnosis.ranking import BROKEN, LAW, LIKE, Guess, known, rank
from kvref.diagnosis.symptoms import RIGHT, SAID, signature
from kvref.finding import Finding
from kvref.matrix.record import record
from kvref.operations import count
from kvref.search import Outcome, Status
from kvref.targets import Target

SECONDS = 20.0
"""Time for the probes of one target. Those of a tiny decoder take about one."""

NAMED = 3
"""Bugs that are named."""


@dataclass(frozen=True)
class Diagnosis:
    """What a target that breaks laws looks like: all known bugs, the likest first, and how much that rests on."""

    target: str
    guesses: tuple[Guess, ...]
    probes: int
    laws: int

    @property
    def named(self) -> tuple[Guess, ...]:
        """The few that are worth naming; nothing where no bug is like it."""
        return tuple(guess for guess in self.guesses[:NAMED] if guess.score >= LIKE)

    @property
    def evidence(self) -> str:
        """What the guess rests on, in words."""
        return f"a guess by {count(self.probes, 'probe')} and {count(self.laws, 'law')}, 1 is alike in all"

    def __str__(self) -> str:
        if not self.named:
            nearest = self.guesses[0]
            return f"looks like none of the catalogue's bugs; nearest is {nearest.bug} with {nearest.score:.2f}"
        names = ", ".join(f"{guess.bug} {guess.score:.2f}" for guess in self.named)
        return f"looks like {names} ({self.evidence})"


def diagnose(target: Target, outcomes: Sequence[Outcome]) -> Diagnosis | None:
    """Say what a target looks like after a check.

    None where no law is broken that a finding was made of, and where rounding on purpose would look like a fault.
    """
    mine = [outcome for outcome in outcomes if outcome.target == target.name]
    finding = next((o.finding for o in mine if o.status is Status.BROKEN and o.finding), None)
    if finding is None or Capability.LOSSLESS not in target.capabilities():
        return None
    probed = signature(richest(target, finding), perf_counter() + SECONDS)
    return compared(target.name, probed, mine)


def compared(name: str, probed: Mapping[str, str], outcomes: Sequence[Outcome]) -> Diagnosis:
    """A diagnosis from what the probes and the laws said."""
    said = {o.law.name: o.status for o in outcomes if o.status in (Status.HELD, Status.BROKEN)}
    laws = {LAW + law: BROKEN if status is Status.BROKEN else RIGHT for law, status in said.items()}
    tried = {o.law.name: o.examples for o in outcomes if o.status is Status.HELD}
    bugs = known(dictionary(), record().kills, list(said), tried)
    probes = sum(not probe.endswith(SAID) for probe in probed)
    return Diagnosis(name, tuple(rank({**probed, **laws}, bugs)), probes, len(laws))


def richest(target: Target, finding: Finding) -> Decoder:
    """The decoder of a target in which most can go wrong, under the lens of a finding: layers, capabilities, room."""
    decoders = [decoder for decoder in target.decoders() if decoder.lens.dtype == finding.lens.dtype]
    most = max(decoders, key=lambda decoder: (decoder.depth, len(decoder.capabilities), decoder.block_size))
    return most.under(finding.lens)
