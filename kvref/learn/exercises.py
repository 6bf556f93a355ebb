"""What an exercise is, whatever its kind, and all that there are by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

from kvref.learn.course import CHAPTERS, Chapter

Kind = Literal["repair", "write", "explain"]


@dataclass(frozen=True)
class Answer:
    """What came of a student's file: whether it is right, and what the student is told, line by line.

    `score` is from 0 to 1. `hints` are for this failure, each saying more than the last; the first is asked for first.
    """

    solved: bool
    lines: tuple[str, ...]
    hints: tuple[str, ...] = ()
    score: float = 0.0


class Exercise(Protocol):
    """One file that a student edits, and how it is judged."""

    @property
    def name(self) -> str:
        """What it is called: `positions-1`, `positions-law`, `positions-cause`."""
        ...

    @property
    def kind(self) -> Kind:
        """What is to be done."""
        ...

    @property
    def chapter(self) -> Chapter:
        """The chapter it belongs to."""
        ...

    def start(self) -> str:
        """The file as it is given."""
        ...

    def solution(self) -> str:
        """A file that is right."""
        ...

    def judge(self, path: Path) -> Answer:
        """Judge a student's file, in this process. Raises `BadInput`, in one line, for one that cannot be tried."""
        ...


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by name: chapter by chapter, repairs first, then the law to write, then the cause to explain."""
    from kvref.learn.explain import explanations
    from kvref.learn.repairs import repair_exercises
    from kvref.learn.write import writings

    found: Sequence[Exercise] = [*repair_exercises(), *writings(), *explanations()]
    order = {chapter.name: number for number, chapter in enumerate(CHAPTERS)}
    return {each.name: each for each in sorted(found, key=lambda each: order[each.chapter.name])}


def file_name(exercise: Exercise) -> str:
    """Where an exercise lies in a student's folder."""
    number = CHAPTERS.index(exercise.chapter) + 1
    return f"{number}_{exercise.chapter.name}/{exercise.name.replace('-', '_')}.py"
