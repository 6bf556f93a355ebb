"""Laws to write as exercises: what they have to kill, and what a student is told of a law that does not."""

import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvref.bug import catalogue
from kvref.learn.course import CHAPTERS, Chapter
from kvref.learn.exercises import Answer, Kind
from kvref.learn.judge_write import EXAMPLES, Fate, Trial, Verdict, judge
from kvref.learn.observed import Case
from kvref.said import wrapped

LAWS = Path(__file__).with_name("laws")
"""Where the files are."""


@dataclass(frozen=True)
class Writing:
    """A law to complete. `sealed` are bugs of the catalogue, which a student knows by their numbers alone.

    `cases` are what its examples have to do; `question` and `way` are the second hint and the third.
    """

    subject: str
    sealed: tuple[str, ...]
    cases: tuple[Case, ...]
    question: str
    way: str

    kind: Kind = "write"

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.subject}-law"

    @property
    def chapter(self) -> Chapter:
        """The chapter it belongs to."""
        return next(chapter for chapter in CHAPTERS if chapter.name == self.subject)

    def start(self) -> str:
        """The file as it is given."""
        return (LAWS / f"{self.subject}_start.py").read_text(encoding="utf-8")

    def solution(self) -> str:
        """A law that kills all."""
        return (LAWS / f"{self.subject}_solution.py").read_text(encoding="utf-8")

    def judge(self, path: Path) -> Answer:
        """Try the law of a student's file. Raises `BadInput` for a file that cannot be tried."""
        bugs = catalogue()
        verdict = judge(path, [bugs[name] for name in self.sealed])
        if unusable := list(unfit(verdict)):
            return Answer(False, tuple(unusable), self.hints(verdict))
        killed = verdict.killed
        if all(killed):
            said = f"all {len(killed)} sealed bugs are killed, and all {len(verdict.healthy)} right caches are spared"
            return Answer(True, (said,), score=1.0)
        lines = *sealed(verdict), *self.drawn(verdict)
        return Answer(False, tuple(lines), self.hints(verdict), sum(killed) / len(killed))

    def never(self, verdict: Verdict) -> list[Case]:
        """What the examples never did, and should."""
        return [case for case in self.cases if not times(verdict, case)]

    def drawn(self, verdict: Verdict) -> Iterator[str]:
        """How often the examples did what they should."""
        for case in self.cases:
            if number := times(verdict, case):
                yield f"drawn  {number:2} of {EXAMPLES}: {case}"
        for case in self.never(verdict):
            yield f"never drawn:    {case}"

    def hints(self, verdict: Verdict) -> tuple[str, ...]:
        """Three steps: what this failure says, a question, and the way."""
        if not all(trial.sound for trial in verdict.healthy.values()):
            first = first_of(verdict)
        elif never := self.never(verdict):
            first = f"None of your examples had {never[0]}. Which strategy, or which line, decides about that?"
        elif not verdict.asserts:
            first = "The examples are there; but a law that asserts nothing holds for everything."
        else:
            first = (
                "Your examples do what they should. So which logits does no assertion look at, or not in every case?"
            )
        return first, self.question, self.way


def times(verdict: Verdict, case: Case) -> int:
    """In how many examples a case came up, on the right cache on which it did most often: not all refuse."""
    return max(trial.drawn.get(case, 0) for trial in verdict.healthy.values())


def first_of(verdict: Verdict) -> str:
    """What to look at first in a law that cannot be tried on bugs."""
    fates = {trial.fate for trial in verdict.healthy.values()}
    if Fate.RAISED in fates:
        return (
            "A law states what is true with `assert`; what else it raises says nothing about a cache. Where is it from?"
        )
    if Fate.FAILED in fates:
        return (
            "Play the example with pencil and paper: which tokens are in the cache at each call, and which is the pass "
            "that its logits are compared with? And is it the cache that came back last?"
        )
    if Fate.NEVER_RAN in fates:
        return "Which examples get past the first lines? Draw what you need, rather than throw away what you do not."
    return "Begin with decoder.start, and run tokens with decoder.step: what is cached has to be looked at."


def unfit(verdict: Verdict) -> Iterator[str]:
    """Why a law cannot be tried on bugs, in lines; none where it can."""
    trials = verdict.healthy
    accused = [told for told, trial in trials.items() if trial.fate is Fate.FAILED]
    if len(accused) == len(trials):
        yield from wrapped("the law fails on every right cache, so it says nothing about wrong ones")
        yield from trials[accused[0]].said
    elif accused:
        yield from wrapped(f"a right cache is accused: {accused[0]}")
        yield from trials[accused[0]].said
    elif raising := [trial for trial in trials.values() if trial.fate is Fate.RAISED]:
        yield from wrapped(f"the law raises on a right cache: {raising[0].said[0]}")
        yield from raising[0].said[1:]
    elif idle := [trial for trial in trials.values() if trial.fate is Fate.NEVER_RAN]:
        reason = f": {idle[0].said[0]}" if idle[0].said else ""
        yield from wrapped(f"the law never ran: no example came to its end{reason}")
    elif not all(trial.runs for trial in trials.values()):
        yield "the law never runs a cache: it calls neither step nor anything else that does"


def sealed(verdict: Verdict) -> Iterator[str]:
    """What became of each sealed bug."""
    if not any(verdict.killed):
        yield "no bug is killed" + ("" if verdict.asserts else ": the law asserts nothing")
    for number, trial in enumerate(verdict.sealed, start=1):
        yield f"bug {number}  {became(trial)}"


