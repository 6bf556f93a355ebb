"""Elementwise operators whose kernels are not elementwise.

On the CPU a vector kernel works on whole vectors, and a scalar one on what is left over; where the two use different
formulas, a number comes out otherwise at another place. GELU, SiLU and sigmoid do so in float32, `rsqrt` and addition
with a factor in bfloat16. Here they are composed of operators that do not.
"""

import math

import torch
from torch import Tensor

from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.registry import instead_of

ROOT = math.sqrt(2.0 / math.pi)

PLAIN_POWERS = (0, 0.5, 1, 2, 3)
"""Powers that every kernel takes by multiplication or as a root."""


@instead_of("sigmoid")
def sigmoid(arithmetic: Arithmetic, x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`."""
    return (1.0 / (-arithmetic.widen(x)).exp_().add_(1.0)).to(x.dtype)


@instead_of("silu")
def silu(arithmetic: Arithmetic, x: Tensor) -> Tensor:
    """`x / (1 + exp(-x))`."""
    wide = arithmetic.widen(x)
    return (wide / (-wide).exp_().add_(1.0)).to(x.dtype)


@instead_of("gelu")
def gelu(arithmetic: Arithmetic, x: Tensor, *, approximate: str = "none") -> Tensor:
    """GELU, by the error function or in its tanh form (Hendrycks and Gimpel, arXiv:1606.08415)."""
    wide = arithmetic.widen(x)
    if approximate == "tanh":
        # (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which takes fewer operators.
        exponent = (wide * wide).mul_(-2.0 * ROOT * 0.044715).add_(-2.0 * ROOT).mul_(wide)
        result = wide / exponent.exp_().add_(1.0)
    else:
        result = (wide * math.sqrt(0.5)).erf_().add_(1.0).mul_(wide).mul_(0.5)
    return result if result.dtype == x.dtype else result.to(x.dtype)


@instead_of("rsqrt")
def rsqrt(arithmetic: Arithmetic, x: Tensor) -> Tensor:
    """`1 / sqrt(x)`."""
    return (1.0 / arithmetic.widen(x).sqrt()).to(x.dtype)


@instead_of("softplus")
def softplus(arithmetic: Arithmetic, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """`log(1 + exp(beta x)) / beta`, and x itself above the threshold."""
    wide = arithmetic.widen(x)
    scaled = wide * beta
    return torch.where(scaled > threshold, wide, scaled.exp().log1p() / beta).to(x.dtype)


@instead_of("mish")
def mish(arithmetic: Arithmetic, x: Tensor) -> Tensor:
    """`x tanh(softplus(x))`."""
    wide = arithmetic.widen(x)
    return (wide * softplus(arithmetic, wide).tanh()).to(x.dtype)


@instead_of("elu")
def elu(arithmetic: Arithmetic, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """`x`, and below zero `alpha (exp(x) - 1)`."""
    wide = arithmetic.widen(x)
    below = torch.expm1(wide.clamp(max=0.0) * input_scale) * alpha
    return (torch.where(wide > 0, wide, below) * scale).to(x.dtype)


@instead_of("exp2")
def exp2(arithmetic: Arithmetic, x: Tensor) -> Tensor:
    """`exp(x log 2)`."""
    return (arithmetic.widen(x) * math.log(2.0)).exp_().to(x.dtype)


@instead_of("logaddexp")
def logaddexp(arithmetic: Arithmetic, a: Tensor, b: Tensor) -> Tensor:
    """Logarithm of the sum of two exponentials."""
    wide = arithmetic.wide(torch.result_type(a, b))
    large, small = torch.maximum(a, b).to(wide), torch.minimum(a, b).to(wide)
    gap = torch.where(large == small, 0.0, small - large)
    return (large + gap.exp().log1p()).to(torch.result_type(a, b))


@instead_of("pow")
def power(arithmetic: Arithmetic, base: Tensor | float, exponent: Tensor | float) -> Tensor:
    """Powers: small whole ones by multiplication, roots by `sqrt`, and others by `exp(exponent log base)`."""
    dtype = torch.result_type(base, exponent)
    x = as_wide(arithmetic, base, dtype, exponent)
    if not isinstance(exponent, Tensor) and abs(exponent) in PLAIN_POWERS:
        size = x.sqrt() if abs(exponent) == 0.5 else x.pow(abs(exponent))
        return (size if exponent >= 0 else 1.0 / size).to(dtype)
    y = as_wide(arithmetic, exponent, dtype, base)
    size = (y * x.abs().log()).exp()
    size = torch.where((y == 0) | (x == 1), 1.0, size)
    whole, odd = y.floor() == y, y.remainder(2.0) == 1
    signed = torch.where((x < 0) & odd, -size, size)
    return torch.where((x < 0) & ~whole, torch.nan, signed).to(dtype)


def as_wide(arithmetic: Arithmetic, value: Tensor | float, dtype: torch.dtype, other: Tensor | float) -> Tensor:
    """A number or tensor as a wide tensor, on the device of the other operand."""
    if isinstance(value, Tensor):
        return value.to(arithmetic.wide(dtype))
    device = other.device if isinstance(other, Tensor) else None
    return torch.tensor(value, dtype=arithmetic.wide(dtype), device=device)


@instead_of("addcmul")
def addcmul(arithmetic: Arithmetic, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    """`x + value a b`, where a kernel may or may not round the product first."""
    wide = arithmetic.wide(x.dtype)
    product = a.to(wide) * b.to(wide)
    return (x.to(wide) + (product if value == 1 else product * value)).to(x.dtype)


@instead_of("addcdiv")
def addcdiv(arithmetic: Arithmetic, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    """`x + value a / b`."""
    wide = arithmetic.wide(x.dtype)
    quotient = a.to(wide) / b.to(wide)
    return (x.to(wide) + (quotient if value == 1 else quotient * value)).to(x.dtype)


@instead_of("lerp")
def lerp(arithmetic: Arithmetic, start: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """`start + weight (end - start)`."""
    wide = arithmetic.wide(start.dtype)
    return (start.to(wide) + (end.to(wide) - start.to(wide)) * weight).to(start.dtype)


@instead_of("add")
def add(arithmetic: Arithmetic, input: Tensor | float, other: Tensor | float, alpha: float = 1) -> Tensor:
    """`input + alpha other`, the product rounded first."""
    del arithmetic
    return torch.add(input, other if alpha == 1 else torch.mul(other, alpha))


@instead_of("sub")
def sub(arithmetic: Arithmetic, input: Tensor | float, other: Tensor | float, alpha: float = 1) -> Tensor:
    """`input - alpha other`, the product rounded first."""
    del arithmetic
    return torch.sub(input, other if alpha == 1 else torch.mul(other, alpha))


@instead_of("rsub")
def rsub(arithmetic: Arithmetic, input: Tensor, other: Tensor | float, alpha: float = 1) -> Tensor:
    """`other - alpha input`, the product rounded first."""
    del arithmetic
    product = input if alpha == 1 else torch.mul(input, alpha)
    return torch.sub(other, product) if isinstance(other, Tensor) else torch.rsub(product, other)


@instead_of("mul")
def mul(arithmetic: Arithmetic, input: Tensor, other: Tensor | float) -> Tensor:
    """`input other`; of complex numbers part by part, since there a kernel may or may not round each product."""
    del arithmetic
    if isinstance(other, complex):
        raise NotImplementedError
    if not (input.is_complex() and isinstance(other, Tensor) and other.is_complex()):
        return torch.mul(input, other)
    real = input.real * other.real - input.imag * other.imag
    return torch.complex(real, input.real * other.imag + input.imag * other.real)
