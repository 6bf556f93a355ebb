"""The last token of a reply is shown to the user, and never to the model."""

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.generate import Session
from kvref.protocol import Tokens


class LastTokenNeverCached(Session):
    """What was sampled and not run is forgotten when the user speaks."""

    @override
    def feed(self, tokens: Tokens) -> Float[Tensor, "batch vocab_size"]:
        new = tokens if tokens.numel() else tokens.new_tensor([self.pending])  # reference: the pending, then the new
        logits, self.cache = self.decoder.step(self.cache, new)
        self.pending = []
        self.logits = last = logits[:, -1]
        return last


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
