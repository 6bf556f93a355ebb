"""The claim, counted: random schedules of every operation on the reference, and how many show a differing bit."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context

import torch

from kvref.lens import dtypes_called
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import Bench, ReferenceTarget
from kvref.targets.reference import DECODERS

LAW = "no-operation-makes-logits-differ-from-uncached-ones"
"""The law that is tried: every logit of every step, whatever was done to the cache, against one uncached pass."""

BATCH = 250
"""Schedules of one task."""


@dataclass(frozen=True)
class Task:
    """Schedules to try with one kind of cache in one dtype."""

    kind: str
    dtype: str
    lens: str
    device: str
    seed: int


@dataclass(frozen=True)
class Tally:
    """What came of a task: schedules tried, tokens run, and the finding, if a bit differed."""

    task: Task
    schedules: int
    tokens: int
    finding: str = ""


def measure_bits(
    schedules: int,
    lens: str = "tile",
    dtypes: Sequence[str] = ("float32", "bfloat16", "float16", "float64"),
    device: str = "cpu",
    seed: int = 0,
    workers: int = 1,
) -> Iterator[Tally]:
    """Try at least so many schedules, spread over both caches and all dtypes, and give each task's tally as it comes.

    Seeds differ from task to task, so that no schedule is meant to come twice.
    """
    combinations = list(product(DECODERS, dtypes))
    rounds = -(-schedules // (BATCH * len(combinations)))
    order = [combination for _ in range(rounds) for combination in combinations]
    # Seeds of two runs are a million apart.
    tasks = [Task(kind, dtype, lens, device, 1_000_000 * seed + n) for n, (kind, dtype) in enumerate(order)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(tried, task) for task in tasks]):
            yield done.result()


def tried(task: Task) -> Tally:
    """Try the schedules of one task."""
    from kvref.law import laws

    torch.set_num_threads(1)
    bench = Bench(torch.device(task.device), task.lens, dtypes_called([task.dtype]))
    target = ReferenceTarget(f"reference:{task.kind}", task.kind, bench)
    outcome = search(laws()[LAW], target, Effort(BATCH, task.seed, shrink=False))
    tokens = sum(decoder.meter.tokens for decoder in target.decoders())
    return Tally(task, outcome.examples, tokens, told(outcome))


def told(outcome: Outcome) -> str:
    """What went wrong, or went another way than under the lens alone; nothing where every bit was the same."""
    if outcome.finding:
        return str(outcome.finding)
    return "" if outcome.status is Status.HELD and not outcome.reason else f"{outcome.status}: {outcome.reason}"
