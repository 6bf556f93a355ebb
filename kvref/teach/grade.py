"""Grades of a class: every file of every student judged apart, so that one of them never costs another anything."""

import csv
import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, cast

from kvref.bug import catalogue
from kvref.errors import BadInput, one_line
from kvref.learn.apart import LARGEST, Judged, judge_apart
from kvref.learn.exercises import Exercise, file_name
from kvref.learn.folder import RELEASE
from kvref.said import Say
from kvref.teach.release import require_name

MISSING = "not handed in"
LONGEST = 400
"""Letters of a reason, which may hold what a student's own exception says."""


@dataclass(frozen=True)
class Handed:
    """A student's file as it was before any was run: its bytes, or the reason why there are none."""

    path: Path
    text: bytes = b""
    reason: str = ""

    @property
    def sha256(self) -> str:
        """The hash of what was handed in."""
        return sha256(self.text).hexdigest() if not self.reason else ""


@dataclass(frozen=True)
class Grade:
    """What one student gets for one exercise. `said` are lines for the student, `hint` is the first."""

    student: str
    exercise: str
    score: float
    reason: str
    file: str = ""
    sha256: str = ""
    seconds: float = 0.0
    said: tuple[str, ...] = ()
    hint: str = ""


Asked = Mapping[str, Sequence[str]]
"""The exercises of each student; of those that are not in it, what is under the empty name."""


