"""What else breaks a law as the smallest schedule does: other tokens, and more of them."""

from collections.abc import Callable

import torch

from kvref.cache import GrowingCache
from kvref.decoder import Decoder
from kvref.finding import LawBroken
from kvref.law import EQUALITY, laws
from kvref.lens import NATIVE
from kvref.operations import Crop, Extend, Op, Reorder, Start, tokens_of, with_tokens
from kvref.protocol import Logits, Tokens
from kvref.schedule import Schedule
from kvref.search import Effort
from kvref.tests.helpers import tiny, try_law
from kvref.varied import varied
from kvref.watch import Failure

OPS = (Start(1), Extend(((1, 2),)), Extend(((3,),)))

Wrong = Callable[[Tokens, int], bool]


class Sometimes:
    """A decoder whose logits are turned round where something is so of the new tokens and the past."""

    vocab_size, block_size = 7, 8

    def __init__(self, wrong: Wrong) -> None:
        self.model, self.wrong = tiny(), wrong

    def full(self, tokens: Tokens) -> Logits:
        return self.model(tokens)[0]

    def start(self, batch: int, capacity: int | None) -> GrowingCache:
        del batch, capacity
        return GrowingCache()

    def step(self, cache: GrowingCache, tokens: Tokens) -> tuple[Logits, GrowingCache]:
        past = cache.length
        logits, cache = self.model(tokens, cache)
        return (logits.flip(-1) if past and self.wrong(tokens, past) else logits), cache


def told(wrong: Wrong, ops: tuple[Op, ...] = OPS) -> str | None:
    law, decoder, schedule = laws()[EQUALITY], Decoder(Sometimes(wrong), lens=NATIVE), Schedule(ops)
    try:
        law.check(decoder, schedule)
    except LawBroken as error:
        return varied(law, Failure(error, decoder, schedule))
    raise AssertionError("the law holds")


def test_what_goes_wrong_whatever_the_tokens() -> None:
    assert told(lambda *_: True) == "other tokens: so too in 4 of 4; more tokens in step 2: 3 of 3, in step 3: 3 of 3"


def test_what_goes_wrong_with_one_new_token_or_one_length_of_the_past() -> None:
    alone = told(lambda tokens, _: tokens.size(1) == 1)
    assert alone == "other tokens: so too in 4 of 4; more tokens in step 2: 3 of 3, in step 3: 0 of 3"
    behind = told(lambda _, past: past == 2)
    assert behind == "other tokens: so too in 4 of 4; more tokens in step 2: 0 of 3, in step 3: 3 of 3"


def test_what_goes_wrong_with_one_token() -> None:
    said = told(lambda tokens, _: bool((tokens == 3).any()))
    assert said is not None
    others, *steps = said.split("; ")
    assert others in {f"other tokens: so too in {n} of 4" for n in range(3)}
    assert steps[0].startswith("other tokens in step 2: 4 of 4, in step 3: ")
    assert not steps[0].endswith("4 of 4")


def test_more_tokens_than_fit_are_not_tried() -> None:
    full = (Start(1), Extend(((1, 2),)), Extend(((3, 4, 5, 6, 1),)))
    said = told(lambda *_: True, full)
    assert said == "other tokens: so too in 4 of 4; more tokens in step 2: 1 of 1, in step 3: 1 of 1"
    room = (Start(1, 3), *OPS[1:])
    assert told(lambda *_: True, room) == "other tokens: so too in 4 of 4"


def test_a_crash_elsewhere_is_not_the_same() -> None:
    def wrong(_: Tokens, past: int) -> bool:
        if past > 2:
            raise ValueError("too long")
        return True

    said = told(wrong)
    assert said == "other tokens: so too in 4 of 4; more tokens in step 2: 0 of 3, in step 3: 3 of 3"


def test_a_finding_says_it_unless_no_small_schedule_was_asked_for() -> None:
    finding = try_law(EQUALITY, "missing-position-offset", Effort(12)).finding
    assert finding is not None
    assert finding.varied is not None
    assert finding.varied in str(finding)
    assert "4 of 4" in finding.varied
    unshrunk = try_law(EQUALITY, "missing-position-offset", Effort(12, shrink=False)).finding
    assert unshrunk is not None
    assert unshrunk.varied is None


def test_operations_without_tokens_stay_as_they_are() -> None:
    for op in (Crop(2), Reorder((1, 0)), Start(2)):
        assert tokens_of(op) == ()
        assert with_tokens(op, []) is op
    assert torch.tensor(tokens_of(with_tokens(OPS[1], [(5, 6)]))).tolist() == [[5, 6]]
