"""The course for a class: exercises are proved, handed out, and graded, whatever comes back."""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvref.bug import catalogue
from kvref.errors import BadInput
from kvref.learn import exercises as course
from kvref.learn.apart import Judged
from kvref.learn.course import CHAPTERS, Chapter
from kvref.learn.exercises import Answer, Exercise, Kind, file_name
from kvref.learn.explain import explanations
from kvref.learn.folder import RELEASE
from kvref.learn.repairs import Repair, repair_exercises
from kvref.learn.write import writings
from kvref.targets.resolve import load_file
from kvref.teach import grade as grades
from kvref.teach.check import Proof, check, chosen, named, proved
from kvref.teach.cli import app
from kvref.teach.grade import MISSING, Grade, Handed, Sheet, asked_by, feedback, grade, handed_in, sealed
from kvref.teach.release import bugs_of, read_students, release, teacher_file

pytestmark = pytest.mark.late

HINTS = ("look", "ask", "know")


@dataclass(frozen=True)
class Fake:
    """An exercise whose file says in `SAID` what comes of it."""

    name: str = "why-9"
    kind: Kind = "repair"
    given: str = 'SAID = "broken"\n'
    right: str = 'SAID = "right"\n'
    hints: tuple[str, ...] = HINTS
    bug: str = "stale-cache"

    @property
    def chapter(self) -> Chapter:
        return CHAPTERS[0]

    def start(self) -> str:
        return self.given

    def solution(self) -> str:
        return self.right

    def judge(self, path: Path) -> Answer:
        said: str = load_file(path).SAID
        if said == "right":
            return Answer(True, ("right",), score=1.0)
        lines = {
            "broken": ("law       equal", "diverges  here"),
            "raises": ("law       equal", "raised    ValueError"),
            "alive": ("no bug is killed", "bug 1  alive"),
            "half": ("bug 1  killed", "bug 2  alive"),
        }
        return Answer(False, lines.get(said, (said,)), self.hints, 0.5 if said == "half" else 0.0)


WRITE = Fake("why-law", "write", 'SAID = "alive"\n')
EXPLAIN = Fake("why-cause", "explain", 'SAID = "no answer"\n')
FAKES = (Fake(), WRITE, EXPLAIN)


@pytest.mark.parametrize("fake", FAKES, ids=[fake.kind for fake in FAKES])
def test_a_sound_exercise_of_each_kind_is_proved(fake: Fake, tmp_path: Path) -> None:
    proof = proved(fake, 10.0, tmp_path)
    assert proof.wrong == ()
    assert "sound" in str(proof)


SPOILED = {
    "solved": (Fake(given='SAID = "right"\n# \n'), "the start is solved already"),
    "crash": (Fake(given="1 / 0\n"), "the start cannot be judged: it cannot be tried (ZeroDivisionError"),
    "raises": (Fake(given='SAID = "raises"\n'), "the start fails for another reason: it raises where it should"),
    "no law": (Fake(given='SAID = "?"\n'), "the start fails for another reason: no law is broken"),
    "dead": (replace(WRITE, given='SAID = "?"\n'), "the start fails for another reason: no sealed bug is alive"),
    "half": (replace(EXPLAIN, given='SAID = "half"\n'), "the start fails for another reason: it scores 0.5"),
    "wrong": (Fake(right='SAID = "broken"\n# '), "the solution fails: law       equal"),
    "breaks": (Fake(right="SAID\n"), "the solution cannot be judged: it cannot be tried (NameError"),
    "hints": (Fake(hints=("one", "", " ")), "the start has 1 hints, not 3"),
    "wide": (Fake(given=f'SAID = "{"law " * 21}"\n'), "what is said of the start is wider than 80 columns"),
    "names": (Fake(given='SAID = "broken"  # stale_cache\n'), "the start names stale-cache"),
    "same": (Fake(right='SAID = "broken"\n'), "start and solution are the same"),
}


