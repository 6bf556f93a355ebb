"""The exact lens itself: it stands between a decoder and torch's kernels, and lets nothing unknown through."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, _decomp
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from kvref.errors import NotInterceptable
from kvref.exactness import attention, pointwise, products, scatters, solves, sums
from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.harmless import ELEMENTWISE, MOVES
from kvref.exactness.registry import OVERRIDES, overloads

REGISTERED = attention, pointwise, products, scatters, solves, sums
"""Modules that put their overrides into `OVERRIDES` when they are imported."""

Kwargs = dict[str, Any]

PARTS = cast("dict[Any, Callable[..., Any]]", _decomp.decomposition_table)  # pyright: ignore[reportUnknownMemberType]
"""Operators that torch knows to take apart, beside those that are made of parts anyway; it has no public name."""


Uncast = cast("Callable[[], object]", torch._C._DisableAutocast)  # pyright: ignore[reportPrivateUsage]
"""While one of these lives, autocast does nothing; torch has no public name for it."""


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
        if func in MOVES:
            return func(*args, **kwargs)
        kinds = kinds_of(args, kwargs)
        if func in ELEMENTWISE and "complex" not in kinds:
            return func(*args, **kwargs)
        if not kinds and getattr(func, "namespace", "") == "aten":
            return func(*args, **kwargs)
        if "complex" in kinds and func not in COMPLEX:
            return self.refuse(func)
        if instead := OVERRIDES.get(func):
            uncast = Uncast()
            try:
                return instead(self.arithmetic, *args, **kwargs)
            except NotImplementedError:
                return self.refuse(func)
            finally:
                del uncast
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


COMPLEX = frozenset(
    overload for name in ("add", "sub", "mul") for overload in (*overloads(name), *overloads(f"{name}_"))
)
"""Overridden operators that know complex numbers; others would go by their real part."""


def kinds_of(args: Any, kwargs: Kwargs) -> set[str]:
    """Whether an operator is given floating-point or complex numbers, or asked for them; integers alone are exact."""
    return {kind for value in (*args, *kwargs.values()) for kind in kinds_in(value)}


def kinds_in(value: Any) -> set[str]:
    """What is in one argument."""
    if isinstance(value, Tensor):
        value = value.dtype
    if isinstance(value, torch.dtype):
        return {"complex"} if value.is_complex else {"float"} if value.is_floating_point else set()
    if isinstance(value, float | complex):
        return {"float"}
    if isinstance(value, list | tuple):
        return {kind for part in cast("list[Any]", value) for kind in kinds_in(part)}
    return set()
