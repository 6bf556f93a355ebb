"""Judging a law that a student wrote: it has to hold on right caches, and to fail, by its own assertion, on bugs.

Each run has one seed and a fixed number of examples, so that a file always gets the same verdict. A law is imported
anew for each decoder, and these come in a random order: what it does may not rest on how often it was called, nor on
what it is called with but for what that answers (`Front`).
"""

import ast
import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import wraps
from pathlib import Path
from random import SystemRandom
from typing import Any
from unittest import SkipTest

import pytest
import torch
from hypothesis import HealthCheck, Phase, Verbosity, event, is_hypothesis_test, seed, settings
from hypothesis.errors import FailedHealthCheck, Unsatisfiable
from hypothesis.statistics import collector

from kvref import weights
from kvref.bug import Bug
from kvref.decoder import Decoder
from kvref.errors import BadInput, one_line
from kvref.gpt2 import GPT
from kvref.learn.front import Front, Handles
from kvref.learn.healthy import SHAPE, Passes, healthy
from kvref.learn.observed import Observed
from kvref.learn.rules import require_law
from kvref.targets.reference import assemble, kind_of
from kvref.targets.resolve import load_file

LAW = "law"
"""What the student's function is called."""

EXAMPLES = 25
"""Examples on each right cache, and on each sealed bug until one kills it: a right law takes 9 at most, measured."""

NEVER = (Unsatisfiable, FailedHealthCheck, SkipTest, pytest.skip.Exception)
"""What is raised where a law is not tried at all."""

Law = Callable[..., Any]


class Fate(Enum):
    """What comes of a law on one decoder."""

    HELD = auto()
    FAILED = auto()
    RAISED = auto()
    NEVER_RAN = auto()


@dataclass(frozen=True)
class Trial:
    """A law on one decoder: what came of it and what was said, how many examples ended, and what they did."""

    fate: Fate
    said: tuple[str, ...] = ()
    ended: int = 0
    runs: int = 0
    drawn: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def sound(self) -> bool:
        """Whether it held, and ran a cache."""
        return self.fate is Fate.HELD and self.runs > 0


@dataclass(frozen=True)
class Verdict:
    """What came of a law on right caches, by what they are, and on the sealed bugs, of which none counts if one fails.

    `asserts` says whether there is any assertion in the file.
    """

    healthy: Mapping[str, Trial]
    sealed: tuple[Trial, ...]
    asserts: bool

    @property
    def killed(self) -> tuple[bool, ...]:
        """Which of the sealed bugs the law's own assertion gave away."""
        return tuple(trial.fate is Fate.FAILED for trial in self.sealed)


def judge(path: Path, bugs: Iterable[Bug]) -> Verdict:
    """Try the law of a file on right caches and on sealed bugs. Raises `BadInput` where there is no law.

    They come in an order that nobody can write a file for: one that remembers how often it was imported may fail on
    some, but not on those it should. A law that remembers nothing gets the same verdict in each order. Bugs are not
    tried any more when a right cache is not spared.
    """
    torch.set_num_threads(1)
    passes = Passes(weights.loud(SHAPE))
    right, sick = dict(healthy(passes)), [infected(bug, passes) for bug in bugs]
    order: list[str | int] = [*right, *range(len(sick))]
    SystemRandom().shuffle(order)
    spared, sealed = dict[str, Trial](), dict[int, Trial]()
    for which in order:
        if isinstance(which, str):
            spared[which] = tried(law_in(path), right[which], EXAMPLES)
        elif all(trial.sound for trial in spared.values()):
            sealed[which] = tried(law_in(path), sick[which], EXAMPLES)
    asserts = any(assertions(path))
    if all(trial.sound for trial in spared.values()):
        return Verdict({told: spared[told] for told in right}, tuple(sealed[each] for each in sorted(sealed)), asserts)
    # Once more, for the smallest example.
    smallest = {told: tried(law_in(path), right[told], EXAMPLES, True) for told in right if not spared[told].sound}
    return Verdict({told: smallest.get(told, spared[told]) for told in right}, (), asserts)


