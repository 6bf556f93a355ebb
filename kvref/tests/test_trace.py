"""The interpreter, the ledger, the oracle, and how a divergence reads."""

from typing import Any

import pytest
import torch

from kvref.answers import DecoderRaised
from kvref.cache import Cache
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.finding import LawBroken, expect_keys_values, expect_logits
from kvref.gpt2 import GPT
from kvref.law import laws
from kvref.lens import NATIVE, SAME_BITS, differs, gaps
from kvref.locate import locate
from kvref.operations import Crop, Extend, Fork, Overflow, Reorder, Reset, Start
from kvref.schedule import Schedule
from kvref.search import Effort, Status, search
from kvref.targets import OneDecoder
from kvref.targets.reference import GrowingDecoder
from kvref.tests.helpers import BENCH, TINY, tiny
from kvref.trace import Ledger, Uncached, play, run
from kvref.weights import loud

SCHEDULE = Schedule(
    (
        Start(2),
        Extend(((1, 2, 3), (4, 5, 6))),
        Fork(),
        Crop(2, 1),
        Reorder((1, 0), 1),
        Extend(((0,), (1,)), 1),
        Reset(0),
        Extend(((5, 5),) * 2, 0),
    )
)


@pytest.fixture
def decoder() -> Decoder:
    return Decoder(GrowingDecoder(tiny()), "mine")


def test_a_trace_has_the_logits_and_the_passes_of_each_layer(decoder: Decoder) -> None:
    trace = run(decoder, SCHEDULE)
    shapes = [None if logits is None else tuple(logits.shape) for logits in trace.logits]
    assert shapes == [None, (2, 3, 7), None, None, None, (2, 1, 7), None, (2, 2, 7)]
    assert trace.lengths == (0, 3, 3, 2, 2, 3, 0, 2)
    assert dict(trace.ledger.forwarded) == {0: 12, 1: 12}


def test_the_ledger_leaves_out_what_is_run_aside(decoder: Decoder) -> None:
    tokens = torch.zeros(2, 3, dtype=torch.long)
    with Ledger(decoder) as ledger:
        decoder.full(tokens)
        with ledger.aside():
            decoder.full(tokens)
    decoder.full(tokens)
    assert dict(ledger.forwarded) == {0: 6, 1: 6}


class Looped(GPT):
    """Runs its second layer twice for each token, by design: the second time with a place of its own in the cache."""

    def look(self, tokens: torch.Tensor, cache: Cache) -> torch.Tensor:
        past, new, padding = cache.length, tokens.size(1), cache.padding
        mask = self.attention_mask(past, new, padding)
        x = self.transformer.wte(tokens) + self.transformer.wpe(self.position_ids(past, new, padding))
        for place, layer in enumerate((0, 1, 1)):
            x = self.transformer.h[layer](x, mask, cache, place)
        return x @ self.transformer.wte.weight.T


