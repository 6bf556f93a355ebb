"""Every bug file is one class that overrides one short method, and says where it was seen."""

import inspect
import re
from pathlib import Path

import pytest

import kvref.bugs
from kvref.bug import Bug, catalogue, overridden
from kvref.cache import GrowingCache, StaticCache
from kvref.generate import BatchGeneration, Session
from kvref.gpt2 import GPT, CausalSelfAttention
from kvref.speculate import Speculation
from kvref.targets.reference import GrowingDecoder, StaticDecoder

FILES = sorted(path.stem for path in Path(kvref.bugs.__path__[0]).glob("*.py") if path.stem != "__init__")
SEAMS = (
    GPT,
    CausalSelfAttention,
    GrowingCache,
    StaticCache,
    GrowingDecoder,
    StaticDecoder,
    Session,
    Speculation,
    BatchGeneration,
)
FAMILIES = {
    "position",
    "mask",
    "write",
    "read",
    "eviction",
    "lifetime",
    "aliasing",
    "batching",
    "layout",
    "numerics",
    "sampling loop",
}


@pytest.fixture(params=FILES)
def bug(request: pytest.FixtureRequest) -> Bug:
    return catalogue()[request.param.replace("_", "-")]


def test_the_catalogue_has_every_file() -> None:
    assert [name.replace("-", "_") for name in catalogue()] == FILES


def test_the_class_is_named_after_the_file(bug: Bug) -> None:
    assert re.sub(r"(?<!^)(?=[A-Z])", "-", bug.part.__name__).lower() == bug.name


def test_one_method_of_at_most_eight_lines_is_overridden(bug: Bug) -> None:
    assert bug.part.__base__ in SEAMS
    (name,) = overridden(bug.part)
    method = getattr(bug.part, name)
    assert getattr(method, "__override__", False)
    lines = inspect.getsource(method).splitlines()
    assert len(lines) <= 2 + 8
    assert any("# reference: " in line for line in lines)
    assert list(inspect.signature(method).parameters) == list(
        inspect.signature(getattr(bug.part.__base__, name)).parameters
    )


def test_it_says_what_is_wrong_when_and_where_it_was_seen(bug: Bug) -> None:
    assert bug.wrong.endswith(".")
    assert bug.hint
    assert bug.trigger
    assert bug.family in FAMILIES
    assert bug.witnesses
    assert all(witness.startswith("https://github.com/") for witness in bug.witnesses)


def test_its_diff_is_computed_and_small(bug: Bug) -> None:
    changed = [line for line in bug.diff().splitlines()[2:] if line[:1] in "+-"]
    assert 1 <= len(changed) <= 10
