"""Run a decoder in float64, whatever dtype it is written for: what rounding did then shrinks, and a bug does not."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from typing_extensions import override

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


class Promote(TorchDispatchMode):
    """While it is active, tensors of some dtypes are float64: those that come in, that are made, and that are cast to.

    A tensor that was made before keeps its dtype, so that writing into it rounds; `rounded` says that it happened.
    """

    def __init__(self, lifted: frozenset[torch.dtype]) -> None:
        super().__init__()
        self.lifted = lifted
        self.rounded = False

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if aliases(func):
            return func(*args, **(kwargs or {}))
        targets = written(func, args, kwargs or {})
        kept = [target for target in targets if target.dtype in self.lifted]
        if kept:
            return self.write(func, kept[0], args, kwargs or {})
        result = func(*self.lift(args), **self.lift(kwargs or {}))
        return result if targets else self.lift(result)

    def write(self, func: Any, target: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Write into a tensor that cannot be float64 any more: work on a copy that is, and round it back."""
        self.rounded = True
        copy = target.double()
        place = {id(target): copy}

        def moved(value: Any) -> Any:
            return place[id(value)] if id(value) in place else self.lift(value)

        func(*[moved(value) for value in args], **{name: moved(value) for name, value in kwargs.items()})
        return target.copy_(copy)

    def lift(self, value: Any) -> Any:
        """The same with float64 in place of the dtypes to lift, tensors as well as names of dtypes."""
        value = tree_map_only(Tensor, lambda x: x.double() if x.dtype in self.lifted else x, value)
        return tree_map_only(torch.dtype, lambda dtype: torch.float64 if dtype in self.lifted else dtype, value)


def aliases(func: Any) -> bool:
    """Whether an operator gives views of what it gets, which have to stay views."""
    infos = [result.alias_info for result in func._schema.returns]
    return any(info is not None and not info.is_write for info in infos)


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Tensors that an operator writes into."""
    if not func._schema.is_mutable:
        return []
    names = [argument.name for argument in func._schema.arguments if argument.is_write]
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    return [given[name] for name in names if isinstance(given.get(name), Tensor)]


@cache
def promotion(lifted: frozenset[torch.dtype]) -> Promote:
    """The one mode that lifts these dtypes."""
    return Promote(lifted)


def promoted(dtype: torch.dtype) -> AbstractContextManager[Promote]:
    """Context in which a decoder of a dtype runs in float64.

    What it casts to a narrower dtype than its own stays so, for that is a decision of the decoder and no rounding of a
    kernel: a float32 model with a cache in bfloat16 keeps it.
    """
    narrower = {torch.float64: 3, torch.float32: 2}.get(dtype, 0)
    return promotion(frozenset(FLOATS[narrower:] if dtype in (torch.float32, torch.float64) else FLOATS))
