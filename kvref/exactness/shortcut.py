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
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from kvref.exactness import attention, pointwise, products, sums
from kvref.exactness.arithmetic import Arithmetic

Function = Callable[..., Any]

AS_THEY_ARE = """
__getitem__ __setitem__ chunk clone contiguous copy_ cos eq expand flatten ge gt index_copy_ index_select le lt
masked_fill narrow neg permute repeat_interleave reshape select sin split squeeze t transpose tril triu unbind unflatten
unsqueeze view view_as zero_
"""
"""Methods that are harmless with whatever arguments they take."""

FUNCTIONS: tuple[Function, ...] = (
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


def embedding(
    arithmetic: Arithmetic,
    input: Tensor,  # noqa: A002 - torch's own name for it
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table, which are left as they are."""
    del arithmetic, norm_type, scale_grad_by_freq, sparse
    if max_norm is not None:
        raise NotImplementedError
    return F.embedding(input, weight, padding_idx)


INSTEAD: dict[Function, Function] = {
    F.embedding: embedding,
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

any_autocast = torch._C._is_any_autocast_enabled  # pyright: ignore[reportPrivateUsage]
"""Whether autocast is on for any device; torch has no public name for it."""


PLAIN = frozenset({Tensor, Parameter})


class Shortcut(TorchFunctionMode):
    """Answers the commonest calls, and leaves the others alone."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()
        self.arithmetic = arithmetic

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        instead = INSTEAD.get(func)
        # Other subclasses of Tensor may have a way of their own.
        if (answerable(args) if instead else func in HARMLESS) and PLAIN.issuperset(types):
            undispatched = Undispatched()
            try:
                return instead(self.arithmetic, *args, **kwargs) if instead else func(*args, **kwargs)
            except NotImplementedError:
                pass  # then let the dispatch mode say so
            finally:
                del undispatched
        return func(*args, **kwargs)


def answerable(args: Any) -> bool:
    """Whether a call is about real numbers, or tokens, and torch would do nothing else on its way to the operator."""
    if torch.is_grad_enabled() or any_autocast():
        return False
    return bool(args) and isinstance(args[0], Tensor) and not args[0].is_complex()
