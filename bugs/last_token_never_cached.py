"""The last token of a reply is shown to the user, and never to the model."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.generate import Session
from kvref.protocol import Sampler


class LastTokenNeverCached(Session):
    """The loop ends when the last token is sampled, and nothing remembers that it was not run."""

    @override
    def reply(self, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        answer = super().reply(max_new_tokens, sampler)
        self.pending = []  # reference: the last token stays pending
        return answer


bug = Bug(
    LastTokenNeverCached,
    family="sampling loop",
    wrong="The next turn begins right behind the last token that was run, so the one sampled last is missing.",
    trigger="a turn after a reply",
    witnesses=(
        "https://github.com/waybarrios/vllm-mlx/pull/311",
        "https://github.com/microsoft/onnxruntime-genai/pull/1110",
        "https://github.com/ikawrakow/ik_llama.cpp/issues/1661",
    ),
    hint="How many tokens has the model run when a reply of three is complete?",
)
