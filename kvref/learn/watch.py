"""The loop at a terminal: files are watched, and judged as they are saved; a line from the keyboard is a command."""

import select
import sys
from collections.abc import Callable

from kvref.learn.exercises import Exercise, file_name
from kvref.learn.folder import Folder
from kvref.learn.preload import warm_up
from kvref.learn.session import given_back, hinted, judged
from kvref.said import Say

PAUSE = 0.2
"""Seconds between two looks at the files."""

KEYS = "Enter judges again; h hint, s skip, r reset, l list, q quit, each with Enter"


class Watch:
    """The state of the loop: the exercise that is worked on, and when each file was last changed."""

    def __init__(self, folder: Folder, seconds: float, say: Say) -> None:
        self.folder, self.seconds, self.say = folder, seconds, say
        self.current: Exercise | None = folder.current()
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

    def judge(self, exercise: Exercise) -> None:
        """Judge an exercise, and go on to the next if it is solved."""
        self.say("")
        self.current = exercise
        if judged(self.folder, exercise, self.seconds, self.say):
            self.current = self.folder.current()
            self.introduce()
        self.say(KEYS)

    def introduce(self) -> None:
        """Say what is next."""
        if self.current:
            self.say(f"\n{self.current.name} ({self.current.kind}), {self.current.chapter.title}")
            self.say(f"edit {self.folder.path / file_name(self.current)}")

    def command(self, word: str) -> bool:
        """Do what a line from the keyboard says. Whether to go on."""
        if word == "q":
            return False
        if word == "l":
            done = self.folder.progress.solved
            self.say(
                " ".join(f"{name}{'*' if name in done else ''}" for name in self.folder.exercises) + "   (* solved)"
            )
        elif self.current is None:
            self.say("nothing is left")
        elif word == "h":
            hinted(self.folder, self.current, self.seconds, self.say)
        elif word == "s":
            self.folder.skip(self.current)
            self.current = self.folder.current()
            self.introduce()
        elif word == "r":
            self.say(given_back(self.current.name, self.folder.reset(self.current)))
            self.seen = self.changes()
        elif word == "":
            self.judge(self.current)
        else:
            self.say(KEYS)
        return True


def watch(folder: Folder, seconds: float, say: Say) -> None:
    """Watch until the student quits, or the keyboard is closed."""
    warm_up()
    loop = Watch(folder, seconds, say)
    if loop.current is None:
        say("everything is solved; save a file to have it judged again")
    loop.introduce()
    if loop.current:
        loop.judge(loop.current)
    run(loop, typed)


def run(loop: Watch, line: Callable[[float], str | None]) -> None:
    """Look at the files and the keyboard in turn. `line` waits for so many seconds: None is no line yet."""
    while True:
        if saved := loop.changed():
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
