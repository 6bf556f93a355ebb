"""The bill of a KV cache: what a formula says beside what was counted in the real code, and how each cost grows."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch

from kvref.config import SIZES, GPTConfig
from kvref.measure import counted, formulas
from kvref.measure.formulas import Flops
from kvref.measure.growth import fit_exponent

FEW, ROWS = 16, 2
"""Tokens and rows for which is counted what would take too much memory or time for all of them."""

FEWER = 4
"""Tokens for which the FLOPs of whole generations are counted: each of their passes is one of the whole model."""

GROWTH = (16, 32, 64, 128)
"""Tokens at which growth is counted."""

SLIM = GPTConfig(block_size=GROWTH[-1], vocab_size=7, n_layer=1, n_head=2, n_embd=8)
"""The shape in which growth is counted: how a cost grows is the same in every shape."""

WHAT, FORMULA, VALUE = 21, 23, 13
"""Widths of columns."""

Amount = Callable[[int, int], int]
"""A cost of so many tokens in so many rows."""


@dataclass(frozen=True)
class Line:
    """One cost: what its formula says for all that is asked for, and a count beside what the formula says for that.

    A cost that follows from the lines above it is not counted: `counted` is None.
    """

    what: str
    formula: str
    unit: str
    value: int
    at: str = ""
    """Tokens and rows that were counted, where these are not all."""
    expected: int | None = None
    counted: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the count is not what the formula says."""
        return self.counted != self.expected

    def __str__(self) -> str:
        if self.counted is None:
            count = "from the above"
        else:
            count = ", ".join(
                ["DIFFERS" if self.differs else f"= {shown(self.counted, self.unit)}", *self.at.split(",")]
            )
        line = f"{self.what:{WHAT}}{self.formula:{FORMULA}}{shown(self.value, self.unit):>{VALUE}}  {count}"
        return line.rstrip(" ,") + (f"\n    by formula {self.expected}, counted {self.counted}" if self.differs else "")


@dataclass(frozen=True)
class Growth:
    """A cost counted at several numbers of tokens, and the exponent fitted to that, with its interval of 95%.

    `leading` is the exponent that rules in the formula in the end; the smaller ones still show at few tokens.
    """

    what: str
    leading: int
    tokens: tuple[int, ...]
    counted: tuple[int, ...]
    exponent: float
    low: float
    high: float

    def __str__(self) -> str:
        fitted = f"N^{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.what:34} {fitted:22}  by formula N^{self.leading}"


@dataclass(frozen=True)
class Request:
    """What the bill is for: so many tokens in each row of a batch, in a shape and dtype, on so many bytes of memory."""

    config: GPTConfig
    dtype: torch.dtype
    tokens: int
    batch: int
    memory: int


