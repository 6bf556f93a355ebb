"""Decoders that compute outside torch, where no lens works: rounding passes, a fault is found, and both say why."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.gpt2 import GPT
from kvref.law import laws
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import Bench, OneDecoder
from kvref.targets.reference import GrowingDecoder
from kvref.tests.helpers import BENCH
from kvref.verdict import Kind
from kvref.weights import loud

EQUAL = "cached-logits-equal-uncached-logits"
SHAPE = GPTConfig(block_size=12, vocab_size=13, n_layer=2, n_head=2, n_embd=16)


THREAD = ThreadPoolExecutor(1)


def in_another_thread(call: Callable[..., Any], *args: Any) -> Any:
    """Where the lens of this one is not."""
    return THREAD.submit(torch.inference_mode()(call), *args).result()


class ForgetsTheOffset(GPT):
    """A later call counts its positions from 0 again."""

    def position_ids(self, past: int, new: int, padding: Any = None) -> torch.Tensor:
        del past, padding
        return torch.arange(new)


class Elsewhere(GrowingDecoder):
    """The reference, out of sight of the lens: what another framework is to torch."""

    outside = "elsewhere"

    def __init__(self, kind: type[GPT] = GPT, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(loud(SHAPE, 0, dtype, kind=kind))

    def full(self, tokens: torch.Tensor) -> torch.Tensor:
        return in_another_thread(super().full, tokens)

    def step(self, cache: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return in_another_thread(super().step, cache, tokens)


class WithFloat64(Elsewhere):
    """It can be had in float64 too."""

    def in_float64(self) -> Elsewhere:
        return Elsewhere(type(self.model), torch.float64)


def outcome(make: Callable[[], Any], lens: str = "tile", shrink: bool = False) -> Outcome:
    bench = Bench(lens=lens)
    decoder = Decoder(make(), "elsewhere", bench.lens_for(torch.float32))
    return search(laws()[EQUAL], OneDecoder("elsewhere", "", decoder, bench), Effort(examples=12, shrink=shrink))


def test_its_rounding_is_no_finding_in_float64() -> None:
    found = outcome(WithFloat64)
    assert (found.status, found.finding) == (Status.HELD, None)
    assert found.reason == "not interceptable: elsewhere computes, and not torch; ordinary kernels in float64"


def test_its_rounding_is_no_finding_where_float64_cannot_be_had() -> None:
    found = outcome(Elsewhere)
    assert (found.status, found.finding) == (Status.HELD, None)
    assert "ordinary kernels of its own dtype, bound " in found.reason


def test_its_fault_is_found_in_float64_and_shrunk() -> None:
    found = outcome(lambda: WithFloat64(ForgetsTheOffset), shrink=True).finding
    assert found is not None
    assert found.verdict is not None
    assert found.verdict.kind is Kind.BUG
    assert "in float64, ratio" in found.verdict.because
    assert len(found.schedule) == 3


def test_float64_can_be_asked_for() -> None:
    assert outcome(WithFloat64, "float64").status is Status.HELD
    assert outcome(lambda: WithFloat64(ForgetsTheOffset), "float64").status is Status.BROKEN


def test_its_fault_is_found_by_its_noise_where_float64_cannot_be_had() -> None:
    found = outcome(lambda: Elsewhere(ForgetsTheOffset))
    assert found.status is Status.BROKEN
    assert found.finding is not None
    assert found.finding.verdict is not None
    assert found.finding.verdict.kind is Kind.BUG
    assert "float64 cannot be had" in found.finding.verdict.because


def test_without_its_word_nothing_can_be_decided() -> None:
    class Silent(Elsewhere):
        outside = None

    assert outcome(Silent).status is Status.UNDECIDED


def test_a_twin_that_cannot_be_made_is_the_decoders_fault() -> None:
    class NoTwin(Elsewhere):
        def in_float64(self) -> Elsewhere:
            raise RuntimeError("no memory")

    decoder = Decoder(NoTwin(), "elsewhere", BENCH.lens_for(torch.float32))
    with pytest.raises(TargetError, match=r"elsewhere: `in_float64` raised RuntimeError: no memory"):
        decoder.under(Bench(lens="float64").lens_for(torch.float32))


def test_a_twin_that_is_refused_is_none() -> None:
    class NoTwin(GrowingDecoder):
        def in_float64(self) -> GrowingDecoder:
            raise NotImplementedError

    lens = Bench(lens="float64").lens_for(torch.float32)
    decoder = Decoder(NoTwin(loud(SHAPE)), "refuses", BENCH.lens_for(torch.float32)).under(lens)
    assert decoder.implementation is decoder.given
    assert decoder.full(torch.tensor([[1, 2]])).dtype == torch.float64


class CastsInside(Elsewhere):
    """Out of sight it rounds to float32, with a cache alone, and may have a fault besides."""

    def in_float64(self) -> Elsewhere:
        return CastsInside(type(self.model), torch.float64)

    def step(self, cache: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, Any]:
        logits, cache = super().step(cache, tokens)
        return logits.float().to(logits.dtype), cache


def test_what_is_rounded_inside_is_undecidable_and_what_is_larger_is_looked_for() -> None:
    found = outcome(CastsInside)
    assert found.status is Status.HELD
    assert "cast to float32 inside may leave so much" in found.reason
    assert found.reason.endswith("bound 4e-06")
    assert outcome(lambda: CastsInside(ForgetsTheOffset)).status is Status.BROKEN