def law_in(path: Path) -> Law:
    """The student's law. Raises `BadInput`, in one line, where there is none that can be tried."""
    require_law(path)
    # The same for each import, and no memory.
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType] - torch does not type it
    random.seed(0)
    try:
        law: Any = getattr(load_file(path), LAW, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(f"{path.name} cannot be imported ({one_line(error)})") from None
    if not callable(law):
        raise BadInput(f"{path.name} has no function `{LAW}`")
    if not is_hypothesis_test(law):
        raise BadInput(f"`{LAW}` is not under @given: give it strategies to draw from")
    left = list(inspect.signature(law).parameters)
    if left != ["decoder"]:
        said = ", ".join(left) or "none"
        raise BadInput(f"`{LAW}` must leave its argument `decoder`, and no other, to kvref; left is {said}")
    return law


def assertions(path: Path) -> Iterator[ast.AST]:
    """Everything in a file that may assert."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        raised = isinstance(node, ast.Raise) and node.exc is not None and "AssertionError" in ast.unparse(node.exc)
        if isinstance(node, ast.Assert) or name.startswith("assert") or name in ("fail", "raises") or raised:
            yield node


def infected(bug: Bug, passes: Passes) -> Decoder:
    """A decoder with a bug."""
    model = weights.loud(SHAPE, kind=bug.part) if issubclass(bug.part, GPT) else passes.model
    return passes.of(assemble(kind_of(bug.part, None, bug.name), model, bug.part))


def tried(law: Law, decoder: Decoder, examples: int, shrinks: bool = False) -> Trial:
    """Try a law on one decoder, and note what its examples do."""
    observed, handles, statistics = Observed(decoder), Handles(), list[Any]()
    noted = Noted(law, observed, handles)
    fate, said = Fate.HELD, tuple[str, ...]()
    try:
        # Hypothesis types what its collector holds as None, from the value that it begins with.
        with collector.with_value(statistics.append):  # pyright: ignore[reportUnknownMemberType, reportArgumentType]
            prepared(law, examples, shrinks)(decoder=Front(observed, handles))
    except KeyboardInterrupt:
        raise
    except (AssertionError, pytest.fail.Exception) as error:
        fate, said = Fate.FAILED, falsifying(error)
    except NEVER as error:
        fate, said = Fate.NEVER_RAN, (one_line(error),)
    except BaseException as error:
        fate, said = Fate.RAISED, (one_line(error), *falsifying(error))
    finally:
        noted.undo()
    if fate is Fate.HELD and not noted.ended:
        fate = Fate.NEVER_RAN
    return Trial(fate, said, noted.ended, observed.runs, drawn(statistics))


def prepared(law: Law, examples: int, shrinks: bool) -> Law:
    """The law under settings and a seed that the course has for all; those of the student's own are taken away."""
    vars(law).pop("_hypothesis_internal_settings_applied", None)
    phases = (Phase.explicit, Phase.generate, *((Phase.shrink,) if shrinks else ()))
    health = [
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ]
    ours = settings(
        max_examples=examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.normal,
        suppress_health_check=health,
    )
    return seed(0)(ours(law))


class Noted:
    """A law whose examples are counted, and which tells Hypothesis what each of them did."""

    def __init__(self, law: Law, observed: Observed, handles: Handles) -> None:
        self.handle: Any = vars(law)["hypothesis"]
        self.law: Law = self.handle.inner_test
        self.ended = 0

        @wraps(self.law)
        def example(*args: Any, **kwargs: Any) -> None:
            observed.begin()
            handles.begin()
            try:
                self.law(*args, **kwargs)
            finally:
                for case in sorted(observed.cases):
                    event(str(case))
            self.ended += 1

        self.handle.inner_test = example

    def undo(self) -> None:
        """Give the law back as it was."""
        self.handle.inner_test = self.law


def drawn(statistics: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """In how many examples each case came up, by Hypothesis's statistics."""
    found = Counter[str]()
    for run in statistics:
        for example in run.get("generate-phase", {}).get("test-cases", ()):
            if example["status"] in ("valid", "interesting"):
                found.update(example["events"])
    return dict(found)


def falsifying(error: BaseException) -> tuple[str, ...]:
    """The example that Hypothesis ended with, in its own lines, and the text of the assertion, if it has one."""
    notes: list[str] = getattr(error, "__notes__", [])
    return tuple(line for note in notes for line in note.splitlines())
