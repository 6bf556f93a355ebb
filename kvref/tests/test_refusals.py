"""What a decoder says that it cannot do: a reason, where it is well put, and a crash where it is none."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from kvref.answers import DecoderRaised
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.law import laws
from kvref.search import Effort, Status, search
from kvref.targets import OneDecoder
from kvref.targets.causal_lm import CausalLM
from kvref.targets.tiny import tiny_model
from kvref.tests.helpers import BENCH

EQUAL = "cached-logits-equal-uncached-logits"
FEW = Effort(examples=20, shrink=False)


class Refuses(CausalLM):
    """Its crop is there, and says each time that it cannot."""

    def crop(self, cache: Any, length: int) -> Any:
        raise NotImplementedError("no way back")


def test_a_law_whose_operation_is_refused_each_time_is_skipped_with_the_reason() -> None:
    decoder = Decoder(Refuses(tiny_model("gpt2")), "refuses", BENCH.lens_for(torch.float32))
    target = OneDecoder("refuses", "", decoder, BENCH)
    outcome = search(laws()["crop-equals-never-having-appended"], target, FEW)
    assert outcome.status is Status.SKIPPED
    assert outcome.reason.startswith("the target refuses crop here (no way back); so it never met: ")
    assert outcome.finding is None


class RefusesSome(CausalLM):
    """Its crop cannot keep an odd number of tokens."""

    def crop(self, cache: Any, length: int) -> Any:
        if length % 2:
            raise NotImplementedError("an odd length")
        return super().crop(cache, length)


def test_what_was_refused_is_counted_where_the_law_holds_on_the_rest() -> None:
    decoder = Decoder(RefusesSome(tiny_model("gpt2")), "refuses", BENCH.lens_for(torch.float32))
    target = OneDecoder("refuses", "", decoder, BENCH)
    outcome = search(laws()["crop-equals-never-having-appended"], target, replace(FEW, examples=40))
    assert outcome.status is Status.HELD
    assert re.fullmatch(r"\d+ of 40 schedules refused: the target refuses crop here \(an odd length\)", outcome.reason)


class Lazy(CausalLM):
    """Its lengths come one by one, and the last of them never."""

    def lengths(self, cache: Any) -> Any:
        yield from super().lengths(cache)
        raise RuntimeError("there is no end")


def test_what_comes_one_by_one_belongs_to_the_call() -> None:
    decoder = Decoder(Lazy(tiny_model("gpt2")), "lazy", BENCH.lens_for(torch.float32))
    with pytest.raises(DecoderRaised, match="lengths raised RuntimeError: there is no end"):
        decoder.lengths(decoder.start(1))


def test_refusing_to_answer_at_all_is_a_crash() -> None:
    class Nothing(CausalLM):
        def full(self, tokens: Any) -> Any:
            raise NotImplementedError

    decoder = Decoder(Nothing(tiny_model("gpt2")), "nothing", BENCH.lens_for(torch.float32))
    assert search(laws()[EQUAL], OneDecoder("nothing", "", decoder, BENCH), FEW).status is Status.RAISED


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"cropping": "a reason"}, "names 'cropping', which is no capability; did you mean crop"),
        (["crop"], "must be a dict with a reason for each capability, not list"),
        (3, "must be a dict with a reason for each capability, not int"),
    ],
)
def test_refusals_are_of_capabilities_that_there_are(stated: Any, message: str) -> None:
    implementation = CausalLM(tiny_model("gpt2"))
    implementation.refuses = stated
    with pytest.raises(TargetError, match=message):
        Decoder(implementation)


def test_a_refused_capability_is_not_offered_and_takes_no_other_with_it() -> None:
    implementation = CausalLM(tiny_model("gpt2"))
    before = Decoder(implementation).capabilities
    implementation.refuses = implementation.refuses | {"fork": "it cannot be copied"}
    assert before - Decoder(implementation).capabilities == {Capability.FORK}
