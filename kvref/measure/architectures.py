"""The survey: every causal language model of transformers, tiny and unmodified, cached against uncached by bits."""

import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from kvref.errors import NotInterceptable, RangeExceeded, TargetError
from kvref.exactness import exact
from kvref.promote import promoted
from kvref.scaling import same_bits
from kvref.targets.causal_lm import CausalLM
from kvref.targets.tiny import model_types, tiny_model

TOKENS = 20
SPLITS: tuple[tuple[int, ...], ...] = ((6, *[1] * 14), (1, 3, 1, 5, 1, 4, 5))
"""Ways to cut the tokens: a prefill and single tokens, and odd chunks. Both cross a window of 8 twice."""

ATTENTIONS = ("eager", "sdpa")
CACHES = ("dynamic", "static")

HONEST = 1e-9
"""Gap in float64 up to which an architecture counts as honest. Rounding stays below 1e-11; the smallest real fault that
was met is 5.7e-5."""

SECONDS = 900
"""After which an architecture is given up."""


class Result(StrEnum):
    """What came of one architecture with one kind of attention and of cache."""

    EQUAL = "equal"
    ORDER = "equal under grid"
    EQUIVALENT = "equivalent"
    DIFFERS = "differs"
    REFUSED = "not interceptable"
    RAISED = "raises"
    ABSENT = "not built"


@dataclass(frozen=True)
class Row:
    """One line of the table. `gap` is that of ordinary float32 kernels, `gap64` that of float64."""

    model_type: str
    attention: str
    cache: str
    result: Result
    gap: float | None = None
    gap64: float | None = None
    reason: str = ""

    @property
    def honest(self) -> bool:
        """Whether the architecture is right in float64."""
        return self.gap64 is not None and self.gap64 <= HONEST


def survey(types: Sequence[str] = (), tick: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Try architectures one after the other, each in a process of its own; all of them where none is named."""
    for model_type in types or model_types():
        tick(model_type)
        yield from apart(model_type)


def apart(model_type: str) -> list[Row]:
    """Rows of one architecture, from a child process that may crash or hang."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=send, args=(theirs, model_type))
    child.start()
    theirs.close()
    try:
        if ours.poll(SECONDS):
            return ours.recv()
        reason = f"nothing came in {SECONDS} s"
    except EOFError:
        reason = f"the process ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()
    return [Row(model_type, "", "", Result.RAISED, reason=reason)]


def send(pipe: Connection, model_type: str) -> None:
    """Send the rows of one architecture."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    pipe.send([row(model_type, attention, cache) for attention, cache in product(ATTENTIONS, CACHES)])


def row(model_type: str, attention: str, cache: Any) -> Row:
    """Build and try one architecture."""
    try:
        # A float32 model lifted to float64 keeps tables that it made in float32; minimax makes one in two ways.
        decoder, lifted = (
            CausalLM(tiny_model(model_type, attention=attention, dtype=dtype), cache)
            for dtype in (torch.float32, torch.float64)
        )
    except TargetError as error:
        return Row(model_type, attention, cache, Result.ABSENT, reason=one_line(error))
    except Exception as error:
        return Row(model_type, attention, cache, Result.ABSENT, reason=f"{type(error).__name__}: {one_line(error)}")
    try:
        with torch.inference_mode():
            found = tried(decoder, lifted, model_type, attention, cache)
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        found = Row(model_type, attention, cache, Result.RAISED, reason=reason)
    if cache == "static" and found.reason and not decoder.declares_static:
        return replace(found, reason=f"{found.reason}; its class declares no static cache")
    return found


REASONS = {
    Result.EQUAL: "",
    Result.ORDER: "the order of keys",
    Result.EQUIVALENT: "another expression for a chunk than for a step: it vanishes in float64",
    Result.DIFFERS: "wrong in float64 too, or not causal",
}


def tried(decoder: CausalLM, lifted: CausalLM, model_type: str, attention: str, cache: str) -> Row:
    """Compare one decoder with itself: ordinary kernels in float32 and float64, then bit for bit."""
    gap, gap64 = largest(decoder, nullcontext), in_float64(lifted)
    result = Result.EQUAL
    try:
        if largest(decoder, lambda: exact("tile")):
            honest = gap64 is not None and gap64 <= HONEST
            result = Result.ORDER if in_any_order(decoder) else Result.EQUIVALENT if honest else Result.DIFFERS
    except NotInterceptable as error:
        return Row(model_type, attention, cache, Result.REFUSED, gap, gap64, str(error))
    return Row(model_type, attention, cache, result, gap, gap64, REASONS[result])


def in_float64(lifted: CausalLM) -> float | None:
    """The gap in float64; None for code that runs in its own dtype alone, as what fills a mask with its limits may."""
    try:
        return largest(lifted, lambda: promoted(torch.float32))
    except RuntimeError:
        return None


def in_any_order(decoder: CausalLM) -> bool:
    """Whether the bits are equal under grid, for which the order of keys does not matter."""
    try:
        return not largest(decoder, lambda: exact("grid"))
    except RangeExceeded:
        return False


def largest(decoder: CausalLM, numerics: Callable[[], AbstractContextManager[object]]) -> float:
    """The largest gap over all splits; 0 only where every bit is the same."""
    tokens = torch.randint(3, decoder.vocab_size, (2, TOKENS), generator=torch.Generator().manual_seed(1))
    with numerics():
        whole = decoder.full(tokens)
    worst = 0.0
    for split in SPLITS:
        handle, parts = decoder.start(2, TOKENS), list[Tensor]()
        for part in torch.split(tokens, list(split), dim=1):
            with numerics():
                logits, handle = decoder.step(handle, part)
            parts.append(logits)
        worst = max(worst, gap_between(torch.cat(parts, dim=1), whole))
    return worst


def gap_between(got: Tensor, want: Tensor) -> float:
    """Largest difference over the largest size; 0 only where every bit is the same, and every number finite."""
    if same_bits(got, want) and bool(want.isfinite().all()):
        return 0.0
    gap = (got.double() - want.double()).abs().nan_to_num(torch.inf).amax() / want.double().abs().amax()
    return max(float(gap), torch.finfo(torch.float64).tiny)


def one_line(error: BaseException) -> str:
    """The first line of an exception."""
    return (str(error).splitlines() or [""])[0][:160]
