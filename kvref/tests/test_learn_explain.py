"""Failures to explain: the evidence tells the right cause from the others, and a file is read and not run."""

import ast
from pathlib import Path

import pytest

from kvref.bug import catalogue
from kvref.errors import BadInput
from kvref.learn.course import CHAPTERS
from kvref.learn.explain import CHOICES, HOLDS, Explanation, explanations, shows

pytestmark = pytest.mark.late

ALL = {each.name: each for each in explanations()}


def write(path: Path, text: str) -> Path:
    """A student's file."""
    path.write_text(text)
    return path


@pytest.mark.parametrize("exercise", ALL.values(), ids=ALL)
def test_the_evidence_tells_the_cause_from_the_others(exercise: Explanation) -> None:
    seen = {bug.name: shows(bug, exercise.finding) for bug in exercise.causes}
    assert len(seen) == CHOICES
    assert seen[exercise.shown] not in (HOLDS, "raises")
    assert seen[exercise.shown] == str(exercise.finding.divergence).partition(":")[0]
    assert list(seen.values()).count(seen[exercise.shown]) == 1


@pytest.mark.parametrize("exercise", ALL.values(), ids=ALL)
def test_the_wrong_causes_are_near(exercise: Explanation) -> None:
    mine = catalogue()[exercise.shown]
    for bug in exercise.causes:
        assert bug.family == mine.family or bug.name in exercise.chapter.repairs


@pytest.mark.parametrize("exercise", ALL.values(), ids=ALL)
def test_the_file_shows_the_finding_and_names_no_bug(exercise: Explanation) -> None:
    text = exercise.start()
    asked = ast.get_docstring(ast.parse(text)) or ""
    for shown in ("  ->   ", "\nlaw  ", "\ndecoder  ", "\nschedule  ", "\ndiverges  "):
        assert shown in asked
    for number, bug in enumerate(exercise.causes, start=1):
        assert f" {number}. {bug.wrong}" in " ".join(asked.split())
    for name in catalogue():
        assert name not in text.replace(exercise.name, "")


@pytest.mark.parametrize("exercise", ALL.values(), ids=ALL)
def test_the_right_number_alone_is_right(exercise: Explanation, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    assert exercise.judge(write(path, exercise.solution())).solved
    for number in range(1, CHOICES + 1):
        answer = exercise.judge(write(path, exercise.file(str(number))))
        assert answer.solved == (number == exercise.right)
        assert answer.score == float(number == exercise.right)
        assert len(answer.hints) == (0 if answer.solved else 3)
        assert answer.solved or answer.hints[1].startswith(f"It is not {number}: ")


@pytest.mark.parametrize("exercise", ALL.values(), ids=ALL)
def test_a_file_as_it_is_given_is_not_solved_and_its_hints_rule_out_a_wrong_cause(
    exercise: Explanation, tmp_path: Path
) -> None:
    answer = exercise.judge(write(tmp_path / "mine.py", exercise.start()))
    assert not answer.solved
    assert answer.lines == ("no answer is given yet",)
    assert len(answer.hints) == 3
    assert f"It is not {exercise.right}:" not in answer.hints[1]


def test_every_chapter_has_one_and_the_right_number_is_not_always_the_same() -> None:
    assert [each.chapter for each in ALL.values()] == list(CHAPTERS)
    assert len({each.right for each in ALL.values()}) >= 3


@pytest.mark.parametrize("given", ["True", "'2'", "0", "5", "-1", "2.0", "[2]", "b'2'"])
def test_what_is_no_number_of_a_cause_is_said(given: str, tmp_path: Path) -> None:
    exercise = ALL["masks-cause"]
    answer = exercise.judge(write(tmp_path / "mine.py", exercise.file(given)))
    assert not answer.solved
    assert len(answer.lines) == 1
    assert f"is a number from 1 to {CHOICES}, not {given}" in answer.lines[0]


def test_a_long_answer_is_not_said_at_length(tmp_path: Path) -> None:
    exercise = ALL["masks-cause"]
    answer = exercise.judge(write(tmp_path / "mine.py", exercise.file(repr("so " * 500))))
    assert len(answer.lines[0]) < 120


def test_the_last_answer_counts(tmp_path: Path) -> None:
    exercise = ALL["masks-cause"]
    assert exercise.judge(write(tmp_path / "mine.py", f"answer = None\nanswer = {exercise.right}\n")).solved


@pytest.mark.parametrize(
    "text",
    [
        "",
        "answer =",
        "answer = open('x', 'w')",
        "import sys; sys.exit(0)",
        "answer = x = 1",
        "answer = 1 + 1",
        "answer = {[]}",
        "answer = " + "(" * 500,
        "\0",
    ],
)
def test_a_file_is_read_and_never_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as raised:
        ALL["masks-cause"].judge(write(tmp_path / "mine.py", text))
    assert "\n" not in str(raised.value)
    assert not Path("x").exists()


@pytest.mark.parametrize("name", ["none.py", "."])
def test_what_is_no_file_is_said(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        ALL["masks-cause"].judge(tmp_path / name)


def test_a_file_that_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_bytes(b"answer = '\xff'\n")
    with pytest.raises(BadInput, match="cannot be read"):
        ALL["masks-cause"].judge(tmp_path / "mine.py")


def test_a_finding_is_searched_for_once() -> None:
    assert ALL["why-cause"].finding is ALL["why-cause"].finding
