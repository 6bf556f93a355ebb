"""Failures to explain: a schedule and where it first goes wrong, and four causes of which one is right."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from reprlib import repr as shortened

import torch

from kvref.answers import DecoderRaised
from kvref.bug import Bug, catalogue
from kvref.errors import BadInput
from kvref.finding import Finding, LawBroken
from kvref.law import EQUALITY, law_called
from kvref.learn.course import Chapter, chapter_of
from kvref.learn.exercises import Answer, Kind
from kvref.learn.repairs import told
from kvref.locate import KEPT
from kvref.matrix.record import record
from kvref.said import filled, wrapped
from kvref.search import Effort, search
from kvref.targets import Bench

CHOICES = 4
"""Causes to choose from."""

MARGIN = 8
"""Schedules that are tried behind the one that broke the law when it was measured."""

HOLDS = "holds"
RAISES = "raises"


@dataclass(frozen=True)
class Explanation:
    """The smallest finding of a bug, whose cause is to be chosen.

    `others` are bugs near to it, which do not go wrong as it does on that schedule: they hold, or raise, or go wrong
    first at another place. So whoever plays the schedule with pencil and paper can rule them out.
    """

    name: str
    shown: str
    others: tuple[str, ...]
    law: str = EQUALITY

    kind: Kind = "explain"

    @property
    def chapter(self) -> Chapter:
        """The chapter it belongs to."""
        return chapter_of(self.name)

    @property
    def causes(self) -> list[Bug]:
        """The bugs to choose from, in an order that says nothing and does not change."""
        names = sorted((self.shown, *self.others), key=lambda bug: sha256(f"{self.name} {bug}".encode()).digest())
        return [catalogue()[name] for name in names]

    @property
    def right(self) -> int:
        """Number of the right cause."""
        return 1 + [bug.name for bug in self.causes].index(self.shown)

    @property
    def finding(self) -> Finding:
        """The evidence. It is searched for where it is first asked for."""
        return finding_of(self.shown, self.law)

    def start(self) -> str:
        """The file as it is given."""
        return self.file("None")

    def solution(self) -> str:
        """The file with the right number."""
        return self.file(str(self.right))

    def file(self, answer: str) -> str:
        """The question, and an answer to it."""
        lines = [
            f"{self.chapter.title}: explain {self.name}.",
            "",
            *filled(QUESTION).splitlines(),
            "",
            *evidence(self.finding),
            "",
            *(filled(f"{number}. {bug.wrong}", "   ") for number, bug in enumerate(self.causes, start=1)),
        ]
        body = "\n".join(line.rstrip() for line in lines)
        return f'"""{body}\n"""\n\nanswer = {answer}{ASIDE}'

    def judge(self, path: Path) -> Answer:
        """See whether the right cause was chosen. The file is read and not run. Raises `BadInput` if it cannot be."""
        given = answer_in(path)
        if given is None:
            return Answer(False, ("no answer is given yet",), self.hints())
        if type(given) is not int or not 1 <= given <= CHOICES:
            said = f"the answer is a number from 1 to {CHOICES}, not {shortened(given)}"
            return Answer(False, (said,), self.hints())
        if given != self.right:
            return Answer(
                False, (f"{given} is not the cause: with it, this schedule goes otherwise",), self.hints(given)
            )
        return Answer(True, (f"{given} it is: it shows on {self.causes[given - 1].trigger}",), score=1.0)

    def hints(self, given: int | None = None) -> tuple[str, ...]:
        """Three steps: where to look; why it is not the cause that was chosen, or one of the wrong ones; a question."""
        wrong = given or self.right % CHOICES + 1
        mine = catalogue()[self.shown]
        return look_at(self.finding), self.ruled_out(wrong), f"{mine.hint} The cause shows on {mine.trigger}."

    def ruled_out(self, number: int) -> str:
        """What this schedule says against a cause."""
        bug = self.causes[number - 1]
        seen, trigger = shows(bug, self.finding), f"It shows on {bug.trigger}."
        if seen == HOLDS:
            return f"It is not {number}: with that, nothing goes wrong on this schedule. {trigger}"
        if seen == RAISES:
            return f"It is not {number}: with that, the decoder raises on this schedule. {trigger}"
        return f"It is not {number}: with that, the first thing to go wrong is at {seen}. {trigger}"


QUESTION = (
    "A cache breaks a law, and this is the smallest schedule that was found. The arrow is at the step where it shows "
    "first. Play it with pencil and paper, with each of the causes below: only one of them goes wrong just so."
)

ASIDE = f'  # the number of the cause, 1 to {CHOICES}\nbecause = ""  # why, in your own words; this is not judged\n'


def evidence(finding: Finding) -> Iterator[str]:
    """What the student is shown: nothing in it names the bug."""
    name, _, shape = finding.decoder.partition(" (")
    yield from wrapped(f"{name.rpartition(':')[2]} cache, {shape.removesuffix(')')}", "decoder")
    yield from told(finding)
    if finding.origin:
        yield from wrapped(finding.origin, "cache")


def look_at(finding: Finding) -> str:
    """Where to look: at the step, and at what was kept before it."""
    if (step := finding.divergence.step) is None:
        return "Play the schedule with pencil and paper: which tokens are in the cache after each step?"
    said = f"It shows first at step {step + 1}: {str(finding.schedule.ops[step]).partition(':')[0]}."
    if finding.origin == KEPT:
        return f"{said} What was kept is right. So which keys does a token look at there, and which should it?"
    if finding.origin:
        return f"{said} What was kept is wrong itself. Which call wrote it, and from what?"
    return f"{said} All before it is right. What does this step do that no step before it did?"


def answer_in(path: Path) -> object:
    """What a file assigns to `answer` last. Raises `BadInput`, in one line, where that cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
        if given := list(answers(tree)):
            return ast.literal_eval(given[-1])
    except (SyntaxError, ValueError, TypeError, OSError, RecursionError, MemoryError) as error:
        raise BadInput(f"{path.name} cannot be read ({type(error).__name__}); write `answer = 2`, say") from None
    raise BadInput(f"{path.name} has no line `answer = ...`")


