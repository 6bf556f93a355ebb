"""What a student is told: the judgement of a file, and hints, in lines that fit a terminal."""

from collections.abc import Iterator
from pathlib import Path

from kvref.learn.apart import judge_apart
from kvref.learn.exercises import Answer, Exercise, file_name
from kvref.learn.folder import Folder
from kvref.said import Say, wrapped


def judged(folder: Folder, exercise: Exercise, seconds: float, say: Say, help_by: str = "") -> bool:
    """Judge an exercise, tell what came of it, and note it when it is solved. Whether it is.

    `help_by` is the key by which a hint is asked for in the loop, which says itself what is next.
    """
    answer = answer_of(folder, exercise, seconds, say)
    for line in answer.lines if answer else ():
        say(line)
    if answer is None or not answer.solved:
        folder.unsolve(exercise)
        if answer:
            say(f"{exercise.name}: not yet; {help_by or f'`kvref learn hint {exercise.name}`'} helps")
        return False
    folder.solve(exercise)
    if help_by:
        say(f"{exercise.name}: solved; o shows our solution")
        return True
    say(f"{exercise.name}: solved; `kvref learn solution {exercise.name}` shows ours")
    if following := folder.current():
        say(f"next: {following.name} in {folder.path / file_name(following)}")
    else:
        say("that was the last one")
    return True


def hinted(folder: Folder, exercise: Exercise, seconds: float, say: Say) -> bool:
    """Give the next hint for how an exercise fails now. Whether there was one."""
    answer = answer_of(folder, exercise, seconds, say)
    if answer is None or not answer.hints:
        say(f"{exercise.name}: " + ("solved" if answer and answer.solved else "no hint before the file can be tried"))
        return False
    number, text = folder.hint(exercise, answer.hints)
    for line in wrapped(f"hint {number} of {len(answer.hints)}: {text}"):
        say(line)
    return True


def listed(folder: Folder) -> Iterator[str]:
    """The exercises by their chapters, and what was done of them."""
    now, current, progress = None, folder.current(), folder.progress
    for exercise in folder.exercises.values():
        if exercise.chapter is not now:
            now = exercise.chapter
            yield now.title
        mark = "x" if exercise.name in progress.solved else "-" if exercise.name in progress.skipped else " "
        arrow = ">" if exercise is current else " "
        yield f"{arrow} [{mark}] {exercise.name:16} {exercise.kind:8} {file_name(exercise)}"
    solved = sum(name in progress.solved for name in folder.exercises)
    yield f"{solved} of {len(folder.exercises)} solved; x solved, - skipped, > next"


def given_back(name: str, kept: Path | None) -> str:
    """What is said of an exercise that was given back as it was."""
    return f"{name} is as it was" + (f"; yours is {kept}" if kept else "")


def answer_of(folder: Folder, exercise: Exercise, seconds: float, say: Say) -> Answer | None:
    """The judgement of an exercise in a process apart; None, and the reason said, where there is none.

    Raises `BadInput` where there is no file to judge.
    """
    result = judge_apart(exercise.name, folder.file(exercise), seconds)
    if result.answer is None:
        for line in wrapped(f"{exercise.name}: {result.reason}"):
            say(line)
    return result.answer