class Sheet:
    """The grades in a folder, written whenever a student is done, and again from memory at the end.

    Raises `BadInput` where there is something in the folder, unless it may be written over.
    """

    def __init__(self, folder: Path, force: bool) -> None:
        self.folder, self.grades = folder, list[Grade]()
        try:
            if not force and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise BadInput(f"{folder} is there already; give --force to write over it, or another --out")
            folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=folder):
                pass  # grades that are there stay until there are others
        except OSError as error:
            raise BadInput(f"{folder} cannot be written to ({error.strerror or error}); give another --out") from None

    def kept(self) -> str:
        """Write everything; the reason why that cannot be done now, and nothing where it was."""
        try:
            self.write()
        except OSError as error:
            return f"{self.folder} cannot be written to ({error.strerror or error}): the grades are those said here"
        return ""

    def write(self) -> None:
        """Write everything. A file that was graded may have removed what was written before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = StringIO()
        table = csv.writer(rows, lineterminator="\n")
        table.writerow(["student", "exercise", "score", "reason"])
        table.writerows([each.student, each.exercise, f"{each.score:.3g}", each.reason] for each in self.grades)
        (self.folder / "grades.csv").write_text(rows.getvalue(), encoding="utf-8")
        for student in dict.fromkeys(each.student for each in self.grades):
            theirs = [each for each in self.grades if each.student == student]
            data = {"student": student, "score": total(theirs), "of": len(theirs), "grades": list(map(asdict, theirs))}
            (self.folder / f"{student}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            (self.folder / f"{student}.txt").write_text(feedback(theirs), encoding="utf-8")


def grade(
    folder: Path, exercises: Mapping[str, Exercise], asked: Asked, sheet: Sheet, seconds: float, say: Say
) -> bool:
    """Grade a class, and say of each file what came of it. Whether it was done to the end; what was done is written."""
    students = students_in(folder, asked, sheet.folder)
    tasks = {
        student: [exercises[name] for name in asked.get(student, asked.get("", list(exercises)))]
        for student in students
    }
    # All is read before anything is run, so that no file can change another.
    handed = {
        (student, each.name): handed_in(folder / student, each) for student, theirs in tasks.items() for each in theirs
    }
    try:
        for student, theirs in tasks.items():
            for exercise in theirs:
                result = graded(student, exercise, handed[student, exercise.name], seconds)
                sheet.grades.append(result)
                say(sealed(told(result)))
            if lost := sheet.kept():
                say(lost)
    except KeyboardInterrupt:
        return False
    finally:
        lost = sheet.kept()
    if lost:
        raise BadInput(f"{lost}; give another --out, and grade again")
    return True


def told(grade: Grade) -> str:
    """A grade in one line, with what was imported."""
    file = f"  {grade.file} sha256:{grade.sha256[:16]}" if grade.sha256 else ""
    return f"{grade.student}  {grade.exercise}  {grade.score:.2f}  {grade.reason}{file}"


def students_in(folder: Path, asked: Asked, out: Path) -> list[str]:
    """Names of students: of folders, and of those who were asked and handed in nothing. Raises `BadInput` if none."""
    try:
        there = [each for each in folder.iterdir() if each.is_dir() and not each.name.startswith((".", "__"))]
    except OSError as error:
        raise BadInput(f"{folder} cannot be read ({error.strerror or error})") from None
    found = {each.name for each in there if each.resolve() != out.resolve()}
    for name in found:
        require_name(name, folder)
    if not found:
        raise BadInput(f"{folder} has no folders; give one with a folder for each student")
    return sorted(found | {name for name in asked if name})


def handed_in(folder: Path, exercise: Exercise) -> Handed:
    """What a student handed in for an exercise."""
    path = folder / file_name(exercise)
    if folder.is_symlink():
        return Handed(path, reason="the student's folder is a link to another")
    try:
        real = path.resolve(strict=True)
        info = real.stat()
        if not real.is_relative_to(folder.resolve()):
            return Handed(path, reason="the file is a link out of the student's folder")
        if not stat.S_ISREG(info.st_mode):
            return Handed(path, reason="it is no file")
        if info.st_size > LARGEST:
            return Handed(path, reason=f"the file has more than {LARGEST} bytes")
        return Handed(path, real.read_bytes())
    except FileNotFoundError:
        return Handed(path, reason=MISSING)
    except (OSError, RuntimeError) as error:
        return Handed(path, reason=f"the file cannot be read ({one_line(error)})")


def graded(student: str, exercise: Exercise, handed: Handed, seconds: float) -> Grade:
    """The grade for a file, which is judged in a copy that lies alone in its folder. Whatever goes wrong scores 0."""
    if handed.reason:
        return Grade(student, exercise.name, 0.0, handed.reason)
    try:
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / handed.path.name
            copy.write_bytes(handed.text)
            judged = judge_apart(exercise, copy, seconds)
    except Exception as error:
        judged = Judged(None, f"it could not be graded ({one_line(error)})", "", "")
    if not judged.reason and judged.sha256 != handed.sha256:
        judged = Judged(None, "the file changed while it was graded", "", "")
    return grade_of(student, exercise.name, handed, judged)


def grade_of(student: str, exercise: str, handed: Handed, judged: Judged) -> Grade:
    """A judgement as a grade, in which no bug is named."""
    answer = judged.answer
    reason = "solved" if judged.solved else judged.reason or "not solved"
    return Grade(
        student,
        exercise,
        min(1.0, max(0.0, judged.score)),
        sealed(reason)[:LONGEST],
        str(handed.path),
        handed.sha256,
        judged.seconds,
        tuple(sealed(line) for line in answer.lines) if answer else (),
        sealed(next(iter(answer.hints), "")) if answer else "",
    )


def sealed(text: str) -> str:
    """A text in which no bug is named, and no control character can move what is before it on a terminal."""
    text = bug_names().sub("(a sealed bug)", text)
    return "".join(letter if letter.isprintable() else "?" for letter in text)


@cache
def bug_names() -> re.Pattern[str]:
    """What any bug may be called: its name, its file, its class, in letters of any case."""
    names = (each.replace("-", "[-_]?") for each in sorted(catalogue(), key=len, reverse=True))
    classes = (re.escape(bug.part.__name__) for bug in catalogue().values())
    return re.compile("|".join([*names, *classes]), re.IGNORECASE)


def total(grades: Sequence[Grade]) -> float:
    """The sum of scores."""
    return sum(each.score for each in grades)


def feedback(grades: Sequence[Grade]) -> str:
    """What a student is told: scores and reasons, what was seen, and the first hint."""
    lines = [f"{total(grades):.3g} of {len(grades)}", ""]
    for each in grades:
        lines += [f"{each.exercise}: {each.score:.3g}, {each.reason}"]
        if each.score < 1:
            lines += [f"    {line}" for line in each.said]
            lines += [f"    hint: {each.hint}"] if each.hint else []
    return "\n".join(lines) + "\n"


def asked_by(path: Path | None, folder: Path, known: Mapping[str, Exercise]) -> Asked:
    """Who was asked for what: by a teacher's file or a release, else by `release.json` in the folder, else all for all.

    Raises `BadInput` for a file that cannot be read, or that asks for an exercise that there is not.
    """
    if path is None and not (folder / RELEASE).is_file():
        return {"": list(known)}
    path = path or folder / RELEASE
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        asked = cast("dict[str, list[str]]", {"": list(data["exercises"]), **data.get("students", {})})
        strange = [name for names in asked.values() for name in names if name not in known]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} is no release that can be read ({one_line(error)})") from None
    if not asked[""]:
        raise BadInput(f"{path} asks for nothing; give another --release")
    for student in asked:
        require_name(student or "all", path)
    if strange:
        raise BadInput(f"{path} asks for {strange[0]!r}, which is no exercise here")
    return asked


def about_sets(folder: Path, asked: Asked, students: Sequence[str]) -> str:
    """A note where students' folders say what they were given and nobody else does: they could change that."""
    given = next((student for student in students if (folder / student / RELEASE).is_file()), "")
    if not given or (folder / RELEASE).is_file():
        return ""
    return (
        f"note: {given} was given a set by a release, and is graded on {len(asked[''])} exercises; if that is not what "
        "was asked, give --release with the teacher's file"
    )


def summary(grades: Sequence[Grade]) -> Iterator[str]:
    """A line for each student."""
    for student in dict.fromkeys(each.student for each in grades):
        theirs = [each for each in grades if each.student == student]
        yield f"{student}: {total(theirs):.3g} of {len(theirs)}"
