"""The loop at a terminal: files are watched, and judged as they are saved; a line from the keyboard is a command."""

import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from kvref.errors import BadInput
from kvref.learn.exercises import Exercise, file_name
from kvref.learn.folder import Folder
from kvref.learn.preload import warm_up
from kvref.learn.session import given_back, hinted, judged, listed
from kvref.said import Say, wrapped

PAUSE = 0.2
"""Seconds between two looks at the files."""

KEYS = "Enter judges again; h hint, s skip, r reset, l list, o ours, q quit, then Enter"


class Watch:
    """The state of the loop: the exercise that is worked on, and when each file was last changed."""

    def __init__(self, folder: Folder, seconds: float, say: Say) -> None:
        self.folder, self.seconds, self.say = folder, seconds, say
        self.current: Exercise | None = folder.current()
        self.solved: Exercise | None = None
        self.seen = self.changes()

    def changes(self) -> dict[str, int]:
        """When each file was last changed; nothing for those that are gone, as in the middle of a save."""
        found = dict[str, int]()
        for exercise in self.folder.exercises.values():
            path = self.folder.path / file_name(exercise)
            try:
                found[exercise.name] = path.stat().st_mtime_ns
            except OSError:
                continue
        return found

    def changed(self) -> Exercise | None:
        """An exercise whose file was saved since the last look; of several, the one that is worked on."""
        now, before = self.changes(), self.seen
        saved = [name for name, time in now.items() if before.get(name) != time]
        if not saved:
            return None
        name = self.current.name if self.current and self.current.name in saved else saved[0]
        self.seen[name] = now[name]  # the others have their turn at the next look
        return self.folder.exercises[name]

    @contextmanager
    def bearing(self) -> Generator[None]:
        """What cannot be done is said, and no reason to end."""
        try:
            yield
        except BadInput as error:
            for line in wrapped(str(error)):
                self.say(line)

    def judge(self, exercise: Exercise) -> None:
        """Judge an exercise, and go on to the next if it is solved."""
        self.say("")
        self.current = exercise
        if not judged(self.folder, exercise, self.seconds, self.say, "h"):
            self.say(KEYS)
            return
        self.solved, self.current = exercise, self.folder.current()
        self.begin()

    def begin(self) -> None:
        """Say what is next, and judge it as it is, so that its failure is seen."""
        if self.current is None:
            self.say("nothing is left; save a file to have it judged again")
            return
        self.say(f"\n{self.current.name} ({self.current.kind}), {self.current.chapter.title}")
        self.say(f"edit {self.folder.path / file_name(self.current)}")
        self.judge(self.current)

    def command(self, word: str) -> bool:
        """Do what a line from the keyboard says. Whether to go on."""
        if word == "q":
            return False
        with self.bearing():
            if word in COMMANDS and (self.current or word in ("l", "o")):
                COMMANDS[word](self)
            elif word == "" and self.current:
                self.judge(self.current)
            else:
                self.say(KEYS if self.current else "nothing is left; l list, o ours, q quit")
        return True

    def hint(self) -> None:
        """Give the next hint."""
        if self.current:
            hinted(self.folder, self.current, self.seconds, self.say)
            self.say(KEYS)

    def skip(self) -> None:
        """Leave the exercise for later."""
        if self.current:
            self.folder.skip(self.current)
            self.say(f"{self.current.name} is left for later")
            following = self.folder.current()
            if following is self.current:
                self.say("and it is the last one")
                return
            self.current = following
            self.begin()

    def reset(self) -> None:
        """Give the file back as it was."""
        if self.current:
            self.say(given_back(self.current.name, self.folder.reset(self.current)))
            self.seen = self.changes()
            self.judge(self.current)

    def list(self) -> None:
        """List the exercises."""
        for line in listed(self.folder):
            self.say(line)
        self.say(KEYS)

    def ours(self) -> None:
        """Show our solution of what was solved last."""
        self.say(self.solved.solution() if self.solved else "nothing is solved yet; our solution comes after yours")


COMMANDS: dict[str, Callable[[Watch], None]] = {
    "h": Watch.hint,
    "s": Watch.skip,
    "r": Watch.reset,
    "l": Watch.list,
    "o": Watch.ours,
}


def watch(folder: Folder, seconds: float, say: Say) -> None:
    """Watch until the student quits, or the keyboard is closed."""
    warm_up()
    loop = Watch(folder, seconds, say)
    with loop.bearing():
        loop.begin()
    run(loop, typed)


def run(loop: Watch, line: Callable[[float], str | None]) -> None:
    """Look at the files and the keyboard in turn. `line` waits for so many seconds: None is no line yet."""
    while True:
        if saved := loop.changed():
            with loop.bearing():
                loop.judge(saved)
        said = line(PAUSE)
        if said is not None and (said == END or not loop.command(said.strip().lower())):
            return


END = "\x04"
"""What stands for a keyboard that was closed."""


def typed(seconds: float) -> str | None:
    """A line from the keyboard, or None if none came in time."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return None
    return sys.stdin.readline() or END
