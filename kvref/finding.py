"""A finding: a law that does not hold, on the smallest schedule, and where the results first part."""

from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kvref.lens import SAME_BITS, Lens, differs, gaps, relative_gap
from kvref.positions import Error
from kvref.protocol import Logits
from kvref.schedule import Schedule
from kvref.trace import Ledger, Step
from kvref.verdict import Kind, Verdict


@dataclass(frozen=True)
class Divergence:
    """Where and by how much something is not as it has to be. `step` counts from 0.

    `copied` is for what has to be the same bits whatever rounding does: never computed again, or by the same calls.
    """

    message: str
    step: int | None = None
    row: int | None = None
    position: int | None = None
    gap: float | None = None
    copied: bool = False

    def __str__(self) -> str:
        where = [f"{name} {value}" for name, value in self.places() if value is not None]
        return f"{', '.join(where)}: {self.message}" if where else self.message

    def places(self) -> list[tuple[str, int | None]]:
        """Names and numbers of the place, the step counted from 1 as in a printed schedule."""
        step = None if self.step is None else self.step + 1
        return [("step", step), ("row", self.row), ("position", self.position)]


measuring: ContextVar[list[float] | None] = ContextVar("measuring", default=None)
"""Where the gaps that a law compares are noted, so that nothing is raised for them; None where it is tried."""


