"""A causal mask that cannot be taken off."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.targets.reference import GrowingDecoder


class BidirectionalIgnored(GrowingDecoder):
    """Whoever asks for a model that sees everything gets the causal one."""

    @override
    def without_mask(self) -> GrowingDecoder:
        return self  # reference: the same weights behind a model without the mask


bug = Bug(
    BidirectionalIgnored,
    family="mask",
    wrong="A request for attention without a causal mask is ignored.",
    trigger="a model without a mask, say an encoder of the same weights",
    witnesses=(
        "https://github.com/huggingface/transformers/pull/39707",
        "https://github.com/huggingface/transformers/issues/46077",
        "https://github.com/huggingface/transformers/pull/42820",
    ),
    hint="Change the last token. Should the first logits of an encoder change?",
)
