"""What a proof is made of: pairs of tensors that must be the same in every bit."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kvref.errors import KvrefError

BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}
"""Integers that are as wide as floats of so many bytes."""


@dataclass(frozen=True)
class Proof:
    """What was tried on one operator, and whether it is as a mode claims."""

    mode: str
    operator: str
    claim: str
    holds: bool
    tried: int
    detail: str = ""
    """Where it failed first. Of the control, whether torch's own kernels would have failed."""


class Trial(NamedTuple):
    """Two tensors that must be the same in every bit."""

    where: str
    got: Tensor
    want: Tensor


Trials = Iterable[Trial]
Job = tuple[str, str, Trials]
"""An operator, the claim, and the trials that prove it."""


def settled(mode: str, operator: str, claim: str, trials: Trials) -> Proof:
    """The proof that an operator's trials give; the first one that fails ends it, and so does an error."""
    tried = 0
    try:
        with torch.no_grad():
            for tried, trial in enumerate(trials, start=1):
                if not same(trial.got, trial.want):
                    return Proof(mode, operator, claim, False, tried, trial.where)
    except (RuntimeError, KvrefError) as error:
        return Proof(mode, operator, claim, False, tried, f"raised {str(error).splitlines()[0]}")
    return Proof(mode, operator, claim, tried > 0, tried, "" if tried else "nothing could be tried")


def same(got: Tensor, want: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits, where every NaN is like every other."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if got.is_complex():
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    if not got.is_floating_point():
        return torch.equal(got, want)
    bits = BITS[got.dtype.itemsize]
    if torch.equal(got.view(bits), want.view(bits)):
        return True
    got, want = (x.masked_fill(x.isnan(), torch.nan).view(bits) for x in (got, want))
    return torch.equal(got, want)


@contextmanager
def threads(count: int) -> Generator[None]:
    """Context in which torch uses a number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_threads(where: str, call: Callable[[], Tensor], want: Tensor) -> Iterator[Trial]:
    """The same in as many threads as there are cores, or two; a GPU takes no notice of them."""
    if want.device.type == "cpu":
        count = max(2, os.cpu_count() or 1)
        with threads(count):
            got = call()
        yield Trial(f"{where}, {count} threads", got, want)