@dataclass(frozen=True)
class Bill:
    """All lines, and all growth."""

    request: Request
    lines: tuple[Line, ...]
    growth: tuple[Growth, ...]

    @property
    def exit_code(self) -> int:
        """1 where a count differs from its formula, else 0."""
        return int(any(line.differs for line in self.lines))

    def text(self) -> list[str]:
        """Lines of at most 80 columns."""
        return [
            *heading(self.request),
            "",
            f"{'what':{WHAT}}{'formula':{FORMULA}}{'value':>{VALUE}}  counted in the code",
            *(row for line in self.lines for row in str(line).splitlines()),
            "",
            f"growth, counted at {', '.join(map(str, self.growth[0].tokens))} tokens, with intervals of 95%",
            *map(str, self.growth),
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for a program; bytes, numbers and FLOPs are whole."""
        return {
            **asdict(self.request),
            "dtype": name_of(self.request.dtype),
            "lines": [{**asdict(line), "differs": line.differs} for line in self.lines],
            "growth": [asdict(one) for one in self.growth],
        }


def heading(request: Request) -> list[str]:
    """What the letters of the formulas stand for."""
    config, batch = request.config, request.batch
    return [
        f"L {config.n_layer} layers of width d {config.n_embd}, {config.n_head} heads",
        f"Hkv {config.kv_heads} heads of keys and values, each Dh {config.head_dim} wide",
        f"V {config.vocab_size} tokens in the vocabulary, P {config.block_size} positions",
        f"N {request.tokens} tokens in each of B {batch} {'row' if batch == 1 else 'rows'}, "
        f"s {request.dtype.itemsize} bytes for a number ({name_of(request.dtype)})",
        f"M {binary(request.memory)} of memory, w bytes of weights, of a GPT-2 in this shape",
        "c = (20d + 4*Hkv*Dh)*d*L FLOP of the linear layers for a token",
        "token passes, uses of q, k and v, and FLOP: of one row, N generated behind one",
    ]


def bill_of(request: Request) -> Bill:
    """Work out everything, and count it."""
    return Bill(request, (*memory_lines(request), *loop_lines(request), *flops_lines(request)), growth())


def compared(
    request: Request,
    what: str,
    form: str,
    unit: str,
    formula: Amount,
    count: Amount,
    most: tuple[int, int] | None = None,
) -> Line:
    """A line of what is counted for at most so many tokens and rows, or for all."""
    tokens, batch = request.tokens, request.batch
    few, rows = (tokens, batch) if most is None else (min(tokens, most[0]), min(batch, most[1]))
    at = ([f"N={few}"] if few < tokens else []) + ([f"B={rows}"] if rows < batch else [])
    return Line(what, form, unit, formula(tokens, batch), " ".join(at), formula(few, rows), count(few, rows))


def memory_lines(request: Request) -> list[Line]:
    """What is kept, copied, and read again."""
    config, dtype, few = request.config, request.dtype, (FEW, ROWS)
    fits = formulas.conversations(config, request.tokens, dtype, request.memory)

    def copied(kind: str) -> Amount:
        return lambda n, b: counted.copied_bytes(kind, config, n, dtype, b)[-1]

    def line(what: str, form: str, formula: Amount, count: Amount, most: tuple[int, int] | None = None) -> Line:
        return compared(request, what, form, "bytes", formula, count, most)

    return [
        line(
            "cache of one token",
            "2*L*Hkv*Dh*s",
            lambda _n, _b: formulas.bytes_per_token(config, dtype),
            lambda _n, _b: counted.cache_bytes("growing", config, 1, dtype),
        ),
        line(
            "cache of N tokens",
            "2*L*Hkv*Dh*s*N*B",
            lambda n, b: formulas.cache_bytes(config, n, dtype, b),
            lambda n, b: counted.cache_bytes("static", config, n, dtype, b),
            few,
        ),
        line(
            "weights",
            "w",
            lambda _n, _b: formulas.weight_bytes(config, dtype),
            lambda _n, _b: counted.parameters(config) * dtype.itemsize,
        ),
        Line("conversations", "(M - w) // (cache/B)", "", fits),
        line(
            "read for token N",
            "w - (P-1)*d*s + cache",
            lambda n, b: formulas.read_bytes(config, n - 1, dtype, b),
            lambda n, b: counted.read_bytes(config, n - 1, dtype, b),
        ),
        line(
            "copied, growing",
            "cache * (N-1)/2",
            lambda n, b: formulas.copied_bytes(config, n, dtype, b),
            copied("growing"),
            few,
        ),
        line("copied, static", "0", lambda _n, _b: 0, copied("static"), few),
    ]


def loop_lines(request: Request) -> list[Line]:
    """What generating N tokens behind a first one runs, computes and reads, in one row."""
    few = min(request.tokens, FEW)
    passes, uses = counted.generated(few, 1, cached=True)
    passes_naive, uses_naive = counted.generated(few, 1, cached=False)

    def line(what: str, form: str, formula: Callable[[int], int], count: int) -> Line:
        return compared(request, what, form, "", lambda n, _: formula(n), lambda _n, _b: count, (few, request.batch))

    return [
        line("token passes, cached", "N", formulas.passes_cached, passes),
        line("token passes, naive", "N(N+1)/2", formulas.passes_naive, passes_naive),
        line("q of token 0, read", "1", lambda n: formulas.uses_cached(n, 0).query, uses[0].query),
        line("k of token 0, read", "N", lambda n: formulas.uses_cached(n, 0).key, uses[0].key),
        line("v of token 0, read", "N", lambda n: formulas.uses_cached(n, 0).value, uses[0].value),
        line("each computed", "1", lambda n: formulas.uses_cached(n, 0).computed, uses[0].computed),
        line("  without a cache", "N", lambda n: formulas.uses_naive(n, 0).computed, uses_naive[0].computed),
    ]


def flops_lines(request: Request) -> list[Line]:
    """Arithmetic of generating N tokens behind a first one, and of the last of them, in one row."""
    config = request.config

    @lru_cache(2)
    def generated(tokens: int, on: bool) -> Flops:
        return counted.flops_generated(config, tokens, cached=on)[-1]

    def lines(name: str, kind: str, form: str, formula: Callable[[GPTConfig, int], Flops], on: bool) -> Line:
        most = FEWER, request.batch
        return compared(
            request,
            f"{name}, {kind}",
            form,
            "FLOP",
            lambda n, _: getattr(formula(config, n), kind),
            lambda n, _: getattr(generated(n, on), kind),
            most,
        )

    return [
        compared(
            request,
            "token N, cached",
            "c + 4dL*N + 2dV",
            "FLOP",
            lambda n, _: formulas.flops(config, 1, n - 1).total,
            lambda n, _: counted.flops(config, 1, n - 1).total,
        ),
        lines("cached", "linear", "c*N", formulas.flops_cached, True),
        lines("cached", "attention", "4dL*N(N+1)/2", formulas.flops_cached, True),
        lines("cached", "head", "2dV*N", formulas.flops_cached, True),
        lines("naive", "linear", "c*N(N+1)/2", formulas.flops_naive, False),
        lines("naive", "attention", "4dL*N(N+1)(2N+1)/6", formulas.flops_naive, False),
        lines("naive", "head", "2dV*N(N+1)/2", formulas.flops_naive, False),
    ]


@lru_cache(1)
def growth() -> tuple[Growth, ...]:
    """Count each cost at several numbers of tokens, and fit its exponent."""
    copied = counted.copied_bytes("growing", SLIM, GROWTH[-1], torch.float32)
    cached, naive = (counted.flops_generated(SLIM, GROWTH[-1], cached=on) for on in (True, False))

    def passes(on: bool) -> list[int]:
        return [counted.passes(n, cached=on) for n in GROWTH]

    def at(values: Sequence[int]) -> list[int]:
        return [values[n - 1] for n in GROWTH]

    return (
        fitted("bytes copied by a growing cache", 2, at(copied)),
        fitted("token passes, cached", 1, passes(True)),
        fitted("token passes, naive", 2, passes(False)),
        fitted("FLOP of linear layers, cached", 1, at([one.linear for one in cached])),
        fitted("FLOP of linear layers, naive", 2, at([one.linear for one in naive])),
        fitted("FLOP of attention, cached", 2, at([one.attention for one in cached])),
        fitted("FLOP of attention, naive", 3, at([one.attention for one in naive])),
    )


def fitted(what: str, leading: int, counts: Sequence[int]) -> Growth:
    """The exponent of some counts."""
    fit = fit_exponent(GROWTH, counts)
    return Growth(what, leading, GROWTH, tuple(counts), fit.exponent, fit.low, fit.high)


def article_lines(
    config: GPTConfig = SIZES["gpt2"], tokens: int = 500, dtype: torch.dtype = torch.float32
) -> list[str]:
    """What the article claims of the costs of generating `tokens` tokens behind a first one, in numbers, by formula.

    The article is "The KV Cache: Build It, Break It, Measure It", sections 1 and 8: the naive loop is quadratic in its
    linear layers and cubic in attention, but at such sizes the linear layers are most of it.
    """
    naive, cached = formulas.flops_naive(config, tokens), formulas.flops_cached(config, tokens)
    copied = formulas.copied_bytes(config, tokens, dtype)
    return [
        f"token passes for {tokens} tokens: naive {formulas.passes_naive(tokens):,}, "
        f"cached {formulas.passes_cached(tokens):,}",
        f"FLOP, naive:  {shares(naive)}",
        f"FLOP, cached: {shares(cached)}",
        f"naive / cached: {naive.total / cached.total:.0f} times the FLOP",
        f"past copied: growing cache {binary(copied)}, static cache {binary(0)}",
        f"cache: {binary(formulas.bytes_per_token(config, dtype))} per token in {name_of(dtype)}, "
        f"{binary(formulas.cache_bytes(config, tokens, dtype))} for {tokens}",
    ]


def shares(flops: Flops) -> str:
    """All FLOPs, and the parts in per cent."""
    parts = (f"{kind} {getattr(flops, kind) / flops.total:.1%}" for kind in ("linear", "attention", "head"))
    return f"{decimal(flops.total)}, {', '.join(parts)}"


def name_of(dtype: torch.dtype) -> str:
    """Name of a dtype without that of torch."""
    return str(dtype).removeprefix("torch.")


def shown(value: int, unit: str) -> str:
    """A value in its unit: bytes, FLOP, or none."""
    return binary(value) if unit == "bytes" else decimal(value) if unit else f"{value:,}"


def binary(size: float) -> str:
    """Bytes in the largest unit of 1024 that leaves at least one of it."""
    return scaled(size, 1024, ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))


def decimal(flops: float) -> str:
    """FLOPs in the largest unit of 1000 that leaves at least one of it."""
    return scaled(flops, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP"))


def scaled(value: float, step: int, units: Sequence[str]) -> str:
    """A number of up to four digits and its unit."""
    place = 0
    while value >= step and place < len(units) - 1:
        value, place = value / step, place + 1
    return f"{value:.4g} {units[place]}"
