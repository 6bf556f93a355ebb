"""Laws that students write: starts that kill too little, solutions that kill all, and laws that are none."""

from functools import cache
from pathlib import Path

import pytest

from kvref.bug import catalogue
from kvref.errors import BadInput
from kvref.learn import judge_write
from kvref.learn.course import CHAPTERS
from kvref.learn.exercises import Answer
from kvref.learn.observed import Case
from kvref.learn.write import LAWS, WRITINGS, Writing, writings

pytestmark = pytest.mark.late

BY_NAME = {each.name: each for each in writings()}
WHY = BY_NAME["why-law"]

HEAD = """
import torch
from hypothesis import assume, example, given, settings, strategies as st
ROW = st.lists(st.integers(0, 12), min_size=1, max_size=4)
"""
GIVEN = HEAD + "\n@given(ROW)\ndef law(decoder, row):\n"
RUNS = "    logits, cache = decoder.step(decoder.start(1, None), torch.tensor([row]))\n"


@cache
def started(name: str) -> Answer:
    """The verdict on an exercise as it is given, with few examples: what it misses no number of them would show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge_write, "EXAMPLES", 12)
        return BY_NAME[name].judge(LAWS / f"{BY_NAME[name].subject}_start.py")


def judged(tmp_path: Path, text: str, exercise: Writing = WHY) -> Answer:
    """The verdict on a file of this text."""
    path = tmp_path / "my_law.py"
    path.write_text(text)
    return exercise.judge(path)


def test_there_are_enough_and_each_is_of_a_chapter() -> None:
    assert len(BY_NAME) == len(WRITINGS) >= 6
    assert {each.subject for each in WRITINGS} <= {chapter.name for chapter in CHAPTERS}
    for each in WRITINGS:
        assert each.chapter.name == each.subject
        assert 3 <= len(set(each.sealed)) == len(each.sealed) <= 6
        assert set(each.sealed) <= set(catalogue())


@pytest.mark.parametrize("name", BY_NAME)
def test_a_start_runs_and_kills_too_little(name: str) -> None:
    answer = started(name)
    assert not answer.solved
    assert answer.score < 1
    assert any(line.startswith("bug ") for line in answer.lines), answer.lines
    assert any(line.startswith("never drawn") for line in answer.lines), answer.lines
    assert len(answer.hints) == len(set(answer.hints)) == 3


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_names_a_bug(name: str) -> None:
    exercise, answer = BY_NAME[name], started(name)
    text = "\n".join([exercise.start(), exercise.solution(), *answer.lines, *answer.hints]).lower()
    for bug in catalogue().values():
        for secret in (bug.name, bug.name.replace("-", "_"), bug.part.__name__, bug.wrong):
            assert secret.lower() not in text
    assert "# your turn" in exercise.start()
    assert "# your turn" not in exercise.solution()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no function `law`"),
        ("def law(:\n", "SyntaxError"),
        ("from torch import nothing_of_this_name\n", "ImportError"),
        ("law = 3\n", "has no function `law`"),
        ("def law(decoder):\n    pass\n", "not under @given"),
        (HEAD + "@given(ROW)\ndef law(row):\n    pass\n", "must leave its argument `decoder`"),
        (HEAD + "@given(ROW)\ndef law(decoder, other, row):\n    pass\n", "left is decoder, other"),
    ],
)
def test_a_file_that_cannot_be_tried_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        judged(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (RUNS + "    assert False\n", "fails on every right cache"),
        (RUNS + "    assume(False)\n    assert logits is None\n", "never ran"),
        ("    import pytest\n    pytest.skip('later')\n", "never ran"),
        ("    import unittest\n    raise unittest.SkipTest('later')\n", "never ran"),
        (
            "    assert torch.equal(decoder.full(torch.tensor([row])), decoder.full(torch.tensor([row])))\n",
            "never runs",
        ),
        (RUNS, "asserts nothing"),
        (RUNS + "    raise ValueError('wrong')\n", "raises on a right cache: ValueError: wrong"),
        (RUNS + "    assert cache.length == len(row)\n", "raises on a right cache: AttributeError"),
        ("    decoder.full(torch.tensor([row * 9]))\n" + RUNS, "raises on a right cache"),
        ("    raise SystemExit\n", "raises on a right cache"),
    ],
)
def test_a_law_that_is_none_scores_nothing(tmp_path: Path, body: str, said: str) -> None:
    answer = judged(tmp_path, GIVEN + body)
    assert not answer.solved
    assert answer.score == 0
    assert any(said in line for line in answer.lines), answer.lines
    assert len(answer.hints) == 3


def test_a_law_that_forgets_the_handle_accuses_the_cache_that_never_changes_its_own(tmp_path: Path) -> None:
    forgets = (
        "    cache = decoder.start(1, None)\n    want = decoder.full(torch.tensor([row]))\n"
        "    for place, token in enumerate(row):\n        logits, _ = decoder.step(cache, torch.tensor([[token]]))\n"
        "        assert torch.equal(logits, want[:, place : place + 1])\n"
    )
    answer = judged(tmp_path, GIVEN + forgets)
    assert answer.score == 0
    assert answer.lines[0].startswith("a right cache is accused: a cache that is the text")
    assert answer.lines[1].endswith("law(")
    assert "    row=[0, 0]," in answer.lines


def test_raising_where_a_bug_shows_kills_nothing(tmp_path: Path) -> None:
    raises = (
        "    want, cache = decoder.full(torch.tensor([row])), decoder.start(1, None)\n"
        "    for place, token in enumerate(row):\n"
        "        logits, cache = decoder.step(cache, torch.tensor([[token]]))\n"
        "        if not torch.equal(logits, want[:, place : place + 1]):\n            raise ValueError\n"
    )
    answer = judged(tmp_path, GIVEN + raises)
    assert answer.score == 0
    assert any("alive: something raised where the law should assert (ValueError)" in line for line in answer.lines)


def test_what_was_never_drawn_is_named_and_the_first_hint_asks_for_it() -> None:
    answer = started("positions-law")
    assert f"never drawn:    {Case.SEVERAL}" in answer.lines
    assert not any("never drawn" in line and Case.ONE in line for line in answer.lines)
    assert Case.SEVERAL in answer.hints[0]


def test_settings_of_the_students_own_change_nothing(tmp_path: Path) -> None:
    exercise = BY_NAME["writing-law"]
    text = exercise.solution().replace("@given", "@settings(max_examples=1)\n@given")
    text = text.replace("import given", "import given, settings")
    assert judged(tmp_path, text, exercise).solved


def test_a_file_gets_the_same_verdict_twice(tmp_path: Path) -> None:
    text = GIVEN + "    decoder.step(decoder.start(1, None), torch.tensor([row]))\n    assert len(row) < 3\n"
    first, second = judged(tmp_path, text), judged(tmp_path, text)
    assert first == second
    assert "    row=[0, 0, 0]," in first.lines
