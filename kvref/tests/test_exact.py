"""The exact lens: the same bits in any shape, the meaning of every operator kept, and nothing unknown let through."""

import gc
import math
import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from kvref.cache import Cache, GrowingCache, StaticCache
from kvref.config import GPTConfig
from kvref.errors import BadInput
from kvref.exactness import MODES, NotInterceptable, RangeExceeded, exact, shared
from kvref.gpt2 import GPT
from kvref.measure.ulp import measure_ulps
from kvref.scaling import same_bits
from kvref.weights import loud

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
Context = Callable[[], AbstractContextManager[object]]


def in_chunks(model: GPT, tokens: Tensor, cache: Cache, context: Context, mode: str) -> Tensor:
    parts: list[Tensor] = []
    while (past := cache.length) < tokens.size(1):
        new = random.choice([1, 1, 2, 3, 7, 20])
        with context(), exact(mode):
            logits, cache = model(tokens[:, past : past + new], cache)
        parts.append(logits)
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_chunks_give_the_bits_of_one_pass(mode: str, dtype: torch.dtype, context: Context) -> None:
    """Odd widths, several rows, more tokens than a tile, more keys than a block."""
    random.seed(0)
    for seed, (head_dim, n_head, block_size) in enumerate([(1, 3, 9), (5, 2, 24), (17, 1, 70), (8, 4, 18)]):
        model = loud(GPTConfig(block_size, 99, 2, n_head, head_dim * n_head), seed, dtype)
        tokens = torch.randint(99, (seed % 3 + 1, block_size))
        with context(), exact(mode):
            whole, _ = model(tokens)
        with context():
            static = StaticCache(2, len(tokens), n_head, block_size, head_dim, dtype, "cpu")
        for cache in (GrowingCache(), static):
            assert same_bits(in_chunks(model, tokens, cache, context, mode), whole)


def test_ordinary_kernels_do_not_give_them() -> None:
    """Otherwise the test above could not fail."""
    model = loud(GPTConfig(70, 99, 2, 4, 32), 0, torch.float32)
    tokens = torch.randint(99, (1, 70))
    whole, _ = model(tokens)
    assert not all(same_bits(model(tokens[:, :n])[0], whole[:, :n]) for n in range(1, 70))


@pytest.mark.parametrize("mode", MODES)
def test_a_row_is_the_same_alone_and_in_a_batch(mode: str) -> None:
    model = loud(GPTConfig(24, 99, 2, 2, 10), 0, torch.float32)
    tokens = torch.randint(99, (7, 24))
    with torch.inference_mode(), exact(mode):
        together = model(tokens)[0]
        assert all(same_bits(model(tokens[row : row + 1])[0][0], together[row]) for row in range(7))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_large_weights_and_threads_change_nothing(mode: str, threads: int) -> None:
    """Such a weight is multiplied by another library than a small one."""
    weight = nn.Parameter(torch.randn(400, 300), requires_grad=False)
    x = torch.randn(9 if mode == "fold" else 70, 300)
    before = torch.get_num_threads()
    with torch.inference_mode(), exact(mode):
        whole = F.linear(x, weight)
        torch.set_num_threads(threads)
        try:
            assert all(same_bits(F.linear(x[i : i + 1], weight)[0], whole[i]) for i in range(len(x)))
            assert same_bits(F.linear(x[3:8].t().contiguous().t(), weight), whole[3:8])
        finally:
            torch.set_num_threads(before)


def left_padded(x: Tensor, pad: int) -> Tensor:
    """Attention of one sequence that stands behind so many masked keys."""
    keys = torch.cat([torch.full((1, 1, pad, x.size(-1)), 3.0), x], dim=2)
    mask = torch.ones(x.size(2), keys.size(2), dtype=torch.bool).tril(diagonal=pad)
    mask[:, :pad] = False
    return F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)


def test_left_padding_changes_no_bit_under_grid() -> None:
    x = torch.randn(1, 1, 9, 8)
    with torch.inference_mode(), exact("grid"):
        assert all(same_bits(left_padded(x, pad), left_padded(x, 0)) for pad in (1, 2, 3, 5, 60))