def test_a_spoiled_exercise_is_seen_whatever_is_wrong_with_it() -> None:
    fakes = [replace(fake, name=f"why-{number}") for number, (fake, _) in enumerate(SPOILED.values())]
    said = list[Proof]()
    assert not check(fakes, 10.0, 2, said.append)
    for (_, wrong), proof in zip(SPOILED.values(), said, strict=True):
        assert any(each.startswith(wrong) for each in proof.wrong), proof
        assert "spoiled" in str(proof)


def test_a_slow_exercise_is_seen(tmp_path: Path) -> None:
    slow = Fake(right='import time\ntime.sleep(0.5)\nSAID = "right"\n')
    (wrong,) = (each for each in proved(slow, 0.4, tmp_path).wrong if "solution" in each)
    assert wrong.startswith("the solution takes 0.")


def test_exercises_are_told_in_their_order_and_one_that_is_spoiled_counts() -> None:
    said = list[Proof]()
    assert not check([Fake(), replace(SPOILED["same"][0], name="why-8")], 10.0, 2, said.append)
    assert [bool(proof.wrong) for proof in said] == [False, True]


def test_a_repair_of_the_course_is_sound(tmp_path: Path) -> None:
    exercise = next(iter(repair_exercises()))
    assert proved(exercise, 30.0, tmp_path).wrong == ()


class Unmended(Repair):
    """A repair whose solution is the wrong method still."""

    def solution(self) -> str:
        return self.start() + "\n"


COURSE: dict[str, tuple[Exercise, str]] = {
    "repair": (Unmended("why-1", catalogue()["stale-cache"]), "the solution fails: law "),
    "write": (replace(writings()[0], sealed=("fork-shares-its-buffers",)), "the solution fails: no bug is killed"),
    "explain": (replace(explanations()[0], law="no-such-law"), "it cannot be written (KeyError"),
}


@pytest.mark.parametrize(("exercise", "wrong"), COURSE.values(), ids=COURSE)
def test_a_spoiled_exercise_of_the_course_is_seen(exercise: Exercise, wrong: str, tmp_path: Path) -> None:
    assert any(each.startswith(wrong) for each in proved(exercise, 60.0, tmp_path).wrong)


def test_an_exercise_that_there_is_not_is_said() -> None:
    with pytest.raises(BadInput, match="did you mean why-9"):
        chosen(["why-8"], {"why-9": Fake()})


def test_a_release_has_no_solutions_and_names_no_bug(tmp_path: Path) -> None:
    exercises: list[Exercise] = [*repair_exercises()[:3], WRITE]
    folder = tmp_path / "class"
    released = release(folder, exercises, 7)
    assert released.teacher == teacher_file(folder) == tmp_path / "class-teacher.json"
    teacher = json.loads(released.teacher.read_text())
    assert teacher["exercises"]["why-1"]["bugs"] == ["stale-cache"]
    assert teacher["students"] == {"": [each.name for each in exercises]}
    given = {path for path in folder.rglob("*") if path.is_file()}
    assert {path.name for path in given} >= {"why_1.py", "README.md", RELEASE}
    for path in given:
        assert named(path.read_text()) == []
    for exercise in exercises:
        assert (folder / file_name(exercise)).read_text() == exercise.start()
    listed = json.loads((folder / RELEASE).read_text())["exercises"]
    assert listed["why-1"]["sha256"] == teacher["exercises"]["why-1"]["sha256"]


def test_students_get_folders_with_exercises_that_the_seed_draws(tmp_path: Path) -> None:
    exercises, names = repair_exercises(), ["ann", "bob", "cid"]
    teachers = list[dict[str, Any]]()
    for where, seed in (("a", 1), ("b", 1), ("c", 2)):
        released = release(tmp_path / where, exercises, seed, names, 4)
        assert list(released.folders.values()) == [4, 4, 4]
        teachers.append(json.loads(released.teacher.read_text())["students"])
    first, again, other = teachers
    assert first == again != other
    assert first["ann"] != first["bob"]
    theirs = json.loads((tmp_path / "a" / "ann" / RELEASE).read_text())["exercises"]
    assert list(theirs) == first["ann"]


