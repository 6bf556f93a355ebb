"""What a lens costs: passes under each lens against the same passes under ordinary kernels, paired in one run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from kvref.cache import Cache
from kvref.config import GPTConfig
from kvref.exactness import MODES, exact
from kvref.gpt2 import GPT
from kvref.promote import promoted
from kvref.weights import loud

SHAPES = {
    "tiny": (GPTConfig(block_size=64, vocab_size=257, n_layer=2, n_head=2, n_embd=16), 16),
    "gpt2": (GPTConfig(), 128),
}
"""Shapes to measure, and the tokens of a pass: a tiny one as the laws use, and GPT-2 small."""

Numerics = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Cost:
    """Seconds of ordinary kernels, and how many times as long the lens takes, in the median of paired runs."""

    shape: str
    dtype: str
    lens: str
    what: str
    native: float
    ratio: float
    pairs: int


def measure_speed(
    shapes: Sequence[str] = tuple(SHAPES),
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    lenses: Sequence[str] = (*MODES, "float64"),
    device: str = "cpu",
    seconds: float = 10.0,
) -> Iterator[Cost]:
    """Time a full pass and a decode step under each lens, for about so many seconds each.

    Every timing under a lens stands beside one without it, taken right before.
    """
    for shape in shapes:
        config, tokens = SHAPES[shape]
        for dtype in dtypes:
            model = loud(config, 0, dtype, torch.device(device))
            for lens in lenses:
                for what, one in passes(model, tokens, device).items():
                    native, ratio, pairs = paired(one, numerics(lens, dtype), seconds, device)
                    yield Cost(shape, str(dtype).removeprefix("torch."), lens, what, native, ratio, pairs)


def numerics(lens: str, dtype: torch.dtype) -> Numerics:
    """Context of a lens."""
    return (lambda: promoted(dtype)) if lens == "float64" else (lambda: exact(lens))


@dataclass(frozen=True)
class Pass:
    """What is timed, and what has to be there before."""

    prepare: Callable[[], Cache | None]
    run: Callable[[Cache | None], object]


def passes(model: GPT, tokens: int, device: str) -> dict[str, Pass]:
    """An uncached pass over all tokens, and one token onto a past of as many less one."""
    prompt = torch.zeros(1, tokens, dtype=torch.long, device=device)
    return {
        "full": Pass(lambda: None, lambda _: model(prompt)),
        "decode": Pass(lambda: model(prompt[:, :-1])[1], lambda cache: model(prompt[:, -1:], cache)),
    }


def paired(what: Pass, context: Numerics, seconds: float, device: str) -> tuple[float, float, int]:
    """Median seconds without the lens, median ratio of pairs, and how many pairs there were."""
    native, ratios, end = list[float](), list[float](), perf_counter() + seconds
    with torch.inference_mode():
        timed(what, context, device)
        while len(ratios) < 3 or perf_counter() < end:
            native.append(timed(what, nullcontext, device))
            ratios.append(timed(what, context, device) / native[-1])
    return median(native), median(ratios), len(ratios)


def timed(what: Pass, context: Numerics, device: str) -> float:
    """Seconds of one pass, without its preparation."""
    with context():
        prepared = what.prepare()
    synchronize(device)
    begun = perf_counter()
    with context():
        what.run(prepared)
    synchronize(device)
    return perf_counter() - begun


def synchronize(device: str) -> None:
    """Wait until a GPU has done what it was asked for."""
    if device != "cpu":
        torch.cuda.synchronize(device)