def answers(tree: ast.Module) -> Iterator[ast.expr]:
    """What is assigned to `answer`, and to nothing else with it."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None and [ast.unparse(target) for target in targets] == ["answer"]:
            yield value


@cache
def finding_of(name: str, law: str) -> Finding:
    """The smallest finding of a bug under a law.

    Where a law is about what was overwritten in another cache, what is said of the keys and values of this one is left
    out: they are right, but that is not why the other's are wrong.
    """
    torch.set_num_threads(1)  # quickest for what is tiny
    examples = record().kills[name][law] + MARGIN
    target = catalogue()[name].target(Bench(dtypes=(torch.float32,)))
    found = search(law_called(law), target, Effort(examples=examples)).finding
    if found is None:
        raise BadInput(f"{name} does not break {law} within {examples} schedules")
    return replace(found, origin=None) if found.divergence.copied and found.origin == KEPT else found


def shows(bug: Bug, finding: Finding) -> str:
    """What a bug does on the schedule of a finding: where it first breaks the law, or that it holds or raises."""
    shape = finding.decoder.partition(" (")[2]
    decoders = bug.target(Bench(dtypes=(torch.float32,))).decoders()
    decoder = next(each for each in decoders if each.name.partition(" (")[2] == shape)
    try:
        law_called(finding.law).check(decoder.under(finding.lens), finding.schedule)
    except LawBroken as error:
        return ", ".join(f"{name} {value}" for name, value in error.divergence.places() if value is not None)
    except DecoderRaised:
        return RAISES
    return HOLDS


EXPLANATIONS = (
    Explanation(
        "why-cause",
        "decode-reads-before-writing",
        ("single-token-never-written", "stale-cache", "whole-prefix-run-again"),
    ),
    Explanation(
        "positions-cause",
        "chunk-relative-positions",
        ("decoded-token-one-position-late", "chunk-counted-as-one-token", "single-token-at-position-zero"),
    ),
    Explanation(
        "masks-cause",
        "free-slots-attended",
        ("chunk-masked-at-the-upper-left", "unmasked-chunk", "padding-hidden-in-the-prompt-only"),
    ),
    Explanation(
        "writing-cause",
        "single-token-never-written",
        ("decode-reads-before-writing", "stale-cache", "first-two-layers-share-slots"),
    ),
    Explanation(
        "lifetime-cause",
        "crop-keeps-one-token-more",
        ("crop-to-nothing-keeps-all", "crop-of-nothing-drops-all", "reset-clears-rows-not-length"),
        "what-fits-works-and-one-token-more-is-refused",
    ),
    Explanation(
        "sharing-cause",
        "fork-shares-its-buffers",
        ("one-cache-for-all", "write-waits-for-the-next-call", "rows-reordered-in-place"),
        "a-fork-and-its-origin-never-meet",
    ),
    Explanation(
        "batching-cause",
        "padded-rows-share-positions",
        ("decode-positions-count-padding", "padding-hidden-in-the-prompt-only", "reorder-leaves-the-values"),
        "padding-changes-nothing",
    ),
    Explanation(
        "counting-cause",
        "pending-token-fed-twice",
        ("last-token-never-cached", "conversation-runs-its-text-again", "draft-accepted-past-its-first-error"),
        "a-conversation-gives-what-its-whole-text-gives",
    ),
)
"""The failures to explain, in the order of the course."""


def explanations() -> list[Explanation]:
    """All of them, in the order of the course."""
    return list(EXPLANATIONS)