class LawBroken(AssertionError):
    """A law does not hold, and here is where it shows."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence))
        self.divergence = divergence


@dataclass(frozen=True)
class Finding:
    """A broken law, for people: the law, the smallest schedule, the first divergence, and how to see it again.

    `command` are the arguments of `kvref check` that lead to the target. `lens` is the one under which it fails, and
    `own` whether that is the one which was asked for. `origin` says which keys or values in the cache are the first
    wrong ones, where the decoder shows them; `oracle` which side is wrong, where cache and uncached pass disagree; and
    `module` which module is the first to give something else. `varied` says on what other schedules it is so too.
    `errors` are those of all logits that the schedule gives.
    """

    target: str
    command: str
    law: str
    sentence: str
    decoder: str
    lens: Lens
    own: bool
    schedule: Schedule
    divergence: Divergence
    origin: str | None
    replay: str
    raised: bool = False
    verdict: Verdict | None = None
    fault: str = ""
    """What the decoder did where it neither raised nor broke the law: it meddled, died or timed out."""
    oracle: str | None = None
    module: str | None = None
    varied: str | None = None
    errors: tuple[Error, ...] = ()

    def headline(self) -> str:
        """What it is about, in a line."""
        if self.raised:
            return f"{self.target} {self.fault or 'raised'} under {self.law}"
        if self.verdict and self.verdict.kind is Kind.UNDECIDABLE:
            return f"{self.law} cannot be decided for {self.target}"
        return f"{self.law} is broken by {self.target}"

    def __str__(self) -> str:
        """Lay out the four parts: the law, the place, the schedule, the command."""
        wrong, said = self.divergence.step, [f"  {label:9} {text}" for label, text in self.details()]
        steps = [
            f"{'->' if index == wrong else '  '} {line}" for index, line in enumerate(str(self.schedule).splitlines())
        ]
        return "\n".join([self.headline(), *said[:2], "  schedule", *(f"      {step}" for step in steps), *said[2:]])

    def details(self) -> list[tuple[str, str]]:
        """What there is to say beside the schedule, each with its label; the first two go before it."""
        size = "" if self.divergence.gap is None else f" (off by {self.divergence.gap:.2g} of the largest there)"
        return [
            ("law", self.sentence),
            ("decoder", f"{self.decoder}{'' if self.own else f', lens {self.lens}'}"),
            (self.fault or ("raised" if self.raised else "diverges"), f"{self.divergence}{size}"),
            *([("oracle", self.oracle)] if self.oracle else []),
            *([("cache", self.origin)] if self.origin else []),
            *([("module", self.module)] if self.module else []),
            *([("varied", self.varied)] if self.varied else []),
            *([("verdict", f"{self.verdict.kind}: {self.verdict.because}")] if self.verdict else []),
            ("replay", self.replay),
        ]


def expect(holds: bool, otherwise: str, step: Step | int) -> None:
    """Raise `LawBroken` unless something holds that is not about two tensors, at a step or the index of one."""
    if not holds:
        raise LawBroken(Divergence(otherwise, index_of(step)))


def index_of(step: Step | int) -> int:
    """Index of a step."""
    return step if isinstance(step, int) else step.index


def expect_logits(step: Step, want: Logits, than: str, lens: Lens | None = None) -> None:
    """Raise `LawBroken` at the first position, then row, whose logits are not those wanted, under the decoder's lens.

    `want` may end early; then only its positions are compared.
    """
    if step.logits is None:
        raise TypeError(f"step {step.index} has no logits to compare")
    expect_same(step.logits[:, : want.size(1)], want, than, lens or step.decoder.lens, step.past, step)


def expect_same(got: Logits, want: Logits, than: str, lens: Lens, past: int, step: Step | int) -> None:
    """Raise `LawBroken` at the first position, counted from `past`, then row, whose logits are not those wanted.

    Logits that are NaN or infinitely large are never those wanted, not even where both are alike.
    """
    if noted(got, want):
        return
    wrong = (differs(got, want, lens) | ~usable(got) | ~usable(want)).t().nonzero()
    if not len(wrong):
        return
    new, row = (int(i) for i in wrong[0])
    mine, other = got[row, new], want[row, new]
    token = int((mine - other).abs().nan_to_num(torch.inf).argmax())
    raise LawBroken(
        Divergence(
            f"the logit of token {token} is {float(mine[token]):.6g}, but {float(other[token]):.6g} {than}",
            index_of(step),
            row,
            past + new,
            float(gaps(got, want)[row, new]),
            copied=lens == SAME_BITS,
        )
    )


def usable(logits: Logits) -> Tensor:
    """Which vectors of logits hold numbers that a token can be chosen by; -inf is one, for a token ruled out."""
    return (logits < torch.inf).all(dim=-1)


def noted(got: Tensor, want: Tensor) -> bool:
    """Whether gaps are measured and not judged now; then the largest of these is noted."""
    sizes = measuring.get()
    if sizes is not None and got.numel():
        sizes.append(relative_gap(got, want))
    return sizes is not None


def expect_keys_values(
    step: Step,
    got: list[tuple[Tensor, Tensor]],
    want: list[tuple[Tensor, Tensor]],
    than: str,
    lens: Lens = SAME_BITS,
) -> None:
    """Raise `LawBroken` at the first layer and position whose keys or values are not those wanted."""
    for layer, pair in enumerate(zip(got, want, strict=True)):
        for name, mine, other in zip(("keys", "values"), *pair, strict=True):
            if difference := first_difference(name, layer, mine, other, lens):
                raise LawBroken(replace(difference, message=f"{difference.message} {than}", step=step.index))


def first_difference(name: str, layer: int, got: Tensor, want: Tensor, lens: Lens) -> Divergence | None:
    """First position at which keys or values differ."""
    if got.shape != want.shape:
        return Divergence(f"{name} of layer {layer} have shape {tuple(got.shape)}, not {tuple(want.shape)} as")
    if got.dtype != want.dtype:
        return Divergence(f"{name} of layer {layer} are {got.dtype}, not {want.dtype} as")
    if noted(got, want):
        return None
    wrong = differs(got, want, lens).permute(2, 0, 1).nonzero()
    if not len(wrong):
        return None
    position, row, head = (int(i) for i in wrong[0])
    return Divergence(
        f"{name} of layer {layer}, head {head} are not those",
        row=row,
        position=position,
        gap=float(gaps(got, want)[row, head, position]),
        copied=lens == SAME_BITS,
    )


def expect_passes(ledger: Ledger, tokens: int, what: str, step: Step | int) -> None:
    """Raise `LawBroken` unless every layer of the decoder has passed just so many tokens.

    A layer that the model runs twice for each token, by design and without a cache too, may pass twice as many.
    """
    passes = [ledger.forwarded[layer] for layer in range(len(ledger.decoder.layers()))]
    visits = ledger.visits()
    if not any(visits):  # what no token passes are no layers
        visits = [1] * len(visits)
    takes = f"{tokens}" if set(visits) == {1} else str([tokens * visit for visit in visits])
    expect(
        all(tokens * min(visit, 1) <= seen <= tokens * visit for seen, visit in zip(passes, visits, strict=True)),
        f"{what} takes {takes} token passes, but the layers saw {passes}",
        step,
    )
