"""Cheats by what an exercise is about: laws that look behind answers or remember, repairs that borrow the reference."""

import traceback
from pathlib import Path

import pytest
import torch

from kvref import weights
from kvref.answers import DecoderRaised
from kvref.learn.apart import Judged, judge_apart
from kvref.learn.front import Front, Handles
from kvref.learn.healthy import SHAPE, Passes, healthy
from kvref.learn.observed import Observed
from kvref.learn.repairs import repair_exercises
from kvref.learn.write import writings

pytestmark = pytest.mark.late

REPAIRS = {each.name: each for each in repair_exercises()}


HEAD = "import torch\nfrom hypothesis import assume, given, strategies as st\n@given(st.integers(0, 12))\n"
RUN = "    step, cache = decoder.step(decoder.start(1, None), torch.tensor([[token] * 4]))\n"


def law(body: str, tmp_path: Path, head: str = HEAD) -> Judged:
    """The judgement of a law with this body."""
    path = tmp_path / "why_law.py"
    path.write_text(f"{head}def law(decoder, token):\n{body}\n")
    return judge_apart(writings()[0], path, 60.0)


def first_line(found: Judged) -> str:
    """What is said first of a law that was tried, and scores nothing."""
    assert found.answer is not None, found.reason
    assert (found.solved, found.score) == (False, 0.0)
    return found.answer.lines[0]


LAWS = {
    "fails on everything": ("    assert False\n", "the law fails on every right cache"),
    "never runs": ("    assume(False)\n", "the law never ran"),
    "asserts nothing": ("    decoder.step(decoder.start(1, None), torch.tensor([[token]]))\n", "no bug is killed"),
    "runs nothing": ("    assert token < 13\n", "the law never runs a cache"),
    "raises": ("    raise ValueError\n", "the law raises on a right cache"),
}


@pytest.mark.parametrize(("body", "said"), LAWS.values(), ids=LAWS)
def test_a_law_that_says_nothing_scores_nothing(body: str, said: str, tmp_path: Path) -> None:
    assert first_line(law(body, tmp_path)).startswith(said)


MEMORIES = {
    "of a module": ("N = [0]\n", "N[0] += 1\n    assert N[0] < 10"),
    "of torch": ("N = torch.initial_seed()\ntorch.manual_seed(N + 1)\n", "assert N % 2"),
    "of random": ("import random\nN = random.random()\n", "assert N < 0.5"),
}


@pytest.mark.parametrize(("head", "body"), MEMORIES.values(), ids=MEMORIES)
def test_a_law_that_counts_its_calls_scores_nothing(head: str, body: str, tmp_path: Path) -> None:
    found = law(f"{RUN}    {body}", tmp_path, HEAD.replace("@given", f"{head}@given"))
    assert first_line(found) == "the law fails on every right cache, so it says nothing about wrong ones"


@pytest.mark.parametrize("spied", ["given", "implementation", "model", "name", "meter"])
def test_a_law_sees_answers_and_nothing_else(spied: str, tmp_path: Path) -> None:
    found = law(f"{RUN}    assert 'bugs' not in str(decoder.{spied})", tmp_path)
    assert first_line(found).startswith("the law raises on a right cache: AttributeError")


CHEATS = {
    "another module": (f"import os\n{HEAD}", "", "a law is made of torch and hypothesis, and cannot use os"),
    "the catalogue": (f"from kvref.bug import catalogue\n{HEAD}", "", "and cannot use kvref.bug"),
    "a closure": (
        HEAD,
        "decoder.step.__closure__",
        "a law looks at what a decoder answers, and cannot use __closure__",
    ),
    "a format": (HEAD, "'{0.step.__closure__}'.format(decoder)", "cannot use __closure__"),
    "a pattern": (HEAD, "match decoder.step:\n        case object(__globals__=g): pass", "cannot use __globals__"),
    "an attribute by name": (HEAD, "getattr(decoder, 'given')", "cannot use getattr"),
    "a door": (f"from dataclasses import inspect\n{HEAD}", "", "cannot use inspect"),
    "another door": (HEAD, "torch.sys.path", "cannot use sys"),
    "a note": (HEAD, "torch.seen = 1", "a law keeps nothing, and cannot set seen"),
    "a file": (HEAD, "open('memory', 'a').write('.')", "cannot use open"),
}


