"""Every bug file is one class that overrides one short method, and says where it was seen."""

import inspect
import re
import sys
from pathlib import Path

import pytest

import kvref.bugs
from kvref.bug import Bug, catalogue, overridden, read_bug
from kvref.cache import GrowingCache, StaticCache
from kvref.errors import BugError
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


HEAD = """
from kvref.bug import Bug
from kvref.cache import GrowingCache

class Mine(GrowingCache):
    def crop(self, length): pass
    def fork(self): return self

class Alone: pass

about = dict(family="eviction", wrong="It is.", trigger="any", witnesses=(), hint="Look.")
"""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:", r"kvref_mine\.py cannot be imported \(SyntaxError"),
        ("raise SystemExit(0)", r"cannot be imported \(SystemExit: 0"),
        ("import nothing_of_the_kind", r"cannot be imported \(ModuleNotFoundError"),
        ("bug = Bug(Mine, family='eviction')", r"cannot be imported \(TypeError"),
        ("", r"has no `bug`; end it with `bug = Bug\(...\)`"),
        ("bug = 3", "has no `bug`"),
        ("bug = Bug(Mine, **about)", "Mine must override one method, not crop, fork"),
        ("bug = Bug(Mine(), **about)", "its class must be defined there"),
        ("bug = Bug(GrowingCache, **about)", "its class must be defined there"),
        ("bug = Bug(Alone, **about)", "derive from one of the reference's"),
    ],
)
def test_a_file_that_holds_no_bug_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    (tmp_path / "kvref_mine.py").write_text(HEAD + code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kvref_mine", raising=False)
    with pytest.raises(BugError, match=message) as refused:
        read_bug("kvref_mine")
    assert "\n" not in str(refused.value)
