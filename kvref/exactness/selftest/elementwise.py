"""Elementwise operators, those that pass as harmless and those that are composed: a number is the same at every place.

A vector kernel leaves the end of a vector to a scalar one, and what lies with gaps in memory too; so each operator is
called on parts of the same numbers, cut and laid out in many ways.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kvref.exactness import exact
from kvref.exactness.selftest.numbers import DTYPES, Numbers
from kvref.exactness.selftest.trial import Job, Trial, on_threads

CLAIM = "a number gives the same result at every place"

Call = Callable[[Tensor, Tensor], Tensor]
Layout = Callable[[Tensor], Tensor]

UNARY = """
abs absolute acos arccos asin arcsin atan arctan acosh asinh ceil cos deg2rad elu erf erfc erfinv exp exp2 expm1 fix
floor frac gelu hardsigmoid hardswish hardtanh leaky_relu log log10 log1p log2 mish nan_to_num neg negative positive
reciprocal relu relu6 round rsqrt sgn sigmoid sign silu sin softplus special_expit sqrt square tan tanh trunc
"""

BINARY = """
_prelu_kernel add clamp clamp_max clamp_min clip copysign div divide float_power floor_divide fmax fmin heaviside ldexp
logaddexp maximum minimum mul multiply nextafter pow rsub sub subtract true_divide
"""

WITH_A_NUMBER = """
add clamp_max clamp_min copysign div divide float_power floor_divide mul multiply rsub sub subtract true_divide
"""

FAMILIES: tuple[tuple[str, Callable[[Any, Tensor, Tensor], Tensor]], ...] = (
    (UNARY, lambda function, x, _: function(x)),
    (BINARY, lambda function, x, y: function(x, y)),
    (WITH_A_NUMBER, lambda function, x, _: function(x, 0.7)),
)

FORMS: tuple[tuple[str, Call], ...] = (
    *((name, lambda x, y, name=name: function(name)(x, y, alpha=0.3)) for name in ("add", "sub", "rsub", "subtract")),
    *(("pow", lambda x, _, power=power: torch.pow(x, power)) for power in (2, 3, 0.5, -1, 4, 1.7)),
    *(("_to_copy", lambda x, _, dtype=dtype: x.to(dtype)) for dtype in DTYPES),
    ("add", lambda x, y: x + y),
    ("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=0.3)),
    ("addcmul", lambda x, y: torch.addcmul(x, x, y, value=0.3)),
    ("clamp", lambda x, _: torch.clamp(x, -0.7, 0.9)),
    ("clip", lambda x, _: torch.clip(x, -0.7, 0.9)),
    ("div", lambda x, y: torch.div(x, y, rounding_mode="floor")),
    ("div", lambda x, y: torch.div(x, y, rounding_mode="trunc")),
    # In float32, where the quotient is infinite, one of their kernels gives NaN and the other a number.
    ("fmod", lambda x, y: torch.fmod(x.clamp(-1e4, 1e4), y)),
    ("fmod", lambda x, _: torch.fmod(x.clamp(-1e4, 1e4), 0.7)),
    ("gelu", lambda x, _: F.gelu(x, approximate="tanh")),
    ("leaky_relu", lambda x, _: F.leaky_relu(x, 0.3)),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3)),
    ("mul", lambda x, y: x * y),
    ("mul of complex numbers", lambda x, y: torch.complex(*wide(x, y)) * torch.complex(*wide(y, x))),
    ("polar", lambda x, y: torch.polar(*wide(x, y))),
    ("pow", lambda x, _: torch.pow(10000.0, x)),
    ("prelu", lambda x, _: torch.prelu(x, x.new_full((1,), 0.3))),
    ("remainder", lambda x, y: torch.remainder(x.clamp(-1e4, 1e4), y)),
    ("remainder", lambda x, _: torch.remainder(x.clamp(-1e4, 1e4), 0.7)),
    ("round", lambda x, _: torch.round(x, decimals=2)),
    ("threshold", lambda x, _: torch.threshold(x, 0.3, 1.7)),
)
"""Operators that take more than tensors, and other ways to call them."""

UNPROVED = """
dropout alpha_dropout feature_dropout native_dropout
bitwise_and bitwise_not bitwise_or bitwise_xor __and__ __or__ __xor__ __lshift__ __rshift__
"""
"""Harmless without proof: what gives other random numbers with each call, and what takes whole numbers only."""

COLUMNS = 64


def function(name: str) -> Any:
    """Torch's function of a name, which finds its overload much faster than the operator of that name does."""
    return getattr(torch, name, None) or getattr(F, name, None) or getattr(torch.ops.aten, name)


