"""Constants that a model rounds where it is built: used in two ways, they differ by that rounding in float64 too."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kvref.decoder import Decoder
from kvref.law import laws
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import Bench, OneDecoder
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH
from kvref.verdict import Kind

EQUAL = "cached-logits-equal-uncached-logits"
VOCAB, BLOCK, WIDTH = 13, 12, 8


class Decaying(nn.Module):
    """Every token is seen by those behind it, weaker with each step between: from a table in a pass without a cache.

    `excess` is what the cached step gets wrong: it multiplies by so much more.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, excess: float = 0.0) -> None:
        super().__init__()
        drawn = torch.randn(2, VOCAB, WIDTH, generator=torch.Generator().manual_seed(0))
        self.embedding, self.out = nn.Parameter(drawn[0].to(dtype)), nn.Parameter(drawn[1].to(dtype))
        self.excess = excess
        self.slope = nn.Buffer(torch.tensor(0.3, dtype=dtype))
        apart = torch.arange(BLOCK, dtype=dtype)[:, None] - torch.arange(BLOCK, dtype=dtype)
        self.decay = nn.Buffer(torch.exp(-self.slope * apart).tril())

    def full(self, tokens: Tensor) -> Tensor:
        """Weigh all at once."""
        new = tokens.size(1)
        return self.decay[:new, :new] @ self.embedding[tokens] @ self.out.T

    def step(self, state: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Weigh one by one."""
        rows: list[Tensor] = []
        for token in tokens.T:
            state = state * (torch.exp(-self.slope) + self.excess) + self.embedding[token]
            rows.append(state)
        return torch.stack(rows, dim=1) @ self.out.T, state


class Decays:
    """The model as a decoder."""

    vocab_size, block_size = VOCAB, BLOCK

    def __init__(self, dtype: torch.dtype = torch.float32, excess: float = 0.0) -> None:
        self.model = Decaying(dtype, excess).requires_grad_(False)

    def full(self, tokens: Tensor) -> Tensor:
        """One pass."""
        return self.model.full(tokens)

    def start(self, batch: int, capacity: int | None) -> Tensor:
        """Nothing seen."""
        del capacity
        return torch.zeros(batch, WIDTH, dtype=self.model.embedding.dtype)

    def step(self, cache: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """More tokens."""
        return self.model.step(cache, tokens)


class Rebuilds(Decays):
    """It can be built in float64 too, where nothing of its table was rounded to float32."""

    def in_float64(self) -> Decays:
        """The same weights."""
        return Decays(torch.float64, self.model.excess)


def outcome(implementation: Any) -> Outcome:
    decoder = Decoder(implementation, "decays", BENCH.lens_for(torch.float32))
    return search(laws()[EQUAL], OneDecoder("decays", "", decoder, BENCH), Effort(examples=12, shrink=False))


def test_a_model_that_is_built_in_float64_is_judged_by_what_is_no_rounding_of_constants() -> None:
    found = outcome(Rebuilds())
    assert found.status is Status.HELD
    assert found.reason.startswith(str(Kind.EQUIVALENT))


def test_a_fault_as_small_as_that_rounding_is_still_found_there() -> None:
    found = outcome(Rebuilds(excess=1e-8))
    assert found.status is Status.BROKEN
    assert found.finding is not None
    assert found.finding.verdict is not None
    assert found.finding.verdict.kind is Kind.BUG


@pytest.mark.parametrize(("model_type", "kind"), [("minimax", "dynamic"), ("llama", "static")])
def test_models_of_transformers_have_a_twin_with_the_same_weights(model_type: str, kind: str) -> None:
    (target,) = resolve(f"hf-config:{model_type}", BENCH, kind)
    (decoder,) = target.decoders()
    mine: Any = decoder.given
    twin = mine.in_float64()
    assert twin is mine.in_float64()
    assert twin.kind == mine.kind == kind
    for here, there in zip(mine.model.parameters(), twin.model.parameters(), strict=True):
        assert there.dtype == torch.float64
        assert there.equal(here.double())
    tokens = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(mine.full(tokens).double(), twin.full(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("bench", "reason"),
    [
        (BENCH, str(Kind.EQUIVALENT)),
        (Bench(dtypes=(torch.bfloat16,)), str(Kind.EQUIVALENT)),
        (Bench(lens="float64"), ""),
    ],
)
def test_constants_that_minimax_makes_in_two_ways_are_no_fault(bench: Bench, reason: str) -> None:
    (target,) = resolve("hf-config:minimax", bench, "dynamic")
    found = search(laws()[EQUAL], target, Effort(examples=12, shrink=False))
    assert (found.status, found.reason.partition(":")[0]) == (Status.HELD, reason)
