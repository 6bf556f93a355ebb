"""What a class is given: folders of the course without solutions, and beside them what only the teacher may see."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from kvref.errors import BadInput
from kvref.learn.exercises import Exercise, file_name
from kvref.learn.folder import INTRODUCTION, RELEASE, Progress, write_progress
from kvref.said import filled
from kvref.teach.check import named

SCHEMA = 1

LONGEST = 240
"""Bytes of a name, at most: a disk takes 255, with what stands behind it."""


@dataclass(frozen=True)
class Released:
    """What was written: how many exercises for each student, by folder, and the teacher's file."""

    folders: Mapping[Path, int]
    teacher: Path


def teacher_file(folder: Path) -> Path:
    """Where the teacher's file of a release is: beside its folder."""
    folder = folder.resolve()
    if not folder.name:
        raise BadInput(f"{folder} is not to be written to; give the name of a new folder")
    return folder.with_name(f"{folder.name}-teacher.json")


def release(
    folder: Path, exercises: Sequence[Exercise], seed: int, students: Sequence[str] = (), draw: int | None = None
) -> Released:
    """Write a folder for each student, or one for all, and the teacher's file.

    Where `draw` is given, each gets so many of the exercises, drawn by the seed and the name. Raises `BadInput` where
    there is something already, or where a file would give a sealed bug away.
    """
    teacher = teacher_file(folder)
    require_room(folder, teacher)
    require_sealed(exercises)
    given = {student: drawn(exercises, seed, student, draw) for student in students or [""]}
    try:
        for student, theirs in given.items():
            write(folder / student if student else folder, theirs)
        teacher.write_text(text_of(for_teacher(exercises, seed, given)), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}); give another name") from None
    return Released({folder / student: len(theirs) for student, theirs in given.items()}, teacher)


def require_room(folder: Path, teacher: Path) -> None:
    """Raise `BadInput` where something would be written over."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is there already, and not empty; give another name")
    if teacher.exists():
        raise BadInput(f"{teacher} is there already; move it, or give another name")


def require_sealed(exercises: Sequence[Exercise]) -> None:
    """Raise `BadInput` for a file that names a bug."""
    for exercise in exercises:
        if names := named(exercise.start()):
            raise BadInput(f"{exercise.name} gives {names[0]} away; see `kvref teach check {exercise.name}`")


def drawn(exercises: Sequence[Exercise], seed: int, student: str, draw: int | None) -> list[Exercise]:
    """The exercises of one student, in their order."""
    if draw is None or draw >= len(exercises):
        return list(exercises)
    numbers = Random(f"{seed} {student}").sample(range(len(exercises)), draw)
    return [exercises[number] for number in sorted(numbers)]


def write(folder: Path, exercises: Sequence[Exercise]) -> None:
    """Write one student's folder."""
    for exercise in exercises:
        file = folder / file_name(exercise)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(exercise.start(), encoding="utf-8")
    (folder / "README.md").write_text(readme(exercises), encoding="utf-8")
    files = {each.name: {"file": file_name(each), "sha256": hash_of(each)} for each in exercises}
    (folder / RELEASE).write_text(text_of({"schema": SCHEMA, "exercises": files}), encoding="utf-8")
    write_progress(folder, Progress())  # it makes a folder in which `kvref learn` works


def readme(exercises: Sequence[Exercise]) -> str:
    """What a student's folder says of itself: how to work, and what is to be done."""
    chapters = dict.fromkeys(exercise.chapter for exercise in exercises)
    lines = [INTRODUCTION, "Hand in this folder, with its files where they are now.", ""]
    for chapter in chapters:
        lines += [f"## {chapter.title}", "", filled(chapter.about), ""]
        mine = [exercise for exercise in exercises if exercise.chapter == chapter]
        lines += [f"- `{each.name}` ({each.kind}): `{file_name(each)}`" for each in mine]
        lines += [""]
    return "\n".join(lines)


def hash_of(exercise: Exercise) -> str:
    """The hash of an exercise's file as it is given."""
    return sha256(exercise.start().encode()).hexdigest()


def for_teacher(exercises: Sequence[Exercise], seed: int, given: Mapping[str, Sequence[Exercise]]) -> dict[str, Any]:
    """What the teacher's file says: who has what, and what is behind each exercise."""
    return {
        "schema": SCHEMA,
        "seed": seed,
        "students": {student: [each.name for each in theirs] for student, theirs in given.items()},
        "exercises": {
            each.name: {"kind": each.kind, "file": file_name(each), "sha256": hash_of(each), "bugs": bugs_of(each)}
            for each in exercises
        },
        "versions": versions(),
    }


def bugs_of(exercise: Exercise) -> list[str]:
    """The bugs behind an exercise, whichever way its kind keeps them; of a cause to choose, that which is right."""
    found: list[Any] = [*getattr(exercise, "sealed", ())]
    found += [getattr(exercise, name) for name in ("bug", "shown") if hasattr(exercise, name)]
    return [each if isinstance(each, str) else each.name for each in found]


def versions() -> dict[str, str]:
    """With which versions it was made, for a law may be tried on other schedules by another."""
    from importlib.metadata import version

    return {"python": sys.version.split()[0], **{name: version(name) for name in ("kvref", "torch", "hypothesis")}}


def text_of(data: Mapping[str, Any]) -> str:
    """Data as it is written."""
    return json.dumps(data, indent=1) + "\n"


def require_name(name: str, where: Path) -> None:
    """Raise `BadInput` for a student's name that no folder has, or no file with a suffix, or that cannot be printed."""
    if "/" in name or "\\" in name or name.startswith(".") or not name.isprintable() or len(name.encode()) > LONGEST:
        raise BadInput(f"{where}: {name!r:.80} cannot be a student's folder; give another name")


def read_students(path: Path) -> list[str]:
    """Names of students, one a line. Raises `BadInput` for a name that can be no folder's, or that is there twice."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error})") from None
    names = [name for line in lines if (name := line.strip())]
    for name in names:
        require_name(name, path)
        if names.count(name) > 1:
            raise BadInput(f"{path} has {name!r} more than once")
    if not names:
        raise BadInput(f"{path} has no names; give one a line")
    return names
