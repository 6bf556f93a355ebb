"""A conversation that is prefilled anew at every turn."""

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug
from kvref.generate import Session
from kvref.protocol import Tokens


class ConversationRunsItsTextAgain(Session):
    """What was said before is kept as text, and its cache is thrown away."""

    @override
    def feed(self, tokens: Tokens) -> Float[Tensor, "batch vocab_size"]:
        new = torch.cat([tokens.new_tensor([self.pending], dtype=tokens.dtype), tokens], dim=1)
        self.text = torch.cat([vars(self).get("text", new[:, :0]), new], dim=1)
        logits, self.cache = self.decoder.step(self.decoder.start(1, None), self.text)  # reference: self.cache, new
        self.pending = []
        self.logits = last = logits[:, -1]
        return last


bug = Bug(
    ConversationRunsItsTextAgain,
    family="sampling loop",
    wrong="Every call of a conversation runs its whole text again, on a fresh cache.",
    trigger="a turn after the first one; only a count of passes sees it",
    witnesses=(
        "https://github.com/huggingface/optimum/issues/1192",
        "https://github.com/bigscience-workshop/petals/pull/496",
    ),
    hint="Does the hundredth answer take as long as the first one?",
)
