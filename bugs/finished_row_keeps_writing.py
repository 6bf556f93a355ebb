"""A row that has met its end token goes on until all rows have."""

from collections.abc import Sequence

from typing_extensions import override

from kvref.bug import Bug
from kvref.generate import BatchGeneration


class FinishedRowKeepsWriting(BatchGeneration):
    """Only the number of tokens ends a row."""

    @override
    def finished(self, answer: Sequence[int], max_new_tokens: int) -> bool:
        return len(answer) == max_new_tokens  # reference: or answer[-1] == self.end


bug = Bug(
    FinishedRowKeepsWriting,
    family="sampling loop",
    wrong="A row goes on sampling and writing behind its end token, as long as the batch runs.",
    trigger="a row that meets its end token before the last step",
    witnesses=(
        "https://github.com/microsoft/onnxruntime-genai/pull/1814",
        "https://github.com/mistralai/mistral-inference/pull/270",
    ),
    hint="Which rows of a batch are still asked for a token after the shortest answer is complete?",
)
