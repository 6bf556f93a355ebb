"""The exact lens itself: it stands between a decoder and torch's kernels, and lets nothing unknown through."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, _decomp
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from kvref.errors import NotInterceptable
from kvref.exact import attention, pointwise, products, scatters, sums
from kvref.exact.arithmetic import Arithmetic
from kvref.exact.harmless import HARMLESS
from kvref.exact.registry import OVERRIDES

REGISTERED = attention, pointwise, products, scatters, sums
"""Modules that put their overrides into `OVERRIDES` when they are imported."""

Kwargs = dict[str, Any]

PARTS = cast("dict[Any, Callable[..., Any]]", _decomp.decomposition_table)  # pyright: ignore[reportUnknownMemberType]
"""Operators that torch knows to take apart, beside those that are made of parts anyway; it has no public name."""


class ExactMode(TorchDispatchMode):
    """While it is active, every operator of torch is either harmless, replaced, taken apart, or refused.

    An operator that is refused raises `NotInterceptable`, and is kept in `refused` in case the decoder catches that.
    """

    supports_higher_order_operators = True
    """So that they come here too, and are refused."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.arithmetic = arithmetic
        self.refused: list[str] = []

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in HARMLESS:
            return func(*args, **kwargs)
        if not has_floats(args, kwargs):
            return func(*args, **kwargs)
        if instead := OVERRIDES.get(func):
            try:
                return instead(self.arithmetic, *args, **kwargs)
            except NotImplementedError:
                return self.refuse(func)
        return self.take_apart(func, args, kwargs)

    def take_apart(self, func: Any, args: tuple[Any, ...], kwargs: Kwargs) -> Any:
        """Run an operator in its parts, each of which comes back here."""
        if isinstance(func, OpOverload):
            ways: list[Callable[..., Any] | None] = [func.decompose, PARTS.get(func)]
            with self:
                for way in ways:
                    result: Any = way(*args, **kwargs) if way else NotImplemented
                    if result is not NotImplemented:
                        return result
        return self.refuse(func)

    def refuse(self, func: Any) -> Any:
        """Raise `NotInterceptable`."""
        name = str(func)
        self.refused.append(name)
        raise NotInterceptable(f"not interceptable: {name}")


def has_floats(args: tuple[Any, ...], kwargs: Kwargs) -> bool:
    """Whether an operator is given a tensor of floating-point or complex numbers: those of integers are exact."""
    return any(is_float(value) for value in (*args, *kwargs.values()))


def is_float(value: Any) -> bool:
    """Whether something is a tensor, or a list with a tensor, of floating-point or complex numbers."""
    if isinstance(value, Tensor):
        return value.dtype.is_floating_point or value.dtype.is_complex
    return isinstance(value, list | tuple) and any(is_float(part) for part in cast("list[Any]", value))