def test_the_order_of_keys_shows_under_fold_and_not_under_grid() -> None:
    q, k = torch.randn(2, 1, 1, 40, 8)
    order = torch.randperm(40)
    with torch.inference_mode():
        for mode, equal in (("grid", True), ("fold", False)):
            with exact(mode):
                turned = F.scaled_dot_product_attention(q, k[:, :, order], k[:, :, order])
                assert same_bits(F.scaled_dot_product_attention(q, k, k), turned) is equal


LINEAR, EMBEDDED = torch.randn(7, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
Q = torch.randn(2, 4, 3, 6, dtype=torch.float64)
LONG = Q.repeat(1, 1, 30, 1)
KV = torch.randn(2, 2, 5, 6, dtype=torch.float64)
X = torch.randn(3, 5, 6, dtype=torch.float64)
SQUARE = X[0, :, :5].tril() + 2.0 * torch.eye(5, dtype=torch.float64)
POSITIVE = X.abs() + 0.1

OPERATORS: dict[str, Callable[[], Tensor]] = {
    "mm": lambda: X[0] @ LINEAR.t(),
    "addmm": lambda: torch.addmm(X[0, :, 0], X[0], LINEAR[:5].t(), beta=0.5, alpha=2),
    "addmm, beta 0": lambda: torch.addmm(torch.full((5,), math.nan, dtype=torch.float64), X[0], LINEAR[:5].t(), beta=0),
    "bmm": lambda: X @ X.transpose(1, 2),
    "baddbmm": lambda: torch.baddbmm(X[..., :5], X, X.transpose(1, 2), beta=0.5, alpha=2),
    "mv": lambda: X[0] @ LINEAR[0],
    "dot": lambda: X[0, 0].dot(LINEAR[0]),
    "matmul, broadcast": lambda: X[:, None] @ X[0].t(),
    "einsum": lambda: torch.einsum("bij,kj->bki", X, LINEAR),
    "linear": lambda: F.linear(X, LINEAR, LINEAR[:, 0]),
    "linear, of no rows": lambda: F.linear(X[:0], LINEAR),
    "linear, of one vector": lambda: F.linear(X[0, 0], LINEAR),
    "attention": lambda: F.scaled_dot_product_attention(Q, Q, Q),
    "attention, causal": lambda: F.scaled_dot_product_attention(Q, Q, Q, is_causal=True),
    "attention, causal, more keys": lambda: F.scaled_dot_product_attention(Q[:, :2], KV, KV, is_causal=True),
    "attention, grouped": lambda: F.scaled_dot_product_attention(Q, KV, KV, enable_gqa=True),
    "attention, added mask": lambda: F.scaled_dot_product_attention(Q[:, :2], KV, KV, attn_mask=X[:, :, 0] * 2),
    "attention, wide values": lambda: F.scaled_dot_product_attention(Q, Q, Q.repeat(1, 1, 1, 2)),
    "attention, narrow values": lambda: F.scaled_dot_product_attention(Q, Q, Q[..., :3], is_causal=True),
    "attention, scaled": lambda: F.scaled_dot_product_attention(Q, Q, Q, scale=0.3),
    "attention, long": lambda: F.scaled_dot_product_attention(LONG, LONG, LONG, is_causal=True),
    "attention, masked and causal": lambda: F.scaled_dot_product_attention(
        Q, Q, Q, attn_mask=X[0, :3, :3] > 0.0, is_causal=True
    ),
    "attention, all masked": lambda: F.scaled_dot_product_attention(
        Q[:, :2], KV, KV, attn_mask=torch.zeros(3, 5, dtype=torch.bool)
    ),
    "softmax": lambda: X.softmax(1),
    "softmax, masked": lambda: X.masked_fill(X > 0.5, -torch.inf).softmax(-1),
    "log_softmax": lambda: X.log_softmax(-1),
    "logsumexp": lambda: X.logsumexp((0, 2)),
    "layer_norm": lambda: F.layer_norm(X, (6,), LINEAR[0], LINEAR[1]),
    "layer_norm, two axes": lambda: F.layer_norm(X, (5, 6)),
    "group_norm": lambda: F.group_norm(X, 5),
    "rms_norm": lambda: F.rms_norm(X, (6,), LINEAR[0]),
    "rms_norm, eps": lambda: F.rms_norm(X, (6,), eps=0.1),
    "sum": lambda: X.sum(),
    "sum, axes": lambda: X.sum((0, 2), keepdim=True),
    "mean": lambda: X.mean((-1, 0)),
    "var": lambda: X.var(-1),
    "var, biased": lambda: X.var((0, 1), correction=0, keepdim=True),
    "std": lambda: X.std(),
    "norm": lambda: torch.linalg.vector_norm(X, dim=1),
    "norm, one": lambda: torch.linalg.vector_norm(X, 1, dim=(0, 1)),
    "solve_triangular": lambda: torch.linalg.solve_triangular(SQUARE, X[:2], upper=False),
    "solve_triangular, upper": lambda: torch.linalg.solve_triangular(SQUARE.mT, X, upper=True, unitriangular=True),
    "solve_triangular, right": lambda: torch.linalg.solve_triangular(SQUARE, X.mT, upper=False, left=False),
    "normalize": lambda: F.normalize(X, dim=-1),
    "cumsum": lambda: X.cumsum(1),
    "gelu": lambda: F.gelu(X * 3),
    "gelu, tanh": lambda: F.gelu(X * 3, approximate="tanh"),
    "silu": lambda: F.silu(X * 3),
    "sigmoid": lambda: torch.sigmoid(X * 3),
    "sigmoid_": lambda: X.clone().sigmoid_(),
    "softplus": lambda: F.softplus(X * 9, beta=2.0),
    "mish": lambda: F.mish(X),
    "elu": lambda: F.elu(X, alpha=0.7),
    "selu": lambda: F.selu(X),
    "glu": lambda: F.glu(X),
    "rsqrt": lambda: POSITIVE.rsqrt(),
    "exp2": lambda: torch.exp2(X),
    "logaddexp": lambda: torch.logaddexp(X, X.flip(0)),
    "pow, whole": lambda: X**3,
    "pow, inverse": lambda: X**-2,
    "pow, root": lambda: POSITIVE**-0.5,
    "pow, of a number": lambda: 2.0**X,
    "pow, of negatives": lambda: X ** torch.tensor([2.0, 3.0, -1.0, 0.0, 5.0, 4.0], dtype=torch.float64),
    "pow, other": lambda: POSITIVE**2.7,
    "add, alpha": lambda: torch.add(X, X, alpha=0.3),
    "sub, alpha": lambda: torch.sub(X, X.flip(0), alpha=0.3),
    "addcmul": lambda: torch.addcmul(X, X, X, value=0.3),
    "addcdiv": lambda: torch.addcdiv(X, X, POSITIVE, value=0.3),
    "lerp": lambda: torch.lerp(X, X.flip(0), 0.3),
    "complex": lambda: torch.view_as_real(torch.polar(POSITIVE, X) * torch.complex(X, X.flip(0))),
    "conv1d, depthwise": lambda: F.conv1d(X, X[0, :, None, :3], X[0, :, 0], padding=2, groups=5),
    "conv1d": lambda: F.conv1d(X, X[:2, :, :3], stride=2),
    "conv1d, grouped": lambda: F.conv1d(X[:, :4], X[:2, :2, :3].repeat(2, 1, 1), groups=2),
    "index_add": lambda: X.index_add(0, torch.tensor([0, 0, 2]), X, alpha=0.5),
    "scatter_add": lambda: X.scatter_add(0, torch.zeros(3, 5, 6, dtype=torch.long), X),
    "index_put": lambda: torch.index_put(X, (torch.tensor([0, 0]),), X[1:], accumulate=True),
    "cross_entropy": lambda: F.cross_entropy(X[0], torch.tensor([0, 1, 2, 3, 4])),
    "out": lambda: torch.mm(X[0], LINEAR.t(), out=torch.empty(0, dtype=torch.float64)),
}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("mode", MODES)
def test_operators_mean_what_they_mean_natively(mode: str, context: Context) -> None:
    for name, call in OPERATORS.items():
        with context():
            want = call()
            with exact(mode):
                got = call()
        assert got.shape == want.shape, name
        # The grid's steps are 2**-15, and there are up to 90 of them in a sum here.
        near = 1e-2 if mode == "grid" else 1e-12
        torch.testing.assert_close(got, want, rtol=near, atol=near, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("mode", MODES)
def test_products_lie_in_memory_as_those_of_torch_do(mode: str) -> None:
    """A decoder may take views that only fit one layout."""
    weight = nn.Parameter(torch.randn(7, 6), requires_grad=False)
    x, turned = X.float(), torch.randn(2, 3, 4, 6).transpose(1, 2)
    calls: tuple[Callable[[], Tensor], ...] = (
        lambda: F.linear(x, weight),
        lambda: x[0] @ weight.t(),
        lambda: torch.addmm(x[0, :, :1], x[0], weight.t()),
        lambda: torch.bmm(x, x.transpose(1, 2)),
        lambda: torch.baddbmm(x[..., :5], x, x.transpose(1, 2)),
        lambda: F.scaled_dot_product_attention(Q.float(), Q.float(), Q.float(), is_causal=True),
        lambda: F.scaled_dot_product_attention(turned, turned, turned),
    )
    with torch.inference_mode():
        for call in calls:
            want = call()
            with exact(mode):
                assert call().stride() == want.stride()


@pytest.mark.parametrize("mode", MODES)
def test_operators_give_the_same_bits_whatever_way_torch_calls_them(mode: str) -> None:
    """Seen as Python functions, as operators in inference mode, and as the parts that they have without it."""
    answers: list[list[Tensor]] = []
    for context in (torch.inference_mode, torch.no_grad):
        with context(), exact(mode):
            answers.append([call() for call in OPERATORS.values()])
        with context(), shared(mode):
            answers.append([call() for call in OPERATORS.values()])
    for name, *results in zip(OPERATORS, *answers, strict=True):
        assert all(same_bits(result.nan_to_num(7.0), results[0].nan_to_num(7.0)) for result in results), name


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.bmm(X[:, :, :4], X),
        lambda: torch.bmm(X[:, :3, :3], X[:, :4]),
        lambda: F.linear(X, LINEAR[:, :5]),
        lambda: F.linear(X, LINEAR.float()),
        lambda: F.linear(X, nn.Parameter(LINEAR.float(), requires_grad=False)),
        lambda: F.scaled_dot_product_attention(Q, Q, Q.float()),
        lambda: torch.zeros(2, dtype=torch.long).add_(X[0, 0, :2]),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_does_not_go_together_is_refused_as_torch_does(mode: str, call: Callable[[], Tensor]) -> None:
    """Filling up to whole tiles must not hide it."""
    with torch.inference_mode():
        with pytest.raises(RuntimeError):
            call()
        with pytest.raises(RuntimeError), exact(mode):
            call()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_weights_mean_what_they_mean_natively(mode: str, dtype: torch.dtype) -> None:
    """Prepared once, turned or not, small or large, with what is added."""
    near = {torch.float64: 1e-3, torch.float32: 1e-3}.get(dtype, 3e-2)
    for out, k in ((7, 6), (33, 70), (300, 400)):
        weight = nn.Parameter(torch.randn(out, k).to(dtype) / k**0.5, requires_grad=False)
        right = nn.Parameter(weight.t().contiguous(), requires_grad=False)
        x, bias = torch.randn(2, 9, k).to(dtype), torch.randn(out).to(dtype)
        calls = (
            lambda x=x, weight=weight, bias=bias: F.linear(x, weight, bias),
            lambda x=x, right=right, bias=bias: torch.addmm(bias, x[0], right),
            lambda x=x, weight=weight: x @ weight.t(),
            lambda x=x, right=right: x @ right,
        )
        with torch.inference_mode():
            for call in calls:
                want = call()
                with exact(mode):
                    got = call()
                torch.testing.assert_close(got, want, rtol=near, atol=near)


@torch.library.custom_op("kvref_tests::unknown", mutates_args=())
def unknown(x: Tensor) -> Tensor:
    return x * 2


def swallows(x: Tensor) -> Tensor:
    try:
        return unknown(x)
    except Exception:
        return x


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (unknown, "kvref_tests.unknown"),
        (swallows, "kvref_tests.unknown"),
        (lambda x: flex_attention(x[None, None], x[None, None], x[None, None]), "flex_attention"),
        (lambda x: torch.fft.fft(x), "aten._fft"),
        (lambda x: torch.linalg.inv(x[:5, :5]), "aten.linalg_inv"),
        (lambda x: torch.histc(x), "aten.histc"),
        (lambda x: torch.complex(x, x).sum(), "aten.sum"),
        (lambda x: torch.complex(x, x) @ torch.complex(x, x), "aten"),
        (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5), "attention"),
        (lambda x: F.embedding(torch.tensor([1]), x, max_norm=0.1), "embedding"),
    ],
)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_what_is_not_known_is_refused_by_name(call: Callable[[Tensor], Tensor], name: str) -> None:
    with torch.inference_mode(), pytest.raises(NotInterceptable, match=f"not interceptable: .*{name}"), exact("tile"):
        call(torch.randn(16, 16))