def test_nothing_is_written_over_by_a_release(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    release(tmp_path / "class", [Fake()], 0)
    with pytest.raises(BadInput, match="not empty"):
        release(tmp_path / "class", [Fake()], 0)
    (tmp_path / "new-teacher.json").write_text("")
    with pytest.raises(BadInput, match="is there already"):
        release(tmp_path / "new", [Fake()], 0)
    with pytest.raises(BadInput, match="gives stale-cache away"):
        release(tmp_path / "other", [SPOILED["names"][0]], 0)


@pytest.mark.parametrize("text", ["", "a/b\n", "..\n", "ann\nann\n", "n" * 252, "a\x1b[2J\n"])
def test_names_that_cannot_be_folders_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_text(text)
    with pytest.raises(BadInput):
        read_students(tmp_path / "names")


def test_bugs_are_told_to_the_teacher_whichever_way_an_exercise_keeps_them() -> None:
    assert bugs_of(repair_exercises()[0]) == ["stale-cache"]
    assert bugs_of(writings()[0]) == list(writings()[0].sealed)
    assert bugs_of(explanations()[0]) == [explanations()[0].shown]


FILES = {
    "good": 'SAID = "right"\n',
    "half": 'SAID = "half"\n',
    "cheat": 'import torch\ntorch.equal = lambda *_: True\nSAID = "right"\n',
    "exits": "import os\nos._exit(0)\n",
    "hangs": "while True: pass\n",
    "typo": "SAID = (\n",
    "leaks": 'from kvref.bugs.stale_cache import bug\nraise ValueError(bug.name + " \\x1b[2J " + bug.part.__name__)\n',
    "vandal": 'import os, pathlib\nfor p in pathlib.Path(os.environ["CLASS"]).rglob("*.py"): p.write_text("")\n'
    'SAID = "broken"\n',
    "zoe": 'SAID = "right"\n',
}
REASONS = {
    "cheat": "the file changes what is not its own: torch.equal was replaced",
    "exits": "the process ended before the file was judged: exit code 0",
    "gone": MISSING,
    "good": "solved",
    "half": "not solved",
    "hangs": "it hangs: not done after 1 s",
    "leaks": "it cannot be tried (ValueError: (a sealed bug) ",
    "link": "the file is a link out of the student's folder",
    "typo": "it cannot be tried (SyntaxError",
    "vandal": "not solved",
    "zoe": "solved",
}


def handed(folder: Path) -> None:
    """A class that hands in what its names say."""
    for student, text in FILES.items():
        path = folder / student / file_name(Fake())
        path.parent.mkdir(parents=True)
        path.write_text(text.replace('os.environ["CLASS"]', repr(str(folder))))
    (folder / "gone").mkdir()
    (folder / "link" / "1_why").mkdir(parents=True)
    (folder / "link" / file_name(Fake())).symlink_to(folder / "good" / file_name(Fake()))


def test_a_class_is_graded_and_no_student_costs_another(tmp_path: Path) -> None:
    handed(tmp_path / "class")
    said, sheet = list[str](), Sheet(tmp_path / "grades", force=False)
    assert grade(tmp_path / "class", {"why-9": Fake()}, {"": ["why-9"]}, sheet, 1.0, said.append)
    with (tmp_path / "grades" / "grades.csv").open() as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert list(rows) == sorted(REASONS)
    for student, reason in REASONS.items():
        assert rows[student]["reason"].startswith(reason), rows[student]
        assert float(rows[student]["score"]) == {"good": 1, "zoe": 1, "half": 0.5}.get(student, 0)
        assert (tmp_path / "grades" / f"{student}.json").is_file()
        assert named((tmp_path / "grades" / f"{student}.txt").read_text()) == []
        assert named((tmp_path / "grades" / f"{student}.json").read_text()) == []
    good = next(line for line in said if line.startswith("good "))
    assert str(tmp_path / "class" / "good" / file_name(Fake())) in good
    assert "sha256:" in good
    assert "\x1b" not in "".join(said)
    half = (tmp_path / "grades" / "half.txt").read_text()
    assert "bug 2  alive" in half
    assert "hint: look" in half


def test_grades_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    Sheet(tmp_path / "grades", force=False).write()
    with pytest.raises(BadInput, match="--force"):
        Sheet(tmp_path / "grades", force=False)
    (tmp_path / "grades" / "grades.csv").write_text("before")
    Sheet(tmp_path / "grades", force=True)
    assert (tmp_path / "grades" / "grades.csv").read_text() == "before"  # until there are others


def test_grades_outlive_a_file_that_removes_them(tmp_path: Path) -> None:
    for student, text in (
        ("ann", FILES["good"]),
        ("bob", f"import shutil\nshutil.rmtree({str(tmp_path / 'grades')!r})\n"),
    ):
        path = tmp_path / "class" / student / file_name(Fake())
        path.parent.mkdir(parents=True)
        path.write_text(text)
    sheet = Sheet(tmp_path / "grades", force=False)
    assert grade(tmp_path / "class", {"why-9": Fake()}, {"": ["why-9"]}, sheet, 5.0, str)
    assert "ann,why-9,1,solved" in (tmp_path / "grades" / "grades.csv").read_text()


def test_grades_that_cannot_be_written_are_said(tmp_path: Path) -> None:
    path = tmp_path / "class" / "ann" / file_name(Fake())
    path.parent.mkdir(parents=True)
    path.write_text(
        f"import shutil, pathlib\nout = {str(tmp_path / 'grades')!r}\nshutil.rmtree(out)\npathlib.Path(out).touch()\n"
    )
    (tmp_path / "class" / "bob").mkdir()
    said, sheet = list[str](), Sheet(tmp_path / "grades", force=False)
    with pytest.raises(BadInput, match="the grades are those said here"):
        grade(tmp_path / "class", {"why-9": Fake()}, {"": ["why-9"]}, sheet, 5.0, said.append)
    assert any(line.startswith("bob") for line in said)


def test_a_folder_that_is_a_link_to_another_is_not_graded(tmp_path: Path) -> None:
    path = tmp_path / "ann" / file_name(Fake())
    path.parent.mkdir(parents=True)
    path.write_text(FILES["good"])
    (tmp_path / "bob").symlink_to(tmp_path / "ann")
    assert handed_in(tmp_path / "bob", Fake()).reason == "the student's folder is a link to another"


def test_a_file_that_changes_while_it_is_graded_scores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grades, "judge_apart", lambda *_: Judged(Answer(True, (), (), 1.0), "", "", "other"))
    found = grades.graded("ann", Fake(), Handed(tmp_path / "why_9.py", b"mine"), 1.0)
    assert (found.score, found.reason) == (0.0, "the file changed while it was graded")


