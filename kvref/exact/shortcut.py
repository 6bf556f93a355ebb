"""A shorter way for the calls that decoders make most: seen as Python functions, before torch takes them apart.

A dispatch mode sees everything, and takes about ten microseconds a call, more than most operators of a tiny decoder. A
function mode takes three and sees only what Python calls. So this one answers the calls it knows, by the same overrides
and with the same bits, and leaves every other to `ExactMode`, which stays active below it.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from kvref.exact import attention, pointwise, products, sums
from kvref.exact.arithmetic import Arithmetic

Function = Callable[..., Any]

AS_THEY_ARE = """
__getitem__ __setitem__ chunk clone contiguous copy_ cos eq expand flatten ge gt index_copy_ index_select le lt
masked_fill narrow neg permute repeat_interleave reshape select sin split squeeze t transpose tril triu unbind unflatten
unsqueeze view view_as zero_
"""
"""Methods that are harmless with whatever arguments they take."""

FUNCTIONS: tuple[Function, ...] = (
    F.embedding,
    torch.arange,
    torch.cat,
    torch.full,
    torch.index_select,
    torch.ones,
    torch.stack,
    torch.where,
    torch.zeros,
)
"""Functions that are harmless with whatever arguments they take."""

INSTEAD: dict[Function, Function] = {
    F.linear: products.linear,
    F.layer_norm: sums.layer_norm,
    F.gelu: pointwise.gelu,
    F.scaled_dot_product_attention: attention.attention,
    Tensor.add: pointwise.add,
    Tensor.mul: pointwise.mul,
}
"""Functions with the parameters of the operators that their overrides stand in for."""

HARMLESS = frozenset(
    {*FUNCTIONS, *(cast("Function", getattr(Tensor, name)) for name in AS_THEY_ARE.split())},
)


Undispatched = cast("Callable[[], object]", torch._C._DisableTorchDispatch)  # pyright: ignore[reportPrivateUsage]
"""While one of these lives, dispatch modes see nothing; torch has no public name for it."""


class Shortcut(TorchFunctionMode):
    """Answers the commonest calls, and leaves the others alone."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()
        self.arithmetic = arithmetic

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in HARMLESS:
            undispatched = Undispatched()
            try:
                return func(*args, **kwargs)
            finally:
                del undispatched
        instead = INSTEAD.get(func)
        if instead is None or not real(args):
            return func(*args, **kwargs)
        undispatched = Undispatched()
        try:
            return instead(self.arithmetic, *args, **kwargs)
        finally:
            del undispatched


def real(args: Any) -> bool:
    """Whether the first argument is a plain tensor of floating-point numbers."""
    first = args[0] if args else None
    return isinstance(first, Tensor) and first.dtype.is_floating_point
