"""Every token of a draft that matches is accepted, also behind one that does not."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.speculate import Speculation


class DraftAcceptedPastItsFirstError(Speculation):
    """Counts matches, and not those before the first mismatch."""

    @override
    def accepted(self, draft: list[int], choice: list[int]) -> int:
        return sum(token == own for token, own in zip(draft, choice, strict=False))  # reference: up to the first error


bug = Bug(
    DraftAcceptedPastItsFirstError,
    family="sampling loop",
    wrong="Tokens that match behind a wrong one are counted as accepted, so more of the draft is kept than is right.",
    trigger="a draft that is wrong at one token and matches at a later one",
    witnesses=("https://github.com/Blaizzy/mlx-vlm/issues/1833",),
    hint="What was the third choice of the model computed from, when the second token of the draft is wrong?",
)
