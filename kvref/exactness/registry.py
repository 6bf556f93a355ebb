"""Which function stands in for which operator."""

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

Override = Callable[..., Any]
"""Takes the arithmetic, then what the operator takes, and gives what the operator gives."""

OVERRIDES: dict[OpOverload, Override] = {}


def instead_of(*names: str) -> Callable[[Override], Override]:
    """Register a function for operators of aten: for `mm` also its form with `out`, and for `relu` also `relu_`."""

    def register(override: Override) -> Override:
        for name in names:
            for packet, wrap in ((name, None), (f"{name}_", in_place)):
                for overload in overloads(packet):
                    takes_out = any(argument.is_out for argument in schema_of(overload).arguments)
                    wrapped = with_out(override) if takes_out else wrap(override) if wrap else override
                    OVERRIDES[overload] = wrapped
        return override

    return register


def overloads(name: str) -> list[OpOverload]:
    """Every overload of an operator of aten; none where this torch has no such operator."""
    packet: OpOverloadPacket | None = getattr(torch.ops.aten, name, None)
    return [getattr(packet, overload) for overload in packet.overloads()] if packet else []


def schema_of(overload: OpOverload) -> Any:
    """What an operator takes and gives."""
    return overload._schema  # pyright: ignore[reportPrivateUsage] - torch has no public name for it


def in_place(override: Override) -> Override:
    """Write the result into the first argument."""

    def call(arithmetic: Any, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = override(arithmetic, target, *args, **kwargs)
        if not torch.can_cast(result.dtype, target.dtype):
            raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {target.dtype}")
        return target.copy_(result)

    return call


def with_out(override: Override) -> Override:
    """Write the result into `out`."""

    def call(arithmetic: Any, *args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = override(arithmetic, *args, **kwargs)
        return out.resize_(result.shape).copy_(result)

    return call