@pytest.mark.parametrize(("head", "body", "said"), CHEATS.values(), ids=CHEATS)
def test_a_law_that_looks_behind_answers_scores_nothing(head: str, body: str, said: str, tmp_path: Path) -> None:
    found = law(f"{RUN}    {body}", tmp_path, head)
    assert (found.answer, found.score) == (None, 0.0)
    assert found.reason.startswith("why_law.py, line ")
    assert found.reason.endswith(said)


def test_what_a_decoder_raises_does_not_say_where() -> None:
    right = dict(healthy(Passes(weights.loud(SHAPE))))
    decoder = Observed(right["a cache that is allocated once"])
    front = Front(decoder, Handles())
    with pytest.raises(DecoderRaised) as raised:
        front.step(front.start(1, 2), torch.tensor([[0] * 13]))
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert {Path(frame.filename).name for frame in frames} == {"test_learn_cheats.py", "front.py"}
    assert raised.value.error.__traceback__ is raised.value.__cause__ is raised.value.__context__ is None


COMMIT = "class Mine(GrowingCache):\n    def commit(self, new):\n        "
BORROWED = {
    "super": (COMMIT + "super().commit(new)\n", "write out what commit does, without super"),
    "later": (COMMIT + "above = super()\n        above.commit(new)\n", "without super"),
    "class": (COMMIT + "GrowingCache.commit(self, new)\n", "without GrowingCache"),
    "module": (
        "import kvref.cache\n" + COMMIT + "kvref.cache.GrowingCache.commit(self, new)\n",
        "without GrowingCache",
    ),
    "cell": (COMMIT + "__class__.commit(self, new)\n", "without __class__"),
    "assigned": ("class Mine(GrowingCache):\n    commit = GrowingCache.commit\n", "without GrowingCache"),
    "renamed": ("from kvref.cache import GrowingCache as Mine\n", "Mine.commit is from another file"),
    "alias": (
        "from kvref.cache import GrowingCache as G\nclass Mine(G):\n    commit = G.commit\n",
        "without G",
    ),
    "mro": (COMMIT + "Mine.mro()[1].commit(self, new)\n", "without mro"),
    "catalogue": ("from kvref.bug import catalogue\n" + COMMIT + "pass\n", "without kvref.bug"),
    "inherited": ("class Mine(GrowingCache):\n    pass\n", "Mine has no commit"),
    "made": (COMMIT + "pass\n    def __init__(self): pass\n", "Mine has its own __init__"),
    "elsewhere": (COMMIT + "pass\n    def append(self, *a): pass\n", "Mine has its own append"),
    "metaclass": (
        "import abc\nclass M(abc.ABCMeta): pass\n"
        "class Mine(GrowingCache, metaclass=M):\n    def commit(self, new): pass\n",
        "Mine is made by a class of its own, M; leave that to GrowingCache",
    ),
}


@pytest.mark.parametrize(("text", "said"), BORROWED.values(), ids=BORROWED)
def test_a_repair_that_borrows_the_reference_scores_nothing(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "why_1.py"
    path.write_text(f"from kvref.cache import GrowingCache\n{text}")
    found = judge_apart(REPAIRS["why-1"], path, 60.0)
    assert (found.answer, found.score) == (None, 0.0)
    assert said in found.reason


def test_a_file_that_changes_itself_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "why_law.py"
    law = f"{HEAD}def law(decoder, token):\n    decoder.step(decoder.start(1, None), torch.tensor([[token]]))\n"
    mapped = f"torch.from_file({str(path)!r}, shared=True, size=3, dtype=torch.uint8)[2] += 1\n"
    path.write_text(f"# 0\nimport torch\n{mapped}{law}")
    assert judge_apart(writings()[0], path, 60.0).reason == "the file changes itself while it is judged"


def test_a_profile_of_its_own_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "why_law.py"
    profile = (
        "from hypothesis import settings\nsettings.register_profile('x', max_examples=1)\nsettings.load_profile('x')"
    )
    solution = writings()[0].solution()
    path.write_text(solution.replace("TOKENS =", f"{profile}\nTOKENS =", 1))
    assert judge_apart(writings()[0], path, 60.0).solved


def test_a_repair_that_patches_its_judge_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "why_1.py"
    path.write_text(REPAIRS["why-1"].solution() + "\nimport kvref.search as s\ns.search = lambda *_: []\n")
    found = judge_apart(REPAIRS["why-1"], path, 60.0)
    assert found.answer is None
    assert found.reason == "the file changes what is not its own: kvref.search.search was replaced"