@pytest.mark.parametrize("name", [b"\xff", b"n" * 252, b"a\nb"])
def test_a_folder_that_no_file_can_be_named_after_is_refused_before_anything_is_run(
    name: bytes, tmp_path: Path
) -> None:
    os.mkdir(os.path.join(os.fsencode(tmp_path), name))  # noqa: PTH102, PTH118 such a name is no text
    with pytest.raises(BadInput, match="cannot be a student's folder"):
        grades.students_in(tmp_path, {"": ["why-9"]}, tmp_path / "grades")


def test_what_was_graded_is_kept_though_nobody_reads_what_is_said(tmp_path: Path) -> None:
    handed(tmp_path / "class")

    def say(_: str) -> None:
        raise BrokenPipeError

    sheet = Sheet(tmp_path / "grades", force=False)
    with pytest.raises(BrokenPipeError):
        grade(tmp_path / "class", {"why-9": Fake()}, {"": ["why-9"]}, sheet, 1.0, say)
    assert "cheat,why-9,0" in (tmp_path / "grades" / "grades.csv").read_text()


def test_what_was_graded_before_it_was_stopped_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed(tmp_path / "class")
    done = list[str]()

    def judge_apart(exercise: Exercise, path: Path, seconds: float) -> Judged:
        del exercise, seconds
        done.append(path.name)
        if len(done) == 3:
            raise KeyboardInterrupt
        raise RuntimeError("kvref is at fault")

    monkeypatch.setattr(grades, "judge_apart", judge_apart)
    sheet = Sheet(tmp_path / "grades", force=False)
    assert not grade(tmp_path / "class", {"why-9": Fake()}, {"": ["why-9"]}, sheet, 1.0, str)
    rows = (tmp_path / "grades" / "grades.csv").read_text().splitlines()
    assert rows[1].startswith("cheat,why-9,0,it could not be graded (RuntimeError")
    assert len(rows) == 1 + 3  # cheat, exits, and gone, which is never judged


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / file_name(Fake())).mkdir(parents=True)
    assert handed_in(tmp_path, Fake()).reason == "it is no file"
    (tmp_path / file_name(WRITE)).write_bytes(bytes(2 << 20))
    assert "more than" in handed_in(tmp_path, WRITE).reason


