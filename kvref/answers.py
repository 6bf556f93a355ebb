"""What a decoder may answer: each function takes an answer as it came, and gives it in one form or refuses it.

A refusal is `Misshapen`: neither a crash of the decoder nor a broken law, but an answer that no law can read.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from kvref.cache import Rows
from kvref.errors import one_line
from kvref.lens import DTYPES
from kvref.protocol import Logits

T = TypeVar("T")


class DecoderRaised(Exception):
    """The decoder under test raised where it should have answered. The cause is its own exception."""

    def __init__(self, call: str, error: BaseException) -> None:
        super().__init__(f"{call} raised {one_line(error)}")
        self.call = call
        self.error = error
        self.step: int | None = None


class OutOfReach(DecoderRaised):
    """The lens cannot be used on this decoder; the cause says why. It says nothing about the decoder."""


class Refused(DecoderRaised):
    """The decoder says of an operation that it cannot do it now, by `NotImplementedError`. That is no fault."""

    def __str__(self) -> str:
        return f"the target refuses {self.call} here" + (f" ({self.error})" if str(self.error) else "")


class Misshapen(DecoderRaised):
    """The decoder answered, with something that is no tensor of logits."""


class Meddled(DecoderRaised):
    """The decoder answered, and changed on the way what is not its own. The cause says what."""

    def __str__(self) -> str:
        return f"{self.call} {self.error}"


def logits(call: str, answer: object, shape: tuple[int, ...], dtype: torch.dtype | None) -> Logits:
    """Floating-point logits of a shape, `batch new vocab_size`, and of a dtype where there were some before.

    What comes back is a copy: a decoder may answer with a view of a buffer that its next call writes over.
    """
    if not isinstance(answer, Tensor):
        raise Misshapen(call, TypeError(f"logits must be a tensor, not {type(answer).__name__}"))
    if answer.shape != shape:
        raise Misshapen(call, TypeError(f"logits must have shape {shape}, not {tuple(answer.shape)}"))
    if answer.dtype not in DTYPES.values():
        names = ", ".join(DTYPES)
        raise Misshapen(call, TypeError(f"logits must be floating-point numbers ({names}), not {answer.dtype}"))
    if answer.is_meta or answer.layout is not torch.strided:
        raise Misshapen(call, TypeError("logits must hold numbers in an ordinary layout, not meta or sparse"))
    if dtype not in (None, answer.dtype):
        raise Misshapen(call, TypeError(f"logits must be {dtype} as before, not {answer.dtype}"))
    return answer.clone()


def tokens(call: str, answer: Any) -> list[list[int]]:
    """Tokens for each row as lists of numbers, in whatever they came."""
    try:
        rows = [[(token, int(token)) for token in row] for row in answer]
    except (TypeError, ValueError) as error:
        raise Misshapen(call, TypeError("it must give a list of tokens for each row")) from error
    if any(token != number for row in rows for token, number in row):
        raise Misshapen(call, TypeError("tokens must be whole numbers"))
    return [[number for _, number in row] for row in rows]


def pair(call: str, answer: Any) -> list[Any]:
    """Logits and the handle of a cache, neither of them looked at."""
    if not isinstance(answer, tuple | list) or len(cast("list[Any]", answer)) != 2:
        raise Misshapen(call, TypeError("it must give (logits, cache)"))
    return cast("list[Any]", answer)


def keys_values(call: str, answer: Any) -> tuple[Rows, Rows]:
    """Keys and values of one layer."""
    parts = cast("list[Any]", answer) if isinstance(answer, tuple | list) else []
    if [getattr(part, "ndim", None) for part in parts] != [4, 4]:
        raise Misshapen(call, TypeError("it must give two tensors, each batch n_kv_head seq head_dim"))
    try:
        keys, values = (torch.as_tensor(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise Misshapen(call, error) from error
    return keys, values


def number(call: str, answer: Any) -> int:
    """One whole number, be it in a tensor."""
    whole = isinstance(answer, Tensor) and answer.numel() == 1 and float(answer).is_integer()
    if isinstance(answer, int) or whole:
        return int(answer)
    raise Misshapen(call, TypeError(f"it must give a whole number, not {type(answer).__name__}"))


def list_of(call: str, answer: Any, kind: type[T]) -> list[T]:
    """As many of a kind as there are."""
    if isinstance(answer, Iterable):
        parts = list(cast("Iterable[Any]", answer))
        if all(isinstance(part, kind) for part in parts):
            return parts
    raise Misshapen(call, TypeError(f"it must give a list of {kind.__name__}s"))
