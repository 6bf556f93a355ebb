"""The course: its chapters in their order, and the exercises of each.

Every repair is made from a bug of the catalogue, so that the two can never drift apart. An exercise is called by its
chapter and a number; nothing that a student is given names the bug.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from kvref.errors import BadInput


@dataclass(frozen=True)
class Chapter:
    """One idea, and the bugs that make its exercises, the easiest first."""

    name: str
    title: str
    about: str
    repairs: tuple[str, ...]


CHAPTERS = (
    Chapter(
        "why",
        "Why a cache is allowed",
        "Under a causal mask nothing that comes later changes the keys and values of a token. So they can be kept, and "
        "each step runs the new token alone. A cache is right if nobody can tell that it is there.",
        ("stale-cache", "single-token-never-written", "whole-prefix-run-again"),
    ),
    Chapter(
        "positions",
        "Positions",
        "A token is told where it stands, and that is behind all that is cached. Count from zero again, and the model "
        "believes that the text begins anew.",
        (
            "missing-position-offset",
            "single-token-at-position-zero",
            "decoded-token-one-position-late",
            "chunk-relative-positions",
            "chunk-counted-as-one-token",
        ),
    ),
    Chapter(
        "masks",
        "Masks",
        "Each new token sees the past, itself, and the new ones before it. With a past, the triangle of a causal mask "
        "stands at the lower right of a rectangle and no longer at the upper left.",
        ("causal-during-decode", "chunk-masked-at-the-upper-left", "unmasked-chunk", "free-slots-attended"),
    ),
    Chapter(
        "writing",
        "Writing",
        "New keys and values are written behind the past, in every layer, before they are read; they become the past "
        "when the pass has ended, and not if it dies. What does not fit is refused while nothing is written yet.",
        (
            "decode-reads-before-writing",
            "first-two-layers-share-slots",
            "full-cache-overwrites-its-last-slot",
            "refused-too-late",
            "rows-kept-before-the-pass-ends",
        ),
    ),
    Chapter(
        "lifetime",
        "Lifetime",
        "A cache outlives the pass that filled it: it is cropped, reset, saved and restored. Afterwards it has to be "
        "as if the tokens that are gone had never been there, and as if those that stay had just come.",
        (
            "reset-clears-rows-not-length",
            "crop-keeps-one-token-more",
            "crop-to-nothing-keeps-all",
            "restore-forgets-the-capacity",
            "peek-is-kept",
        ),
    ),
    Chapter(
        "sharing",
        "Sharing",
        "Two caches share nothing, or what happens to one shows in the other. Heads that share keys and values do so "
        "with their neighbours, in an order that is fixed by the weights.",
        ("fork-shares-its-buffers", "one-cache-for-all", "rows-reordered-in-place", "shared-heads-tiled"),
    ),
    Chapter(
        "batching",
        "Batching",
        "Rows of a batch have to give what they give alone. Shorter ones are padded at the left, padding is hidden in "
        "every call, and what moves a row moves all that belongs to it.",
        (
            "padding-hidden-at-the-right",
            "padded-rows-share-positions",
            "padding-hidden-in-the-prompt-only",
            "reorder-leaves-the-values",
            "cropped-rows-move-keys-only",
            "refilled-row-sees-its-last-occupant",
        ),
    ),
    Chapter(
        "counting",
        "Counting",
        "The loop around the model has traps of its own, most about the token that was sampled last: no pass has run "
        "it yet. Feed it twice, or never, and all that comes later is off by one.",
        (
            "pending-token-fed-twice",
            "last-token-never-cached",
            "conversation-runs-its-text-again",
            "draft-accepted-past-its-first-error",
            "crop-keeps-the-buffer",
        ),
    ),
)
"""The chapters, in the order in which they are read."""


TELLING = {
    "whole-prefix-run-again": "every-token-passes-every-layer-once",
    "crop-keeps-one-token-more": "crop-equals-never-having-appended",
    "crop-to-nothing-keeps-all": "crop-equals-never-having-appended",
    "peek-is-kept": "a-look-changes-nothing",
    "rows-kept-before-the-pass-ends": "a-pass-that-dies-leaves-the-cache-as-it-was",
    "fork-shares-its-buffers": "a-fork-and-its-origin-never-meet",
    "padding-hidden-at-the-right": "padding-changes-nothing",
    "padded-rows-share-positions": "padding-changes-nothing",
    "padding-hidden-in-the-prompt-only": "padding-changes-nothing",
    "cropped-rows-move-keys-only": "a-crop-of-rows-equals-never-having-appended",
    "refilled-row-sees-its-last-occupant": "a-new-occupant-of-a-row-meets-nothing-of-the-last",
}
"""The law that speaks of what is wrong, where others see it sooner; by itself the one on cached and uncached logits."""


def repairs() -> dict[str, str]:
    """Names of all repairs in their order, and the bug that each is made from."""
    return {
        f"{chapter.name}-{number}": bug for chapter in CHAPTERS for number, bug in enumerate(chapter.repairs, start=1)
    }


def chapter_of(exercise: str) -> Chapter:
    """The chapter that an exercise belongs to; raises `BadInput` where there is none."""
    name = exercise.rpartition("-")[0]
    for chapter in CHAPTERS:
        if chapter.name == name:
            return chapter
    raise no_such(exercise, list(repairs()))


def no_such(exercise: str, known: list[str]) -> BadInput:
    """What is raised for an exercise that there is not."""
    near = get_close_matches(exercise, known, 1)
    hint = f"did you mean {near[0]}?" if near else "see `kvref learn list`"
    return BadInput(f"there is no exercise {exercise!r}; {hint}")