def test_who_was_asked_for_what_is_read_from_a_release(tmp_path: Path) -> None:
    known: dict[str, Exercise] = {each.name: each for each in FAKES}
    assert asked_by(None, tmp_path, known) == {"": list(known)}
    released = release(tmp_path / "class", list(FAKES), 0, ["ann"], 1)
    asked = asked_by(released.teacher, tmp_path, known)
    assert len(asked["ann"]) == 1
    evil = '{"exercises": ["why-9"], "students": {"../../evil": ["why-9"]}}'
    for text in ("{", "[]", '{"exercises": ["masks-99"]}', '{"exercises": []}', evil):
        (tmp_path / RELEASE).write_text(text)
        with pytest.raises(BadInput, match=r"release\.json"):
            asked_by(None, tmp_path, known)


def test_every_bug_is_sealed_in_what_is_told() -> None:
    for bug in catalogue().values():
        assert named(sealed(f"{bug.name} {bug.part.__name__} {bug.part.__module__}")) in ([], ["kvref.bugs"])
        assert bug.part.__name__ not in sealed(bug.part.__name__)
        assert sealed(bug.name.upper()) == sealed(bug.name.replace("-", "_")) == "(a sealed bug)"
    said = feedback([Grade("ann", "why-9", 0.0, "not solved", said=("law",), hint="look")])
    assert said == "0 of 1\n\nwhy-9: 0, not solved\n    law\n    hint: look\n"


@pytest.fixture
def teach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """The command, with two exercises, in a folder of the test's own."""
    known: dict[str, Exercise] = {"why-9": Fake(), "why-law": WRITE}
    monkeypatch.setattr(course, "exercises", lambda: known)
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(app, list(args))


def test_commands_give_the_codes_that_they_say(teach: Callable[..., Any], tmp_path: Path) -> None:
    assert teach("check", "why-9", "--workers", "1").exit_code == 0
    assert isinstance(teach("check", "what").exception, BadInput)
    assert teach("release", "class", "--exercises", "why-9").exit_code == 0
    (tmp_path / "handed" / "ann").mkdir(parents=True)
    (tmp_path / "handed" / "ann" / RELEASE).write_text("{}")
    assert "note: ann was given a set" in teach("grade", "handed", "--out", "noted").output
    graded = teach("grade", "handed", "--release", "class-teacher.json")
    assert "note" not in graded.output
    assert graded.exit_code == 0
    assert "ann: 0 of 1" in graded.output
    assert isinstance(teach("grade", "handed").exception, BadInput)
    assert teach("grade", "handed", "--force").exit_code == 0
    assert isinstance(teach("grade", "nowhere", "--out", "other").exception, BadInput)
    assert not (tmp_path / "other").exists()


def test_a_spoiled_exercise_exits_with_1(teach: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "exercises", lambda: {"why-9": SPOILED["same"][0]})
    spoiled = teach("check")
    assert spoiled.exit_code == 1
    assert "start and solution are the same" in spoiled.output
