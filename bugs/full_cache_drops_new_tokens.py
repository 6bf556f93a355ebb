"""No check that what is written fits."""

from typing_extensions import override

from kvref.bug import Bug
from kvref.cache import StaticCache


class FullCacheDropsNewTokens(StaticCache):
    """A slice beyond the end is empty, so a token that is assigned to it is gone."""

    @override
    def reserve(self, new: int) -> None:
        del new  # reference: raise CacheFull unless so many slots are free


bug = Bug(
    FullCacheDropsNewTokens,
    family="write",
    wrong="A token that does not fit is dropped in silence and counted all the same, so it cannot see itself.",
    trigger="a single token onto a full cache that is smaller than the model's context",
    witnesses=(
        "https://github.com/Pushkinist/rMLX/pull/238",
        "https://github.com/Lightning-AI/litgpt/pull/1678",
        "https://github.com/jax-ml/jax/issues/21392",
    ),
    hint="What does Python do with x[5:6] = y when x has five elements?",
)
