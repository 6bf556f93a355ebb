"""A student's folder: the exercises as files, a README, and the progress in one small file."""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

from kvref.errors import BadInput
from kvref.learn.course import CHAPTERS
from kvref.learn.exercises import Exercise, exercises, file_name
from kvref.said import filled

PROGRESS = "progress.json"
"""The file that makes a folder one of the course."""

RELEASE = "release.json"
"""In a folder that a teacher hands out: which exercises there are in it, and what their files were."""

SCHEMA = 1


@dataclass
class Progress:
    """What has been done: when each exercise was solved, which were skipped, and the hints that were seen of each.

    `failures` are the first hints of how each failed when a hint was last asked for: another failure has hints anew.
    """

    solved: dict[str, str] = field(default_factory=dict[str, str])
    skipped: list[str] = field(default_factory=list[str])
    hints: dict[str, int] = field(default_factory=dict[str, int])
    failures: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, data: Any) -> "Progress":
        """Progress from what was written. Raises `ValueError` or `TypeError` for what is none."""
        if not isinstance(data, dict) or cast("dict[str, Any]", data).pop("schema", None) != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        progress = cls(**cast("dict[str, Any]", data))
        for name, kind, inside in (
            ("solved", dict, str),
            ("skipped", list, str),
            ("hints", dict, int),
            ("failures", dict, str),
        ):
            value: Any = getattr(progress, name)
            parts: Any = value.values() if isinstance(value, dict) else value  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - what is asked is what it is
            if not isinstance(value, kind) or not all(isinstance(part, inside) for part in parts):
                raise ValueError(f"{name} is not as it was written")
        return progress


class Folder:
    """A folder of the course. Raises `BadInput` for one that is none, or whose progress cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = read_progress(path)
        self.exercises = given_in(path)

    @contextmanager
    def changing(self) -> Generator[Progress]:
        """The progress as it is now, which another command may have changed; it is written afterwards."""
        self.progress = read_progress(self.path)
        yield self.progress
        write_progress(self.path, self.progress)

    def file(self, exercise: Exercise) -> Path:
        """Where an exercise lies. Raises `BadInput` where its file is gone."""
        path = self.path / file_name(exercise)
        if not path.is_file():
            raise BadInput(f"{path} is gone; `kvref learn reset {exercise.name}` gives it back")
        return path

    def current(self) -> Exercise | None:
        """The first exercise that is neither solved nor skipped, else the first that was skipped; None at the end."""
        left = [each for each in self.exercises.values() if each.name not in self.progress.solved]
        unskipped = [each for each in left if each.name not in self.progress.skipped]
        return next(iter([*unskipped, *left]), None)

    def solve(self, exercise: Exercise) -> None:
        """Note that an exercise is solved."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self.changing() as progress:
            progress.solved.setdefault(exercise.name, now)
            if exercise.name in progress.skipped:
                progress.skipped.remove(exercise.name)

    def unsolve(self, exercise: Exercise) -> None:
        """Note that an exercise that was solved is so no longer."""
        with self.changing() as progress:
            progress.solved.pop(exercise.name, None)

    def skip(self, exercise: Exercise) -> None:
        """Leave an exercise for later."""
        with self.changing() as progress:
            if exercise.name not in progress.skipped:
                progress.skipped.append(exercise.name)

    def hint(self, exercise: Exercise, hints: Sequence[str]) -> tuple[int, str]:
        """The next hint of those that there are for this failure, counted from 1; the last again once all were seen."""
        name = exercise.name
        with self.changing() as progress:
            seen = progress.hints.get(name, 0) if progress.failures.get(name) == hints[0] else 0
            number = min(max(seen, 0) + 1, len(hints))
            progress.hints[name], progress.failures[name] = number, hints[0]
        return number, hints[number - 1]

    def reset(self, exercise: Exercise) -> Path | None:
        """Give an exercise back as it was. What the student wrote is kept beside it; where, or None if it was nothing.

        Raises `BadInput` where it cannot be written.
        """
        path = self.path / file_name(exercise)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = None
            # A pipe, a folder or a link to nothing may be in its place.
            if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == exercise.start().encode()):
                path.rename(kept := unused(path))
            path.write_text(exercise.start(), encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{path} cannot be written ({error.strerror or error})") from None
        with self.changing() as progress:
            progress.solved.pop(exercise.name, None)
            progress.hints.pop(exercise.name, None)
            progress.failures.pop(exercise.name, None)
            if exercise.name in progress.skipped:
                progress.skipped.remove(exercise.name)
        return kept


def unused(path: Path) -> Path:
    """Where a student's file can be kept, so that none that was kept before is lost."""
    names = (path.with_suffix(f".py.mine{number or ''}") for number in count())
    return next(each for each in names if not os.path.lexists(each))


def read_progress(path: Path) -> Progress:
    """The progress of a folder. Raises `BadInput` where there is none that can be read."""
    try:
        return Progress.read(json.loads((path / PROGRESS).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise BadInput(
            f"{path} is no folder of the course; `kvref learn init DIR` makes one, and commands are given inside it"
        ) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"{path / PROGRESS} cannot be read ({error}); mend it, or begin again elsewhere") from None


def given_in(path: Path) -> dict[str, Exercise]:
    """The exercises of a folder by name: those that a teacher handed out with it, else all.

    Raises `BadInput` where what was handed out cannot be read.
    """
    known = exercises()
    try:
        names = json.loads((path / RELEASE).read_text(encoding="utf-8"))["exercises"]
        found = {name: known[name] for name in names}
    except FileNotFoundError:
        return known
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{path / RELEASE} cannot be read ({error}); ask for it once more") from None
    if not found:
        raise BadInput(f"{path / RELEASE} has no exercises; ask for it once more")
    return found


def make(path: Path) -> int:
    """Write a folder of the course, and say how many exercises it has.

    Raises `BadInput` for a folder that has something in it, or that cannot be written.
    """
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(f"{path} is there already, and not empty; give another name")
        for exercise in exercises().values():
            file = path / file_name(exercise)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(exercise.start(), encoding="utf-8")
        (path / "README.md").write_text(readme(), encoding="utf-8")
        write_progress(path, Progress())  # last: what is half written is no folder of the course
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror or error}); give another name") from None
    return len(exercises())


