"""What a student is told: the judgement of a file, and hints, in lines that fit a terminal."""

from pathlib import Path

from kvref.errors import BadInput
from kvref.learn.apart import judge_apart
from kvref.learn.exercises import Answer, Exercise, file_name
from kvref.learn.folder import Folder
from kvref.said import Say, wrapped


def judged(folder: Folder, exercise: Exercise, seconds: float, say: Say) -> bool:
    """Judge an exercise, tell what came of it, and note it when it is solved. Whether it is."""
    answer = answer_of(folder, exercise, seconds, say)
    if answer is None:
        folder.unsolve(exercise)
        return False
    for line in answer.lines:
        say(line)
    if answer.solved:
        folder.solve(exercise)
        say(f"{exercise.name}: solved")
        following = folder.current()
        if following is None:
            say("that was the last one")
        else:
            say(f"next: {following.name} in {folder.path / file_name(following)}")
    else:
        folder.unsolve(exercise)
        say(f"{exercise.name}: not yet; `kvref learn hint {exercise.name}` helps")
    return answer.solved


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


def given_back(name: str, kept: Path | None) -> str:
    """What is said of an exercise that was given back as it was."""
    return f"{name} is as it was" + (f"; yours is {kept}" if kept else "")


def answer_of(folder: Folder, exercise: Exercise, seconds: float, say: Say) -> Answer | None:
    """The judgement of an exercise in a process apart; None, and the reason said, where there is none."""
    try:
        result = judge_apart(exercise.name, folder.file(exercise), seconds)
    except BadInput as error:
        say(str(error))
        return None
    if result.answer is None:
        say(f"{exercise.name}: {result.reason}")
    return result.answer