def became(trial: Trial) -> str:
    """What became of a bug, which is alive unless an assertion of the law failed."""
    if trial.fate is Fate.FAILED:
        return "killed"
    if trial.fate is Fate.RAISED:
        kind = trial.said[0].partition(":")[0]
        # A name of the student's own could be made of anything, of what is sealed too.
        return "alive: something raised where the law should assert" + (f" ({kind})" if hasattr(builtins, kind) else "")
    return "alive" + (f" after {EXAMPLES} examples" if trial.ended >= EXAMPLES else "")


WRITINGS = (
    Writing(
        "why",
        (
            "captured-slot-replayed",
            "past-keys-scaled-again",
            "stored-in-bfloat16",
            "single-token-never-written",
            "decode-reads-before-writing",
        ),
        (Case.FIRST_ONE, Case.ONE),
        "Some caches go wrong only at the second token behind the prompt. Are there two, and is each compared?",
        "Draw a prompt and an answer. Each single token has to give the logits at its place in the one pass over all: "
        "`torch.equal(logits, want[:, place : place + 1])`.",
    ),
    Writing(
        "positions",
        (
            "missing-position-offset",
            "single-token-at-position-zero",
            "decoded-token-one-position-late",
            "chunk-relative-positions",
            "chunk-counted-as-one-token",
            "chunk-number-times-chunk-size",
        ),
        (Case.FIRST_ONE, Case.ONE, Case.SEVERAL),
        "Where does a piece of three tokens stand behind two others? And the piece behind that one?",
        "Draw up to four pieces of one to three tokens each: single tokens, chunks, and what follows both.",
    ),
    Writing(
        "masks",
        (
            "causal-during-decode",
            "chunk-masked-at-the-upper-left",
            "unmasked-chunk",
            "free-slots-attended",
            "single-token-tiles-shared-heads",
        ),
        (Case.ONE, Case.SEVERAL),
        "On an empty cache the triangle of a mask is a square. When is it a rectangle, and who sees the past then?",
        "Run the past into each of two caches first. Then give one of them the chunk at once, and the other its tokens "
        "one by one; both have to give the same logits: `torch.equal(together, torch.cat(single, dim=1))`.",
    ),
    Writing(
        "writing",
        (
            "decode-reads-before-writing",
            "first-two-layers-share-slots",
            "full-cache-overwrites-its-last-slot",
            "full-cache-drops-new-tokens",
            "refused-too-late",
        ),
        (Case.ONE, Case.SEVERAL, Case.REFUSED, Case.AFTER_REFUSAL),
        "What is in a cache that has just refused two tokens, where one would fit? And what may it do with that one?",
        "Let 0 to 3 slots be free, so that calls fill the cache or overfill it; and go on with the next tokens after a "
        "refusal (`continue`), which have to get the logits of a text without those that were refused.",
    ),
    Writing(
        "lifetime",
        (
            "reset-clears-rows-not-length",
            "reset-ignored",
            "crop-keeps-one-token-more",
            "crop-to-nothing-keeps-all",
            "crop-of-nothing-drops-all",
        ),
        (Case.CROP, Case.CROP_NOTHING, Case.CROP_ALL, Case.AFTER_CROP, Case.AFTER_RESET),
        "How many tokens may a crop keep at least, and how many at most? And what does a request find behind a reset?",
        "Draw `kept` from 0 on, so that some, all or none stay. Behind that, reset the cache that came back last, and "
        "run the new tokens once more: they have to get the logits that they get alone.",
    ),
    Writing(
        "sharing",
        (
            "fork-shares-its-buffers",
            "one-cache-for-all",
            "fork-counts-used-slots",
            "write-waits-for-the-next-call",
        ),
        (Case.BESIDE, Case.BOTH, Case.CROP, Case.AFTER_CROP),
        "Who would notice that two caches write into the same slot, and after whose next call? And what is in the "
        "slots that a crop has given up, when a fork is made?",
        "Keep a list of caches and one of their texts: a cropped one, its fork, and one of its own. In turns, give "
        "each of them another token, and compare its logits with those of its own text.",
    ),
    Writing(
        "batching",
        (
            "padding-of-the-first-row-for-all",
            "padding-mask-grows-at-the-left",
            "decode-positions-count-padding",
            "permutation-skipped",
            "reorder-leaves-the-last-layer",
            "reorder-leaves-the-padding",
        ),
        (Case.BATCH, Case.UNEQUAL, Case.BEHIND_PADDING, Case.MOVED, Case.AFTER_MOVE),
        "What belongs to a row: its keys, its values, and what else? And who looks at it once the prompt is done?",
        "Draw rows of one to five tokens; shuffle `order`, call decoder.reorder, and keep the cache that it gives. Row "
        "`number` is now what row `order[number]` was, with a token more: compare with a pass over that alone.",
    ),
    Writing(
        "counting",
        ("pending-token-fed-twice", "last-token-never-cached", "chunk-counted-as-one-token"),
        (Case.LATER_TURN, Case.LATER_REPLY),
        "The token that was sampled last is said, and no pass has run it. Who runs it, and when, and how often?",
        "Draw up to three turns with their replies. Each token of a reply has to be `greedy` of the last logits of one "
        "pass over all that was said before it.",
    ),
)
"""The laws to write, in the order of the course."""


def writings() -> list[Writing]:
    """All laws to write, in the order of the course."""
    return list(WRITINGS)
