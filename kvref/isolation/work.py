"""What is done in the process apart: a check, and the search for the step that ends it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.isolation.apart import Send
from kvref.law import Law, choose
from kvref.lens import Lens
from kvref.schedule import Schedule
from kvref.watch import seed_by, telling

if TYPE_CHECKING:
    from kvref.asked import Asked
    from kvref.case import Case
    from kvref.search import Effort, Outcome


@dataclass(frozen=True)
class Described:
    """A target as it is known in another process than its decoders: by name, command, and what it offers."""

    name: str
    command: str
    offers: frozenset[Capability]
    refuses: Mapping[Capability, str]

    def capabilities(self) -> frozenset[Capability]:
        """What any decoder of the target offers."""
        return self.offers

    def refusals(self) -> Mapping[Capability, str]:
        """Why its decoders offer no more."""
        return self.refuses


@dataclass(frozen=True)
class Built:
    """The targets are there; torch runs on so many threads."""

    targets: tuple[Described, ...]
    threads: int


@dataclass(frozen=True)
class Ticked:
    """What is being done, and how many examples of it were."""

    what: str
    examples: int


@dataclass(frozen=True)
class Trying:
    """A law is about to be tried on a schedule, which is the last that is heard of it if it ends the process."""

    examples: int
    decoder: str
    lens: Lens
    own: bool
    schedule: str


def tried(
    send: Send,
    asked: "Asked",
    laws: Sequence[str],
    effort: "Effort",
    max_time: float | None,
    before: "Sequence[Outcome]",
) -> None:
    """Check, behind what came before, and send each outcome; first what the targets are, and meanwhile what is tried.

    That the lens can claim its bits is proved by who starts this, once, and not in each process.
    """
    import torch

    from kvref.checking import check

    bench = asked.bench()
    targets = asked.targets(bench)
    described = [Described(t.name, t.command, t.capabilities(), dict(t.refusals())) for t in targets]
    send(Built(tuple(described), torch.get_num_threads()))
    lenses = {decoder.name: decoder.lens for target in targets for decoder in target.decoders()}

    def tell(_: Law, examples: int, decoder: Decoder, schedule: Schedule) -> None:
        own = lenses.get(decoder.name) == decoder.lens
        send(Trying(examples, decoder.name, decoder.lens, own, schedule.to_json()))

    token = telling.set(tell)
    try:
        for outcome in check(
            targets, choose(laws), effort, max_time, lambda what, done: send(Ticked(what, done)), before
        ):
            send(outcome)
    finally:
        telling.reset(token)


def diagnosed(send: Send, asked: "Asked", outcomes: "Sequence[Outcome]") -> None:
    """Send what each target that broke a law looks like."""
    from kvref.diagnosis.diagnose import diagnose

    for target in asked.targets(asked.bench()):
        if said := diagnose(target, outcomes):
            send(said)


def shortened(send: Send, case: "Case") -> None:
    """Try the law of a case on every beginning of its schedule, and say before each how many steps it has."""
    from kvref.replay import decoder_of, law_of

    law, decoder = law_of(case), decoder_of(case, prove=False)
    for steps in range(1, len(case.schedule) + 1):
        beginning = Schedule(case.schedule.ops[:steps])
        send(steps)
        seed_by(beginning)
        try:
            law.check(decoder, beginning)
        except Exception:
            continue  # a law may need more of the schedule than its beginning
