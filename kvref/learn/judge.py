"""Judging a repair: the student's class under the laws, those first that the bug is known to break."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from kvref.bug import Bug
from kvref.decoder import Decoder
from kvref.errors import BadInput
from kvref.law import EQUALITY, Law, laws
from kvref.learn.course import TELLING
from kvref.learn.repair import CLASS, Method
from kvref.learn.rules import require_own, require_repair
from kvref.matrix.record import record
from kvref.search import FAULTS, Effort, Outcome, Status, search
from kvref.targets import Bench, ReferenceTarget, Target
from kvref.targets.reference import kind_of
from kvref.targets.resolve import load

KILLERS = 3
"""Laws that are known to break on the bug soonest, which are tried first and with most schedules."""

BEYOND = 5
"""Schedules that are tried of such a law behind the one that broke it when it was measured."""

FEW = 2
"""Schedules for every other law: a repair that breaks something else is to be seen, and the student is waiting."""


@dataclass(frozen=True)
class Verdict:
    """What came of a repair: `broken` is the first law that does not hold, None where all that was tried held.

    Laws compare a class with itself, with a cache and without. So `unlike` says where it is not the reference though it
    may hold to them all: it does less, or is another model. It is empty where it is the same.
    """

    target: Target
    tried: tuple[Outcome, ...]
    unlike: str
    seconds: float

    @property
    def broken(self) -> Outcome | None:
        """The first law that is broken, or on which the class raises."""
        return next((outcome for outcome in self.tried if outcome.status in FAULTS), None)

    @property
    def solved(self) -> bool:
        """Whether everything holds, and something was tried."""
        return self.broken is None and not self.unlike and bool(self.held)

    @property
    def held(self) -> int:
        """Laws that hold."""
        return sum(outcome.status is Status.HELD for outcome in self.tried)

    @property
    def schedules(self) -> int:
        """Schedules that were tried."""
        return sum(outcome.examples for outcome in self.tried)


def judge(path: Path, bug: Bug) -> Verdict:
    """Try the class in a file under every law, and stop at the first that is broken.

    Raises `BadInput`, with one line for the student, for a file that cannot be tried.
    """
    torch.set_num_threads(1)
    begun = perf_counter()
    part = class_in(path, bug)
    kind, bench = kind_of(part, None, CLASS), Bench(dtypes=(torch.float32,))
    target, tried = ReferenceTarget("yours", kind, bench, part), list[Outcome]()
    for law, examples in plan(bug):
        tried.append(search(law, target, Effort(examples=examples, profile="")))
        if tried[-1].status in FAULTS:
            return Verdict(target, tuple(tried), "", perf_counter() - begun)
    unlike = difference(target, ReferenceTarget("reference", kind, bench), tried)
    return Verdict(target, tuple(tried), unlike, perf_counter() - begun)


def difference(mine: ReferenceTarget, reference: ReferenceTarget, tried: list[Outcome]) -> str:
    """How a class that breaks no law is yet not the reference, in words; nothing where it is."""
    if lost := sorted(reference.capabilities() - mine.capabilities()):
        return f"it does less than the reference: {', '.join(lost)} is gone"
    if refused := next((outcome for outcome in tried if outcome.refused), None):
        return f"it refuses what the reference does: {refused.reason}"
    for yours, theirs in zip(mine.decoders(), reference.decoders(), strict=True):
        if not same_model(yours, theirs):
            return "it is another model: even without a cache its logits are not the reference's"
    return ""


def same_model(yours: Decoder, theirs: Decoder) -> bool:
    """Whether two decoders give the same bits without a cache, at all positions."""
    tokens = torch.arange(2 * yours.block_size, device=yours.device).reshape(2, -1) % yours.vocab_size
    return yours.full(tokens).equal(theirs.full(tokens))


def plan(bug: Bug) -> Iterator[tuple[Law, int]]:
    """Every law, and how many schedules to try; first that which says best what is wrong, then those that see it soon.

    That is the one of the course, else the one that shows positions.
    """
    known, kills = laws(), record().kills.get(bug.name, {})
    first = record().killers(bug.name)[:KILLERS]
    if (best := TELLING.get(bug.name, EQUALITY)) in kills:
        first = [best, *(name for name in first if name != best)][:KILLERS]
    yield from ((known[name], kills[name] + BEYOND) for name in first)
    yield from ((law, FEW) for name, law in known.items() if name not in first)


def class_in(path: Path, bug: Bug) -> Any:
    """The student's class. Raises `BadInput` where there is none, or where its method is not the student's own."""
    method = Method.of(bug)
    require_repair(path, method)
    found = load(str(path), CLASS)
    if not isinstance(found, type) or not issubclass(found, method.base):
        raise BadInput(f"{path.name} has no class {CLASS} that derives from {method.base.__name__}")
    require_own(found, path, method)
    return found
