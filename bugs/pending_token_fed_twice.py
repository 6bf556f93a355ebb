"""The token that was sampled but not run is fed, and stays pending all the same."""

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.generate import Session
from kvref.protocol import Tokens


class PendingTokenFedTwice(Session):
    """The cursor of what is pending is not moved when the cache moves."""

    @override
    def feed(self, tokens: Tokens) -> Float[Tensor, "batch vocab_size"]:
        new = torch.cat([tokens.new_tensor([self.pending], dtype=tokens.dtype), tokens], dim=1)
        logits, self.cache = self.decoder.step(self.cache, new)
        self.logits = last = logits[:, -1]  # reference: and self.pending = []
        return last


bug = Bug(
    PendingTokenFedTwice,
    family="sampling loop",
    wrong="The last token of a reply is run with the next turn, and once more when that is answered.",
    trigger="a reply to a turn that follows a reply",
    witnesses=(
        "https://github.com/oobabooga/textgen/pull/4145",
        "https://github.com/ggml-org/llama.cpp/issues/23400",
        "https://github.com/lablup/mlxcel/issues/1760",
    ),
    hint="When the cache has moved on by some tokens, what else has to know it?",
)