def wide(*parts: Tensor) -> list[Tensor]:
    """Parts of complex numbers of a dtype that torch is at home in."""
    return [part.to(torch.promote_types(part.dtype, torch.float32)) for part in parts]


def calls() -> dict[str, list[Call]]:
    """Every way in which each elementwise operator is called here."""
    table: defaultdict[str, list[Call]] = defaultdict(list)
    for names, call in FAMILIES:
        for name in names.split():
            table[name].append(partial(call, function(name)))
    for name, form in FORMS:
        table[name].append(form)
    return table


def layouts(quick: bool) -> dict[str, Layout]:
    """Ways to lay out some of the numbers of a vector: what surrounds a number, and where its memory begins."""
    starts, lengths = ((1, 8), (1, 7)) if quick else (range(18), (1, 2, 3, 7, 9, 31))
    slices = [(start, 959 - 5 * start % 32) for start in starts] + [(3, 3 + length) for length in lengths]
    ways: dict[str, Layout] = {f"slice {start}:{stop}": itemgetter(slice(start, stop)) for start, stop in slices}
    return {
        **ways,
        "fresh slice": lambda x: x[5:953].clone(),
        "stride 2": lambda x: x[1::2],
        f"stride {COLUMNS}": lambda x: x.view(-1, COLUMNS)[:, 3],
        "transposed": lambda x: x.view(-1, COLUMNS).t(),
        "rows with a gap": lambda x: x.view(-1, COLUMNS)[:, 1:-4],
    }


def elementwise_operators(mode: str, device: torch.device, quick: bool) -> Iterator[Job]:
    """Proofs of the elementwise operators."""
    numbers = Numbers(device)
    # Torch starts threads beyond 32768 numbers.
    n = COLUMNS * (15 if quick else 520)
    x, y = numbers.mixed(n), numbers.mixed(n)
    operands = [(x.to(dtype), without_zeros(y.to(dtype))) for dtype in DTYPES]
    for name, forms in calls().items():
        yield name, CLAIM, trials(mode, forms, operands, quick)


def without_zeros(y: Tensor) -> Tensor:
    """Second operands among which no zero or denormal number is.

    `maximum(0, -0)` may be either zero, and `fmod` by a denormal number is the difference of two infinite ones: a
    decoder that depends on those has no one right result.
    """
    return torch.where(y.abs() < torch.finfo(y.dtype).tiny, 1.0, y)


def trials(mode: str, forms: list[Call], operands: list[tuple[Tensor, Tensor]], quick: bool) -> Iterator[Trial]:
    """Each way of calling an operator in each layout, dtype and number of threads; a dtype that it lacks is skipped."""
    ways = layouts(quick)
    for call, (x, y) in product(forms, operands):
        parts = [(layout(x), layout(y)) for layout in ways.values()]
        try:
            want, *results = under(mode, call, (x, y), *parts)
        except RuntimeError as error:
            if "not implemented for" in str(error):
                continue
            raise
        for got, (name, layout) in zip(results, ways.items(), strict=True):
            yield Trial(f"{x.dtype}, {name}", got, layout(want))
        if not quick:
            again = partial(under, mode, call, (x, y))
            yield from on_threads(str(x.dtype), lambda again=again: again()[0], want)


def under(mode: str, call: Call, *operands: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Results under the lens, in inference mode, where it sees operators before torch takes them apart."""
    with torch.inference_mode(), exact(mode):
        return [call(x, y) for x, y in operands]