class RunsTwice(GrowingDecoder):
    """Runs every call twice, and keeps it once."""

    def step(self, cache: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
        super().step(cache, tokens)
        cache.crop(cache.length - tokens.size(1))
        return super().step(cache, tokens)


class ByKeyword(GPT):
    """Calls its blocks with keyword arguments alone."""

    def look(self, tokens: torch.Tensor, cache: Cache) -> torch.Tensor:
        past, new, padding = cache.length, tokens.size(1), cache.padding
        mask = self.attention_mask(past, new, padding)
        x = self.transformer.wte(tokens) + self.transformer.wpe(self.position_ids(past, new, padding))
        for layer, block in enumerate(self.transformer.h):
            x = block(x=x, mask=mask, cache=cache, layer=layer)
        return self.transformer.ln_f(x) @ self.transformer.wte.weight.T


class AsksTwice(GrowingDecoder):
    """Runs the model twice where it has no cache, which is no fault of the cache."""

    def full(self, tokens: torch.Tensor) -> torch.Tensor:
        super().full(tokens)
        return super().full(tokens)


@pytest.mark.parametrize(("model", "kind"), [(ByKeyword, GrowingDecoder), (GPT, AsksTwice)])
def test_how_a_right_model_calls_its_layers_is_its_own_affair(model: type[GPT], kind: type[GrowingDecoder]) -> None:
    target = OneDecoder("mine", "mine", Decoder(kind(loud(TINY, kind=model)), "mine"), BENCH)
    outcome = search(laws()["every-token-passes-every-layer-once"], target, Effort(examples=20, shrink=False))
    assert outcome.status is Status.HELD


@pytest.mark.parametrize(
    ("kind", "status"), [(GrowingDecoder, Status.HELD), (RunsTwice, Status.BROKEN)], ids=["right", "wrong"]
)
def test_layers_that_are_run_twice_for_each_token_are_counted_so(kind: type[GrowingDecoder], status: Status) -> None:
    model = loud(TINY, kind=Looped)
    target = OneDecoder("looped", "looped", Decoder(kind(model), "looped"), BENCH)
    outcome = search(laws()["every-token-passes-every-layer-once"], target, Effort(examples=20, shrink=False))
    assert outcome.status is status
    if outcome.finding:
        assert "takes [4, 8] token passes, but the layers saw [8, 16]" in str(outcome.reason)


def test_the_oracle_agrees_with_every_step_of_a_healthy_decoder(decoder: Decoder) -> None:
    oracle = Uncached(decoder, SCHEDULE)
    for step in play(decoder, SCHEDULE):
        if step.new:
            expect_logits(step, oracle.logits(step), "uncached")


def test_a_refusal_is_kept_and_a_crash_names_its_step(decoder: Decoder) -> None:
    *_, last = play(decoder, Schedule((Start(), Overflow(((0,) * 9,)))))
    assert "9 new tokens onto 0 cached ones" in str(last.refusal)
    with pytest.raises(DecoderRaised, match="step raised ContextOverflow") as raised:
        list(play(decoder, Schedule((Start(), Extend(((0,) * 9,))))))
    assert raised.value.step == 1


def test_a_divergence_names_the_first_position_and_then_row(decoder: Decoder) -> None:
    steps = [step for step in play(decoder, SCHEDULE) if step.new]
    step = steps[0]
    assert step.logits is not None
    want = step.logits.clone()
    want[1, 1, 4] += 1.0
    want[0, 2, 0] += 9.0
    with pytest.raises(LawBroken, match=r"step 2, row 1, position 1: the logit of token 4 is .*, but .* elsewhere"):
        expect_logits(step, want, "elsewhere")


def test_keys_of_another_shape_are_a_divergence(decoder: Decoder) -> None:
    step = next(step for step in play(decoder, SCHEDULE) if step.new)
    layers = step.keys_values()
    assert layers is not None
    with pytest.raises(LawBroken, match=r"keys of layer 0 have shape \(2, 2, 3, 4\), not \(2, 2, 2, 4\)"):
        expect_keys_values(step, layers, [(k[:, :, :2], v[:, :, :2]) for k, v in layers], "of two")


def test_a_healthy_cache_has_nothing_to_locate(decoder: Decoder) -> None:
    said = locate(decoder, SCHEDULE, len(SCHEDULE) - 1)
    assert said is not None
    assert said.startswith("the keys and values are those of one prefill")


def test_gaps_are_relative_to_the_largest_and_never_hide_what_is_not_finite() -> None:
    want = torch.tensor([[1.0, -4.0], [2.0, 0.0]], dtype=torch.float64)
    got = want.clone()
    got[1, 0] = 3.0
    assert gaps(got, want).tolist() == [0.0, 0.5]
    for value in (torch.nan, torch.inf):
        got[1, 0] = value
        assert gaps(got, want).tolist() == [0.0, torch.inf]
        assert gaps(got, got)[1] == (0.0 if value == torch.inf else torch.inf)


def test_nothing_differs_from_nothing() -> None:
    nothing = torch.zeros(1, 2, 0, 4, dtype=torch.float64)
    assert gaps(nothing, nothing).shape == (1, 2, 0)


def test_an_infinity_that_is_wanted_hides_nothing_beside_it() -> None:
    """A padded vocabulary has logits of minus infinity."""
    want = torch.tensor([[-torch.inf, 2.0], [-torch.inf, 4.0]], dtype=torch.float64)
    got = want + torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    assert gaps(got, want).tolist() == [0.0, 0.25]


def test_what_is_left_of_larger_numbers_is_rounded_as_they_are() -> None:
    want = torch.tensor([[1.0], [1e-12]], dtype=torch.float64)
    assert gaps(want + 1e-16, want)[1] == pytest.approx(1e-10)


def test_the_same_bits_are_asked_for_where_things_are_copied() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    assert differs(one * (1 + 1e-15), one, SAME_BITS)
    assert not differs(one * (1 + 1e-15), one, NATIVE)
    assert differs(one * 0.0, one * -0.0, SAME_BITS)
    assert not differs(one * torch.nan, one * torch.nan, SAME_BITS)


def test_a_decoder_without_the_three_methods_is_refused() -> None:
    nothing: Any = object()
    with pytest.raises(TargetError, match="mine has no `full`"):
        Decoder(nothing, "mine")
