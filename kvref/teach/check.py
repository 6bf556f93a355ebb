"""Exercises proved sound: the start is wrong for the right reason, the solution is right, and nothing is given away."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from kvref.bug import Bug, catalogue
from kvref.errors import BadInput
from kvref.learn.apart import Judged, judge_apart
from kvref.learn.exercises import Exercise
from kvref.said import WIDTH

PATIENCE = 6
"""How many times as long is waited, so as to say how long it takes."""

STEPS = 3
"""Hints of an exercise."""


@dataclass(frozen=True)
class Proof:
    """What is wrong with an exercise, nothing where it is sound, and the seconds of the slower judgement."""

    exercise: str
    kind: str
    wrong: tuple[str, ...]
    start: float = 0.0
    solution: float = 0.0

    def __str__(self) -> str:
        took = f"start {self.start:.1f} s, solution {self.solution:.1f} s"
        said = f"spoiled: {'; '.join(self.wrong)}" if self.wrong else "sound"
        return f"{self.exercise:16} {self.kind:8} {took}  {said}"


def check(exercises: Sequence[Exercise], seconds: float, workers: int, done: Callable[[Proof], object]) -> bool:
    """Prove exercises, several at once, and tell each in their order. Whether all are sound."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        sound, tasks = True, [pool.submit(proved, each, seconds, Path(folder)) for each in exercises]
        try:
            for proof in (task.result() for task in tasks):
                done(proof)
                sound &= not proof.wrong
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
        return sound


def proved(exercise: Exercise, seconds: float, folder: Path) -> Proof:
    """An exercise tried in every way."""
    try:
        start, solution = (tried(exercise, which, seconds, folder) for which in ("start", "solution"))
    except Exception as error:
        return Proof(exercise.name, exercise.kind, (f"it cannot be written ({type(error).__name__}: {error})",))
    faults = chain(
        of_start(exercise, start),
        of_solution(solution),
        of_text(exercise),
        (
            f"the {which} takes {judged.seconds:.1f} s, more than {seconds:g} s"
            for which, judged in (("start", start), ("solution", solution))
            if judged.seconds > seconds
        ),
    )
    return Proof(exercise.name, exercise.kind, tuple(faults), start.seconds, solution.seconds)


def tried(exercise: Exercise, which: str, seconds: float, folder: Path) -> Judged:
    """The start or the solution, judged as a student's file is."""
    path = folder / which / f"{exercise.name.replace('-', '_')}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(exercise.start() if which == "start" else exercise.solution(), encoding="utf-8")
    return judge_apart(exercise, path, seconds * PATIENCE)


def of_start(exercise: Exercise, judged: Judged) -> Iterator[str]:
    """What is wrong with how the start fails."""
    if judged.answer is None:
        yield f"the start cannot be judged: {judged.reason}"
        return
    if judged.solved:
        yield "the start is solved already"
        return
    if why := WRONG_REASON[exercise.kind](judged):
        yield f"the start fails for another reason: {why}"
    if wide := next((line for line in judged.answer.lines if len(line) > WIDTH), ""):
        yield f"what is said of the start is wider than {WIDTH} columns: {wide}"
    hints = [hint for hint in judged.answer.hints if hint.strip()]
    if len(hints) != STEPS:
        yield f"the start has {len(hints)} hints, not {STEPS}"


def broken(judged: Judged) -> str:
    """Why the start of a repair does not just break a law; nothing where it does."""
    lines = judged.answer.lines if judged.answer else ()
    if not any(line.startswith("law ") for line in lines):
        return "no law is broken"
    return "it raises where it should be wrong" if any(line.startswith("raised ") for line in lines) else ""


def alive(judged: Judged) -> str:
    """Why the start of a law to write does not just leave bugs alive; nothing where it does."""
    lines = judged.answer.lines if judged.answer else ()
    return "" if any("alive" in line for line in lines) else "no sealed bug is alive"


def unanswered(judged: Judged) -> str:
    """Why the start of an explanation is not just without an answer; nothing where it is."""
    return "" if judged.score == 0 else f"it scores {judged.score:g}"


WRONG_REASON: dict[str, Callable[[Judged], str]] = {"repair": broken, "write": alive, "explain": unanswered}
"""For each kind, what else than intended makes its start fail."""


def of_solution(judged: Judged) -> Iterator[str]:
    """What is wrong with how the solution is judged."""
    if judged.answer is None:
        yield f"the solution cannot be judged: {judged.reason}"
    elif not judged.solved:
        yield f"the solution fails: {next(iter(judged.answer.lines), 'nothing is said')}"
    elif judged.score != 1:
        yield f"the solution scores {judged.score:g}, not 1"


def of_text(exercise: Exercise) -> Iterator[str]:
    """What is wrong with the files themselves."""
    start = exercise.start()
    if start == exercise.solution():
        yield "start and solution are the same"
    if names := named(start):
        yield f"the start names {names[0]}"


def named(text: str) -> list[str]:
    """Bugs that a text names, in any of the spellings that a bug has, and the package that they are in."""
    found = [bug.name for bug in catalogue().values() if any(spelling in text for spelling in spellings(bug))]
    return [*found, *(["kvref.bugs"] if "kvref.bugs" in text else [])]


def spellings(bug: Bug) -> tuple[str, str, str]:
    """A bug's name as it is on the command line, as a file, and as a class."""
    return bug.name, bug.name.replace("-", "_"), "".join(word.title() for word in bug.name.split("-"))


def chosen(names: Sequence[str], known: dict[str, Exercise]) -> list[Exercise]:
    """Exercises by name, each once, or all. Raises `BadInput` for one that there is not."""
    from kvref.learn.course import no_such

    for name in names:
        if name not in known:
            raise no_such(name, list(known))
    found = [known[name] for name in dict.fromkeys(names)] or list(known.values())
    if not found:
        raise BadInput("there are no exercises")
    return found
