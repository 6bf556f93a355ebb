"""The control: the trials do see an arithmetic that is not invariant."""

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from kvref.exactness import MODES, fold, grid
from kvref.exactness.arithmetic import Times
from kvref.exactness.selftest import trial
from kvref.exactness.selftest.numbers import DTYPES, Numbers, data
from kvref.exactness.selftest.products import row_trials, weight_trials
from kvref.exactness.selftest.trial import BITS, Proof, Trial, Trials, settled

CLAIM = "the trials see a change of order, and one in the last place"


class Crooked(fold.Fold):
    """An arithmetic that is wrong on purpose: one row alone is summed from its first number to its last."""

    name = "crooked"

    @override
    def times(self, weight: Tensor) -> Times:
        times, wide = super().times(weight), self.widen(weight)
        return lambda x: (self.widen(x) * wide).cumsum(-1)[None, :, -1] if x.size(0) == 1 else times(x)


def negative_control(mode: str, device: torch.device) -> Proof:
    """Proof that these trials have the power to fail; torch's own kernels fail them on nearly every machine."""
    proof = settled(mode, "negative control", CLAIM, seen(mode, device))
    native = "fails" if differs(native_rows(device)) else "passes"
    return replace(proof, detail=f"native F.linear {native} them") if proof.holds else proof


def seen(mode: str, device: torch.device) -> Iterator[Trial]:
    """What must be seen: a sum in another order, and one number changed in its last place."""
    for dtype in DTYPES:
        crooked = weight_trials(Crooked(), Numbers(device), ((64, 5),), (dtype,), quick=True)
        yield caught(f"{dtype}, a sum in another order", crooked)
        x = Numbers(device).random(4, 9).to(dtype)
        yield caught(f"{dtype}, one number changed in its last place", [Trial("", planted(x), x)])
    x, weight = Numbers(device).random(2, 16).float(), Numbers(device, 1).random(5, 16).float()
    changed = planted(x) if mode != "grid" else x + x.new_tensor([0.0] * 15 + [1 / grid.STEPS])
    times = MODES[mode]().times(weight)
    yield caught("a change of one operand that the mode can see", [Trial("", times(changed), times(x))])


def caught(where: str, trials: Trials) -> Trial:
    """A trial that holds if one of others fails."""
    return Trial(f"{where} is not seen", torch.tensor(differs(trials)), torch.tensor(True))


def differs(trials: Trials) -> bool:
    """Whether a trial fails."""
    return any(not trial.same(got, want) for _, got, want in trials)


def planted(x: Tensor) -> Tensor:
    """A copy whose last number is changed in its last place."""
    changed = x.contiguous().clone()
    changed.view(BITS[x.dtype.itemsize]).view(-1)[-1] ^= 1
    return changed


def native_rows(device: torch.device) -> Iterator[Trial]:
    """Trials of torch's own kernel, which gives a row other bits alone than among others on nearly every machine."""
    for kind, x, weight in data(Numbers(device), 64, 64, 64, torch.float32):
        yield from row_trials(lambda x, weight=weight: F.linear(x, weight), x, kind, quick=True)
