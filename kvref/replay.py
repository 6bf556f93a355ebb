"""Cases are played again, to see whether the bug is still there."""

from dataclasses import dataclass
from enum import StrEnum

from kvref.answers import DecoderRaised, OutOfReach, Refused
from kvref.asked import Asked
from kvref.case import Case, Place
from kvref.decoder import Decoder
from kvref.errors import BadInput, CaseError, NotExact, one_line
from kvref.finding import LawBroken
from kvref.law import Law, laws, seen
from kvref.operations import Prefill, tokens_of
from kvref.watch import seed_by


class Result(StrEnum):
    """What became of a case."""

    FIXED = "fixed"
    FAILED = "failed"
    MOVED = "moved"
    ERROR = "error"


@dataclass(frozen=True)
class Replayed:
    """A case that was played again, and what was seen."""

    case: Case
    result: Result
    told: str


def replay(case: Case, *, prove: bool = True) -> Replayed:
    """Ask the law of a case once more, on its schedule, decoder and lens.

    It failed where the law fails in the same place, and has moved where it fails in another, or in another way. An
    error is what stops it from being asked: the target, the law or the lens is not to be had, or the schedule neither
    meets any of the cases that the law is about nor has the step at which the law was seen to fail. (The smallest
    schedule that breaks a law may well end before the first of these cases.)
    """
    try:
        law, decoder = law_of(case), decoder_of(case, prove=prove)
        require_tokens(case, decoder)
    except (BadInput, NotExact) as error:
        return Replayed(case, Result.ERROR, str(error))
    return ask(case, law, decoder)


def ask(case: Case, law: Law, decoder: Decoder) -> Replayed:
    """Say what a law says now."""
    cases = set[str]()
    token = seen.set(cases)
    seed_by(case.schedule)
    decoder.meter.meddled.clear()
    try:
        law.check(decoder, case.schedule)
        if case.raised:
            decoder.require_no_meddling()
    except LawBroken as error:
        same = not case.raised and Place(**dict(error.divergence.places())) == case.place
        return Replayed(case, Result.FAILED if same else Result.MOVED, str(error))
    except (OutOfReach, Refused) as error:
        return Replayed(case, Result.ERROR, str(error))
    except DecoderRaised as error:
        same = case.raised and case.place.step in (None, None if error.step is None else error.step + 1)
        return Replayed(case, Result.FAILED if same else Result.MOVED, str(error))
    except Exception as error:
        # A schedule that was changed by hand may be none that the law can be asked on.
        return Replayed(case, Result.ERROR, f"the law cannot be asked on this schedule ({one_line(error)})")
    finally:
        seen.reset(token)
    step = case.place.step
    if cases:
        return Replayed(case, Result.FIXED, f"the law holds on this schedule, which meets: {', '.join(sorted(cases))}")
    if step is not None and 1 <= step <= len(case.schedule):
        return Replayed(case, Result.FIXED, f"the law holds on this schedule, at step {step} too, where it failed")
    return Replayed(case, Result.ERROR, "the law holds on this schedule, which meets none of the law's cases")


def law_of(case: Case) -> Law:
    """The law that a case names."""
    if case.law not in laws():
        raise CaseError(f"there is no law {case.law!r}; see `kvref explain` for those that there are")
    return laws()[case.law]


def decoder_of(case: Case, *, prove: bool = True) -> Decoder:
    """The decoder that a case names, under its lens, which has to be proved unless it was."""
    asked = Asked.of_command(case.check)
    bench = asked.bench()
    if prove:
        asked.require_lens(bench)
    decoders = [decoder for target in asked.targets(bench) for decoder in target.decoders()]
    found = next((decoder for decoder in decoders if decoder.name == case.decoder), None)
    if found is None:
        raise CaseError(
            f"`kvref check {case.check}` has no decoder {case.decoder!r}; the first is {decoders[0].name!r}"
        )
    if lacking := law_of(case).lacks(found.capabilities, found.refuses):
        raise CaseError(lacking)
    return found.under(case.lens)


def require_tokens(case: Case, decoder: Decoder) -> None:
    """Raise `CaseError` for a schedule with tokens, or with more of them, than the decoder takes."""
    padding = [op.pad for op in case.schedule.ops if isinstance(op, Prefill)]
    largest = max(padding + [token for op in case.schedule.ops for row in tokens_of(op) for token in row], default=0)
    if largest >= decoder.vocab_size:
        raise CaseError(f"token {largest} is in the schedule, and the vocabulary has {decoder.vocab_size}")
    longest = max((content.width for state in case.schedule.contents for content in state), default=0)
    if longest > decoder.block_size:
        raise CaseError(f"the schedule leads to {longest} tokens, and the decoder takes {decoder.block_size}")

    rows = max((len(content.rows) for state in case.schedule.contents for content in state), default=1)
    if decoder.max_batch is not None and rows > decoder.max_batch:
        raise CaseError(f"the schedule has a batch of {rows}, and the decoder takes {decoder.max_batch}")