def test_whole_numbers_need_no_override() -> None:
    with exact("grid"):
        assert torch.arange(5).cumsum(0).sum() == 20
        assert (torch.ones(2, 3, dtype=torch.long) @ torch.ones(3, 2, dtype=torch.long)).tolist() == [[3, 3], [3, 3]]


def test_numbers_beyond_the_grid_are_refused_and_forgotten() -> None:
    large = torch.full((2, 64), 1e6)
    with torch.inference_mode():
        with pytest.raises(RangeExceeded, match=r'use exact\("fold"\)'), exact("grid"):
            F.linear(large, large)
        with exact("grid"):
            F.linear(large * 1e-6, large * 1e-6)


def test_a_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no exact mode 'exact'; there are tile, grid, fold"), exact("exact"):
        pass


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_that_changes_is_prepared_again(mode: str) -> None:
    weight = nn.Parameter(torch.randn(8, 8), requires_grad=False)
    x = torch.randn(3, 8)
    with torch.no_grad():
        with exact(mode):
            before = F.linear(x, weight)
        weight.mul_(2.0)
        with exact(mode):
            assert same_bits(F.linear(x, weight), before * 2)
    weight.data = weight.data * 2
    with torch.no_grad(), exact(mode):
        assert same_bits(F.linear(x, weight), before * 4)


def test_a_weight_that_is_gone_is_forgotten() -> None:
    entries = shared("tile").arithmetic.by_rows.entries
    gc.collect()
    before = len(entries)
    weight = nn.Parameter(torch.randn(300, 300), requires_grad=False)
    with torch.no_grad(), exact("tile"):
        F.linear(torch.randn(3, 300), weight)
    assert len(entries) == before + 1
    del weight
    gc.collect()
    assert len(entries) == before


def test_fold_takes_rows_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(33, 20), nn.Parameter(torch.randn(9, 20), requires_grad=False)
    with torch.inference_mode(), exact("fold"):
        whole = F.linear(x, weight)
        monkeypatch.setattr("kvref.exactness.fold.BLOCK_BYTES", 4 * 9 * 32 * 4)
        assert same_bits(F.linear(x, weight), whole)


@pytest.mark.parametrize("mode", ["tile", "fold"])
def test_one_unit_in_the_last_place_of_one_cached_number_can_be_seen(mode: str) -> None:
    """Not each time, for a rounding on the way to the logits may swallow it. How often is measured, not asserted."""
    rates = list(measure_ulps([mode], [torch.float32, torch.bfloat16], ["0.2"], models=3))
    assert all(rate.seen > 0 for rate in rates)
