"""How products and sums are worked out so that no kernel, shape or neighbour changes a bit.

An arithmetic has two operations, a matrix product and a sum, and everything of a decoder that adds numbers up is
built of them. Results come *wide*, in the dtype that sums are worked out in, so that an
operator can go on with them and round once at its end, as fused kernels do.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kvref.exactness.prepared import Prepared

Times = Callable[[Tensor], Tensor]
"""Rows, `rows k`, to their product with a weight, `rows out`."""


class Arithmetic(ABC):
    """Matrix products and sums with results that depend on the row and the column alone."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.by_rows = Prepared[Times](self.times)
        self.by_columns = Prepared[Times](lambda weight: self.times(weight.t()))

    def wide(self, dtype: torch.dtype) -> torch.dtype:
        """Dtype in which sums of numbers of a dtype are worked out."""
        return torch.float64 if dtype == torch.float64 else torch.float32

    def widen(self, x: Tensor) -> Tensor:
        """The same numbers in the dtype that their sums are worked out in."""
        wide = self.wide(x.dtype)
        return x if x.dtype == wide else x.to(wide)

    @abstractmethod
    def times(self, weight: Float[Tensor, "out k"]) -> Times:
        """A function that multiplies rows with a weight, `x @ weight.T`, wide; it is made once for each weight."""

    def linear(self, x: Float[Tensor, "rows k"], weight: nn.Parameter) -> Float[Tensor, "rows out"]:
        """`x @ weight.T`, wide."""
        return self.by_rows[weight](x)

    def right(self, x: Float[Tensor, "rows k"], weight: nn.Parameter) -> Float[Tensor, "rows out"]:
        """`x @ weight`, wide."""
        return self.by_columns[weight](x)

    @abstractmethod
    def bmm(self, a: Float[Tensor, "batch m k"], b: Float[Tensor, "batch k n"]) -> Float[Tensor, "batch m n"]:
        """Product of two batches of matrices, wide; zeros behind the last of `k` change no bit."""

    @abstractmethod
    def total(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows 1"]:
        """Sum over the last axis, wide; zeros behind the last number change no bit."""

    def running(self, x: Float[Tensor, "*rows n"]) -> Float[Tensor, "*rows n"]:
        """Running sum along the last axis, wide: on the CPU it goes from number to number, in their order."""
        if x.device.type == "cpu":
            return self.widen(x).cumsum(-1)
        upto = torch.ones(x.size(-1), x.size(-1), dtype=torch.bool, device=x.device).tril()
        return self.total(torch.where(upto, x.unsqueeze(-2), 0.0)).squeeze(-1)

    def layer_norm(
        self, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> Tensor | None:
        """Layer norm by a kernel of torch, where one fits the claim; None where it has to be composed of sums."""
        del x, shape, weight, bias, eps
        return None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, added: Tensor | None, root: float
    ) -> Tensor | None:
        """Attention at once, where an arithmetic has a shorter way; None where its steps have to be taken one by one.

        The mask says what is `visible` (True), or is `added` to the scores; `root` scales queries and keys each.
        """
        del query, key, value, visible, added, root
        return None

    def check(self) -> None:
        """Raise `RangeExceeded` if numbers were met that are too large for the claim, and forget them."""
        return

    def forget(self) -> None:
        """Forget the numbers met so far, where a call failed."""
        return
