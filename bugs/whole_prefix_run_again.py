"""A cache that is made and never used."""

import torch
from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import Cache
from kvref.protocol import Logits, Tokens
from kvref.targets.reference import GrowingDecoder


class WholePrefixRunAgain(GrowingDecoder):
    """Each call runs all tokens that were ever given, without a past. Plain decoding gives the right logits for it."""

    @override
    def step(self, cache: Cache, tokens: Tokens) -> tuple[Logits, Cache]:
        given = torch.cat([vars(cache).get("given", tokens[:, :0]), tokens], dim=1)
        logits, anew = self.model(given)  # reference: self.model(tokens, cache)
        vars(anew)["given"] = given
        return logits[:, -tokens.size(1) :], anew


bug = Bug(
    WholePrefixRunAgain,
    family="read",
    wrong="The past is not passed on, and each call runs the whole prefix again.",
    trigger="any call onto a past; where nothing is cropped or reordered, only a count of passes sees it",
    witnesses=(
        "https://github.com/bigscience-workshop/petals/pull/496",
        "https://github.com/alex-hh/profam/pull/168",
        "https://github.com/huggingface/optimum/issues/1192",
    ),
    hint="How many tokens does the model run in all, to generate the tenth one?",
)
