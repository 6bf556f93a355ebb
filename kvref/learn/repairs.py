"""Repairs as exercises: what the student is told of a class that breaks a law."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvref.bug import Bug, catalogue
from kvref.decoder import Decoder
from kvref.finding import Finding
from kvref.law import EQUALITY
from kvref.learn.course import Chapter, chapter_of, repairs
from kvref.learn.exercises import Answer, Kind
from kvref.learn.judge import Verdict, judge
from kvref.learn.pictures import drawn
from kvref.learn.repair import CLASS, Method, meant, solution, start
from kvref.locate import KEPT
from kvref.operations import count
from kvref.said import wrapped


@dataclass(frozen=True)
class Repair:
    """A bug of the catalogue to be mended."""

    name: str
    bug: Bug

    kind: Kind = "repair"

    @property
    def chapter(self) -> Chapter:
        """The chapter it belongs to."""
        return chapter_of(self.name)

    def heading(self) -> str:
        """What the file says before its code."""
        method = Method.of(self.bug)
        task = (
            f"The method below is the only one that is wrong. Mend `{CLASS}.{method.name}` until every law holds: "
            f"`kvref learn test {self.name}` shows the smallest schedule on which one does not, and `kvref learn hint "
            f"{self.name}` helps in three steps. Its docstring says what it is meant to do."
        )
        about = textwrap.fill(self.chapter.about, 100)
        return f"{self.chapter.title}: repair {self.name}.\n\n{about}\n\n{textwrap.fill(task, 100)}\n"

    def start(self) -> str:
        """The file as it is given."""
        return start(self.bug, self.heading())

    def solution(self) -> str:
        """The file with the reference's method."""
        return solution(self.bug, self.heading())

    def judge(self, path: Path) -> Answer:
        """Try every law on the student's class. Raises `BadInput` for a file that cannot be tried."""
        verdict = judge(path, self.bug)
        if verdict.solved:
            said = f"no law is broken: {count(verdict.held, 'law')} held on {count(verdict.schedules, 'schedule')}"
            return Answer(True, (f"{said}, in {verdict.seconds:.1f} s",), score=1.0)
        if (broken := verdict.broken) is None or broken.finding is None:
            said = verdict.unlike or "no law could be tried on it: none of its cases came up"
            return Answer(False, tuple(wrapped(said, "unlike")), self.hints(UNLIKE))
        lines = *told(broken.finding), *pictures(verdict, broken.finding)
        return Answer(False, tuple(lines), self.hints(look_at(broken.finding, Method.of(self.bug).name)))

    def hints(self, first: str) -> tuple[str, ...]:
        """Three steps: look here; ask this question; this is when it goes wrong, and what is meant."""
        method = Method.of(self.bug)
        due = " ".join(meant(method).split())
        last = f"It goes wrong on {self.bug.trigger}. `{method.name}` is meant to do this: {due}"
        return first, self.bug.hint, last


UNLIKE = (
    "No law is broken, for a law compares a decoder with itself; but this is no longer the reference. What does the "
    "method do now in a pass without any cache, and what did it refuse or leave out that it is to do?"
)
"""The first hint where no schedule can be shown."""


TURN = "each time that the cache is extended is a turn of a conversation, and a reply of up to 3 tokens follows it"
READ_AS = {
    "a-conversation-gives-what-its-whole-text-gives": TURN,
    "a-conversation-runs-each-token-once": TURN,
    "speculation-gives-the-greedy-tokens-and-runs-what-it-drafts": "the tokens are a prompt; up to 10 more are "
    "generated from it, by drafts of which some are wrong",
    "naive-and-cached-generation-give-the-same-tokens": "the tokens are a prompt, and up to 6 are generated from it",
    "generation-runs-n-tokens-with-a-cache-and-n-n-plus-1-over-2-without": "the tokens are a prompt, and more are "
    "generated from it",
}
"""What a schedule stands for, under laws that do more with it than it says."""


def look_at(finding: Finding, method: str) -> str:
    """Where to look, by the failure that was seen."""
    if finding.divergence.step is None:
        return "Play the schedule with pencil and paper: which tokens are in the cache after each step?"
    step = finding.divergence.step
    before = finding.schedule.ops[step - 1] if step else None
    said = f"It shows first at step {step + 1}: {str(finding.schedule.ops[step]).split(':')[0]}."
    if before is not None:
        said += f" Before it: {str(before).split(':')[0]}."
    said += f" In which steps is `{method}` called, with which arguments, and what does it do then?"
    if finding.origin == KEPT and finding.law == EQUALITY:  # else another cache may be the one that went wrong
        said += " What was kept is right, so it is how it is read that goes wrong."
    elif finding.origin and finding.origin != KEPT:
        said += " What was kept of the tokens is wrong already, not only how it is read."
    return said


def told(finding: Finding) -> Iterator[str]:
    """The finding in few lines: the law, the schedule, and where it first goes wrong."""
    yield from wrapped(finding.sentence, "law")
    for number, line in enumerate(str(finding.schedule).splitlines()):
        mark = "->" if number == finding.divergence.step else "  "
        yield from wrapped(f"{mark} {line}", " " if number else "schedule", behind="      ")
    if read_as := READ_AS.get(finding.law):
        yield from wrapped(read_as, "read as")
    yield from wrapped(str(finding.divergence), "raised" if finding.raised else "diverges")


def pictures(verdict: Verdict, finding: Finding) -> list[str]:
    """Pictures of the wrong step, if there are any."""
    found: list[Decoder] = [decoder for decoder in verdict.target.decoders() if decoder.name == finding.decoder]
    return drawn(found[0].under(finding.lens), finding) if found else []


def repair_exercises() -> list[Repair]:
    """All repairs, in the order of the course."""
    bugs = catalogue()
    return [Repair(name, bugs[bug]) for name, bug in repairs().items()]
