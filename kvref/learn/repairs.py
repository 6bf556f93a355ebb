"""Repairs as exercises: what the student is told of a class that breaks a law."""

from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from io import StringIO
from pathlib import Path
from traceback import extract_tb

from kvref.answers import DecoderRaised
from kvref.bug import Bug, catalogue
from kvref.decoder import Decoder
from kvref.finding import Finding, LawBroken
from kvref.law import EQUALITY
from kvref.learn.course import Chapter, chapter_of, repairs
from kvref.learn.exercises import Answer, Kind
from kvref.learn.judge import Verdict, judge
from kvref.learn.pictures import drawn
from kvref.learn.repair import CLASS, Method, solution, start
from kvref.locate import KEPT
from kvref.operations import count
from kvref.said import WIDTH, filled, wrapped
from kvref.search import Outcome

PRINTED = 20
"""Lines of what a file prints that are shown."""

SHOWN = 2
"""Wrong lines that the last hint shows."""


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
        return f"{self.chapter.title}: repair {self.name}.\n\n{filled(self.chapter.about)}\n\n{filled(task)}\n"

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
        finding = broken.finding
        lines = *told(finding), *once_more(verdict, broken, finding, path), *pictures(verdict, finding)
        return Answer(False, tuple(lines), self.hints(look_at(finding, Method.of(self.bug).name)))

    def hints(self, first: str) -> tuple[str, ...]:
        """Three steps: look here; ask this question; this is when it goes wrong, and in which line."""
        return first, self.bug.hint, f"As it was given, it goes wrong on {self.bug.trigger}. {self.lines()}"

    def lines(self) -> str:
        """Which lines of what was given are not in the solution, or behind which line some are missing."""
        given, right = (
            [line.strip() for line in text.rpartition('"""')[2].strip().splitlines()]
            for text in (self.start(), self.solution())
        )
        found = [each for each in SequenceMatcher(None, given, right, False).get_opcodes() if each[0] != "equal"]
        if wrong := [f"`{line}`" for _, begin, end, _, _ in found for line in given[begin:end]]:
            more = ", and what goes with it" if len(wrong) > SHOWN else ""
            return f"What the reference has otherwise, or not at all: {', '.join(wrong[:SHOWN])}{more}."
        places = ", ".join(f"`{given[begin - 1]}`" for _, begin, _, _, _ in found)
        return f"Nothing that is there is wrong; something is missing behind {places}."


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
    return drawn(decoder_of(verdict, finding), finding)


def decoder_of(verdict: Verdict, finding: Finding) -> Decoder:
    """The decoder on which a law was broken."""
    return next(each for each in verdict.target.decoders() if each.name == finding.decoder).under(finding.lens)


def once_more(verdict: Verdict, broken: Outcome, finding: Finding, path: Path) -> Iterator[str]:
    """What the student's file prints on the schedule, and in which of its lines the decoder raises."""
    printed, raised = StringIO(), None
    with redirect_stdout(printed):
        try:
            broken.law.check(decoder_of(verdict, finding), finding.schedule)
        except DecoderRaised as error:
            raised = error.error.__traceback__
        except LawBroken:
            pass
    for frame in [frame for frame in extract_tb(raised) if Path(frame.filename) == path][-1:]:
        yield f"{'line':10}{frame.lineno}: {frame.line}"[:WIDTH]
    for number, line in enumerate(printed.getvalue().splitlines()[:PRINTED]):
        shown = "".join(letter if letter.isprintable() else "?" for letter in line)
        yield f"{'' if number else 'printed':10}{shown}"[:WIDTH]


def repair_exercises() -> list[Repair]:
    """All repairs, in the order of the course."""
    bugs = catalogue()
    return [Repair(name, bugs[bug]) for name, bug in repairs().items()]
