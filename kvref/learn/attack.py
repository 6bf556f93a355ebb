"""Attack: a bug of the student's own against all laws. One that survives and is alive is a gap in kvref."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvref.answers import DecoderRaised
from kvref.asked import Asked
from kvref.decoder import Decoder
from kvref.errors import STOPPED, BadInput
from kvref.explore import Explorer
from kvref.law import Law, law_called, laws
from kvref.learn.judge import same_model
from kvref.said import Say
from kvref.schedule import Schedule
from kvref.search import FAULTS, Effort, Status, search
from kvref.targets import Bench, ReferenceTarget
from kvref.trace import Step, play

PLAYED = (
    "no-operation-makes-logits-differ-from-uncached-ones",
    "each-row-of-a-batch-generates-what-it-generates-alone",
)
"""Laws whose schedules are played to see whether a survivor is alive: of every operation, and of ragged batches."""

CAUGHT, GAP, INCONCLUSIVE = 0, 1, STOPPED
"""Exit codes: a law catches it; none does, and it is alive; none does, and nothing that it does differs."""


@dataclass
class Twins:
    """Plays schedules on an attacker and on the healthy reference of the same shape and weights, side by side."""

    law: Law
    healthy: dict[str, Decoder]
    repeats: bool = True
    played: int = 0
    differing: Schedule | None = None
    another_model: list[str] = field(default_factory=list[str])

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Play a schedule on both, and note if they differ."""
        self.played += 1
        twin = self.healthy[decoder.name]
        if not same_model(decoder, twin):
            self.another_model.append(decoder.name)
        if self.differing is None and any(
            a != b for a, b in zip(told(decoder, schedule), told(twin, schedule), strict=False)
        ):
            self.differing = schedule


def told(decoder: Decoder, schedule: Schedule) -> Iterator[tuple[object, ...]]:
    """All that can be seen of a schedule, step by step: logits, lengths, keys and values."""
    try:
        for step in play(decoder, schedule):
            yield step.index, bits(step), decoder.lengths(step.handle), decoder.bytes(step.handle)
    except DecoderRaised as error:
        yield str(error).split(" raised ")[0], "raised"


def bits(step: Step) -> list[bytes]:
    """Logits, keys and values of a step, by their bits."""
    kept = [part for pair in step.keys_values() or [] for part in pair]
    tensors = ([] if step.logits is None else [step.logits]) + kept
    return [tensor.contiguous().numpy().tobytes() for tensor in tensors]


def attack(name: str, examples: int, say: Say) -> int:
    """Try all laws on a class derived from the reference's, and if none catches it, see whether it is alive.

    Raises `BadInput` for another target: only such a class has a healthy twin.
    """
    asked = Asked(name, dtype=("float32",))
    bench = asked.bench()
    targets = asked.targets(bench)
    asked.require_lens(bench)
    for target in targets:
        if not isinstance(target, ReferenceTarget) or target.part is None:
            raise BadInput(
                f"{name} is no class derived from the reference's; derive from GPT, or from one of its caches"
            )
        if caught(target, examples, say):
            return CAUGHT
    codes = [survived(target, examples, bench, say) for target in targets if isinstance(target, ReferenceTarget)]
    return GAP if GAP in codes else INCONCLUSIVE


def caught(target: ReferenceTarget, examples: int, say: Say) -> bool:
    """Whether a law is broken by it; the first one is said, with its schedule."""
    for law in laws().values():
        outcome = search(law, target, Effort(examples=examples))
        if outcome.status in FAULTS and outcome.finding:
            say(f"caught: {outcome.finding}")
            return True
        if outcome.status is Status.HELD:
            say(f"held    {outcome.law.name}")
    return False


def survived(target: ReferenceTarget, examples: int, bench: Bench, say: Say) -> int:
    """Say of a survivor whether anything that it does differs from the reference."""
    reference = ReferenceTarget("reference", target.kind, bench)
    healthy = {mine.name: twin for mine, twin in zip(target.decoders(), reference.decoders(), strict=True)}
    played = 0
    for name in PLAYED:
        twins = Twins(law_called(name), healthy)
        Explorer(twins.law, target).explore(twins, examples, 0)
        played += twins.played
        if twins.another_model:
            say(f"{target.name} survives, as another model: its uncached pass differs, so no cache is wrong")
            return INCONCLUSIVE
        if twins.differing is not None:
            for line in (
                f"{target.name} SURVIVES and is alive: it differs from the reference on",
                str(twins.differing),
                REPORT,
            ):
                say(line)
            return GAP
    say(f"{target.name} survives, and nothing differs from the reference on {played} schedules: is it a bug?")
    return INCONCLUSIVE


REPORT = (
    "This is a gap in kvref. Please report it: open an issue with the file, this schedule, and what you call wrong. "
    "A law that states it in general is most welcome."
)
"""What is said of a gap."""
