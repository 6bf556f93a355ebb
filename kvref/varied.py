"""Which parts of a smallest schedule matter, and which may be otherwise: the law is tried on schedules like it.

The search has made the schedule small, so that no less of it will do. What it cannot say is whether these very tokens
are needed, and whether more of them would do as well.
"""

import random
from collections.abc import Iterable, Iterator

from kvref.answers import DecoderRaised, OutOfReach, Refused
from kvref.errors import ScheduleError
from kvref.finding import LawBroken
from kvref.law import Law
from kvref.operations import Op, tokens_of, with_tokens
from kvref.schedule import Schedule
from kvref.watch import Failure, seed_by

OTHERS = 4
"""Sets of other tokens that are tried."""

MORE = (1, 2, 3)
"""How many more tokens each row of a step is given, in turn."""

FIRST = 8
"""Steps with tokens that are looked at; a smallest schedule seldom has more."""


def varied(law: Law, failure: Failure) -> str | None:
    """Say what else breaks a law as a schedule does, and what does not; None where no other could be tried."""
    ops, vocab_size = failure.schedule.ops, failure.decoder.vocab_size
    fed = [index for index, op in enumerate(ops) if tokens_of(op)][:FIRST]

    def share(others: Iterable[tuple[Op, ...]]) -> str:
        answers = [answer for other in others if (answer := fails(law, failure, other)) is not None]
        return f"{sum(answers)} of {len(answers)}" if answers else ""

    other = share(other_tokens(ops, fed, vocab_size))
    said = [f"other tokens: so too in {other}"] if other else []
    if other and other != f"{OTHERS} of {OTHERS}" and len(fed) > 1:
        said += in_steps("other tokens", {index: share(other_tokens(ops, [index], vocab_size)) for index in fed})
    said += in_steps("more tokens", {index: share(longer_step(ops, index)) for index in fed})
    return "; ".join(said) or None


def in_steps(what: str, shares: dict[int, str]) -> list[str]:
    """What came of a change of single steps, by their numbers in a printed schedule."""
    told = [f"in step {index + 1}: {share}" for index, share in shares.items() if share]
    return [f"{what} {', '.join(told)}"] if told else []


def fails(law: Law, failure: Failure, ops: tuple[Op, ...]) -> bool | None:
    """Whether a law fails on other operations in the way it did; None where it cannot be asked on them."""
    decoder = failure.decoder
    try:
        schedule = Schedule(ops)
        widths = (content.width for state in schedule.contents for content in state)
        if schedule == failure.schedule or max(widths, default=0) > decoder.block_size:
            return None
        seed_by(schedule)
        decoder.meter.meddled.clear()
        law.check(decoder, schedule)
        decoder.require_no_meddling()
    except (ScheduleError, OutOfReach, Refused):
        return None
    except (LawBroken, DecoderRaised) as error:
        return isinstance(error, LawBroken) == isinstance(failure.error, LawBroken)
    except Exception:
        return None  # a law may need what these operations do not have
    return False


def other_tokens(ops: tuple[Op, ...], indices: list[int], vocab_size: int) -> Iterator[tuple[Op, ...]]:
    """The same operations with tokens drawn at random in some of them, the same on every machine."""
    for number in range(OTHERS):
        draw = random.Random(number)
        yield tuple(
            with_tokens(op, [tuple(draw.randrange(vocab_size) for _ in row) for row in tokens_of(op)])
            if index in indices
            else op
            for index, op in enumerate(ops)
        )


def longer_step(ops: tuple[Op, ...], index: int) -> Iterator[tuple[Op, ...]]:
    """The same operations, but more tokens in each row of one of them: its last again."""
    for more in MORE:
        longer = with_tokens(ops[index], [row + row[-1:] * more for row in tokens_of(ops[index])])
        yield (*ops[:index], longer, *ops[index + 1 :])
