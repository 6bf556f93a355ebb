"""The self-test of the exact lens, and what it says where an operator is not what a mode assumes."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kvref.environment import environment, report, summary
from kvref.errors import NotExact
from kvref.exactness import MODES, fold, grid, lens, tile
from kvref.exactness.harmless import ON_EACH
from kvref.exactness.registry import OVERRIDES
from kvref.exactness.selftest import Proof, prove, require, trial
from kvref.exactness.selftest.composed import composed_sums
from kvref.exactness.selftest.control import negative_control, planted
from kvref.exactness.selftest.elementwise import UNPROVED, calls, elementwise_operators, without_zeros
from kvref.exactness.selftest.numbers import DTYPES, Numbers
from kvref.exactness.selftest.products import row_trials, sums_of_products
from kvref.exactness.selftest.reference import reference_sums
from kvref.exactness.selftest.trial import Job, Trial, same, settled

CPU = torch.device("cpu")

LARGE = "mkldnn._linear_pointwise"
WHOLE = "mm, bmm and sum of whole numbers"


def failing(mode: str, jobs: Iterable[Job]) -> list[str]:
    """Operators of which a proof fails."""
    return [proof.operator for proof in (settled(mode, *job) for job in jobs) if not proof.holds]


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_is_proved_here(mode: str) -> None:
    proofs = prove(mode, CPU, quick=True)
    assert [proof for proof in proofs if not proof.holds] == []
    assert all(proof.tried for proof in proofs)
    assert proofs[-1].operator == "negative control"


def test_each_elementwise_operator_is_proved_or_it_is_said_why_not() -> None:
    assert set(ON_EACH.split()) <= {*calls(), *UNPROVED.split()}


def test_most_results_that_are_compared_are_numbers() -> None:
    x, y = Numbers(CPU).mixed(960), without_zeros(Numbers(CPU, 1).mixed(960))
    for name, forms in calls().items():
        for call in forms:
            result = call(x, y)
            result = torch.view_as_real(result) if result.is_complex() else result
            assert result.isfinite().float().mean() > 0.15, name


def test_a_change_in_the_last_place_is_a_difference_and_the_payload_of_nan_is_none() -> None:
    for dtype in DTYPES:
        x = torch.tensor([1.0, torch.nan, -2.0]).to(dtype)
        assert same(x, x.clone())
        assert same(x, -x.neg())
        assert not same(planted(x), x)
    assert not same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same(torch.tensor([0.0]), torch.tensor([0]))


def test_an_error_is_a_failure() -> None:
    def trials() -> Iterable[Trial]:
        yield Trial("first", torch.ones(1), torch.ones(1))
        raise RuntimeError("no such kernel")

    assert settled("tile", "mm", "a claim", trials()) == Proof(
        "tile", "mm", "a claim", False, 1, "raised no such kernel"
    )
    assert not settled("tile", "mm", "a claim", []).holds


def test_a_sum_that_goes_by_its_length_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile.Tile, "total", lambda self, x: self.widen(x).sum(-1, keepdim=True))
    assert failing("tile", sums_of_products("tile", CPU, quick=True)) == ["cumsum"]


def test_a_kernel_that_goes_by_the_number_of_rows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rows(x: Tensor, weight: Tensor, *_: object) -> Tensor:
        return torch.mm(x, weight.t()) if len(x) <= 2 else (x[:, None] * weight).sum(-1)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", by_rows)
    assert failing("tile", sums_of_products("tile", CPU, quick=True)) == [LARGE]


def test_products_that_go_by_the_number_of_rows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rows(x: Tensor, weight: Tensor) -> Tensor:
        return torch.mm(x, weight) if len(x) == tile.ROWS else (x[:, :, None] * weight).sum(1)

    monkeypatch.setattr(tile, "by_tiles", by_rows)
    monkeypatch.setattr(tile.Tile, "bmm", lambda self, a, b: torch.bmm(self.widen(a), self.widen(b)))
    assert failing("tile", sums_of_products("tile", CPU, quick=True)) == ["mm", "bmm"]


def test_attention_that_goes_by_the_number_of_keys_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tile.over_blocks

    def by_length(weights: Tensor, values: Tensor) -> Tensor:
        return whole(weights, values) * (1.0 + torch.finfo(values.dtype).eps * (values.size(1) == tile.BLOCK))

    monkeypatch.setattr(tile, "over_blocks", by_length)
    assert failing("tile", composed_sums("tile", CPU, quick=True)) == ["scaled_dot_product_attention"]


def test_sums_beyond_what_float64_holds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "EXACT", 2.0**60)
    assert WHOLE in failing("grid", reference_sums("grid", CPU, quick=True))


def test_a_grid_too_fine_for_its_sums_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "STEPS", 2.0**40)
    assert failing("grid", sums_of_products("grid", CPU, quick=True))[:1] == ["mm"]


def test_a_guard_that_lets_everything_through_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid.Grid, "note", lambda *_: None)
    assert failing("grid", reference_sums("grid", CPU, quick=True)) == ["range guard"]


def test_a_tree_that_goes_by_the_length_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lopsided(x: Tensor) -> Tensor:
        while (n := x.size(-1)) > 1:
            x = torch.cat([x[..., : n // 2] + x[..., n // 2 : n // 2 * 2], x[..., n // 2 * 2 :]], dim=-1)
        return x + 0.0

    monkeypatch.setattr(fold, "fold", lopsided)
    assert failing("fold", reference_sums("fold", CPU, quick=True)) == ["fold", "products of fold"]


def test_an_operator_that_is_no_longer_replaced_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lens, "ELEMENTWISE", lens.ELEMENTWISE | {torch.ops.aten.sigmoid.default})
    assert failing("tile", elementwise_operators("tile", CPU, quick=True)) == ["sigmoid", "special_expit"]


def test_sums_into_places_in_another_order_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(_: object, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
        turned = (index, source) if len(x) > 1 else (index.flip(0), source.flip(0))
        return torch.scatter_add(x, dim, *turned)

    monkeypatch.setitem(OVERRIDES, torch.ops.aten.scatter_add.default, backwards)
    assert failing("fold", composed_sums("fold", CPU, quick=True)) == ["scatter_add"]


def test_a_group_norm_that_goes_by_the_rest_of_the_batch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(arithmetic: Any, x: Tensor, *rest: Any) -> Any:
        result, *others = group_norm(arithmetic, x, *rest)
        return (result * (1.0 + torch.finfo(x.dtype).eps * (len(x) == 1)), *others)

    overload = torch.ops.aten.native_group_norm.default
    group_norm = OVERRIDES[overload]
    monkeypatch.setitem(OVERRIDES, overload, off)
    assert failing("tile", composed_sums("tile", CPU, quick=True)) == ["native_group_norm"]


class Tails(TorchDispatchMode):
    """The last number of an exponential is off by one place where it is no whole vector."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func == torch.ops.aten.exp.default and result.numel() % 16:
            result.view(-1)[-1] *= 1.0 + torch.finfo(result.dtype).eps
        return result