def write_progress(path: Path, progress: Progress) -> None:
    """Write the progress of a folder at once, so that it is never half there."""
    data = {"schema": SCHEMA, **asdict(progress)}
    new = path / f"{PROGRESS}.new"
    try:
        new.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        new.replace(path / PROGRESS)
    except OSError as error:
        raise BadInput(f"{path / PROGRESS} cannot be written ({error.strerror or error})") from None


def readme() -> str:
    """What the folder says of itself: how to work, and the chapters."""
    chapters = "\n\n".join(
        f"## {number}. {chapter.title}\n\n{filled(chapter.about)}\n\n{listed(chapter.name)}"
        for number, chapter in enumerate(CHAPTERS, start=1)
    )
    return f"{INTRODUCTION}\n{chapters}\n"


def listed(chapter: str) -> str:
    """The exercises of a chapter, one a line."""
    return "\n".join(
        f"- `{each.name}` ({each.kind}): `{file_name(each)}`"
        for each in exercises().values()
        if each.chapter.name == chapter
    )


INTRODUCTION = """# KV caches: repair, write, explain

A decoder that generates text keeps the keys and values of past tokens. Each
exercise here is about one way in which that went wrong in real code. You need
to know what attention is, and some Python; kvref has the model, the caches and
the laws.

    kvref learn                watch the files: save one, and see what comes
    kvref learn test NAME      judge one, where there is no terminal to watch
    kvref learn hint NAME      a hint; the third says most
    kvref learn list           what there is, and what you have done
    kvref learn reset NAME     the file as it was; yours is kept beside it
    kvref learn skip NAME      leave one for later
    kvref learn solution NAME  ours, once yours holds
    kvref learn attack FILE:CLASS  a bug of your own: does any law catch it?

- **repair**: one method is wrong. Mend it until every law holds. You are shown
  the smallest schedule on which one does not: numbered cache operations, an
  arrow at the first wrong one, and what it did beside what it should have done.
- **write**: complete a property, so that it fails on wrong caches and holds on
  right ones.
- **explain**: choose the cause of a failure that you are shown.

Edit the files as you like: what a method prints on the schedule that is shown
is shown too, and `reset` gives a file back. The model is `kvref/gpt2.py`, its
caches `kvref/cache.py`, positions and masks `kvref/masks.py`: read them
whenever you like; `python -c "import kvref; print(kvref.__path__)"` says where.
Shapes are written as `batch n_head new head_dim`; `new` counts the tokens of a
call, `past` those in the cache, `total` both.
"""
"""What a student is told first."""