def test_an_exponential_that_is_off_in_its_tail_is_named_and_the_claim_refused() -> None:
    with Tails(), pytest.raises(NotExact, match="cannot claim tile here: exp fails on cpu"):
        require("tile", CPU)


def test_trials_that_see_nothing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "same", lambda got, want: got.dtype == torch.bool and torch.equal(got, want))
    proof = negative_control("tile", CPU)
    assert (proof.operator, proof.holds) == ("negative control", True)
    monkeypatch.setattr(trial, "same", lambda got, want: got.dtype != torch.bool or torch.equal(got, want))
    assert not negative_control("tile", CPU).holds


def test_the_environment_says_what_results_depend_on() -> None:
    lines = dict(environment(CPU))
    assert lines["torch"] == torch.__version__
    assert lines["device"] == "cpu"
    assert lines["flush denormal"] == "False"
    assert all(text and "\n" not in text for text in lines.values())


def test_flushed_denormals_are_seen() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        assert dict(environment(CPU))["flush denormal"] == "True"
    finally:
        torch.set_flush_denormal(False)


def test_a_report_fails_when_a_proof_does(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    assert report(CPU, False, printed.append) == 0
    assert not any("holds" in line for line in printed)
    monkeypatch.setattr(
        "kvref.environment.prove", lambda mode, _: [Proof(mode, "mm", "a claim", mode != "grid", 3, "x")]
    )
    assert report(CPU, True, printed.append) == 1
    assert printed[-3:] == [
        "tile: holds of mm: a claim (3 trials)",
        "grid: FAILS mm: a claim (x)",
        "fold: holds of mm: a claim (3 trials)",
    ]


def test_a_summary_has_one_line_for_many_operators() -> None:
    proofs = [Proof("tile", name, "a claim", True, 2) for name in "abcdefg"]
    assert summary(proofs) == ["tile: holds of 7 operators: a claim (14 trials)"]


def test_native_kernels_would_fail_the_same_trials() -> None:
    native = Numbers(CPU).random(40, 64).float()
    weight = Numbers(CPU, 1).random(64, 64).float()
    trials = row_trials(lambda x: F.linear(x, weight), native, "native", quick=True)
    if settled("tile", "linear", "a claim", trials).holds:
        pytest.skip("native kernels treat rows alike here")
