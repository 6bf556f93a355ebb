"""Which side is wrong is found by other ways to the same logits, and where the two passes part by hearing modules."""

from typing import ClassVar

import torch
from typing_extensions import override

from kvref.cache import GrowingCache
from kvref.decoder import Decoder
from kvref.finding import Divergence, LawBroken
from kvref.law import EQUALITY, laws
from kvref.lens import NATIVE
from kvref.operations import Extend, Start
from kvref.parting import first_parting
from kvref.protocol import Logits, Tokens
from kvref.schedule import Schedule
from kvref.search import Effort
from kvref.targets.reference import GrowingDecoder
from kvref.testimony import witnessed
from kvref.tests.helpers import tiny, try_law

CHUNK = Schedule((Start(1), Extend(((1, 2),)), Extend(((3, 4),))))


class SeesBehind(GrowingDecoder):
    """A decoder whose uncached pass alone lacks its mask, as one does whose mask is made for a cache."""

    @override
    def full(self, tokens: Tokens) -> Logits:
        return GrowingDecoder(self.model).without_mask().full(tokens)


class SeesBehindAlone(SeesBehind):
    """The same where nobody else knows what is right."""

    refuses: ClassVar = {"independent": "nobody else has these weights"}


class HalvesKeys(GrowingCache):
    """A cache that keeps half of each key, in a prefill too."""

    @override
    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().append(layer, keys / 2, values)


def told(decoder: Decoder, schedule: Schedule = CHUNK) -> str | None:
    try:
        laws()[EQUALITY].check(decoder, schedule)
    except LawBroken as error:
        return witnessed(decoder, schedule, error.divergence)
    raise AssertionError("the law holds")


def found(bug: str) -> tuple[str | None, str | None]:
    finding = try_law(EQUALITY, bug, Effort()).finding
    assert finding is not None
    return finding.oracle, finding.module


def test_a_wrong_cache_is_told_from_a_wrong_uncached_pass() -> None:
    oracle, _ = found("missing-position-offset")
    assert oracle == (
        "a pass over no more than these tokens, one prefill into a fresh cache and another implementation "
        "give what the uncached pass gives: the cache is wrong"
    )
    assert told(Decoder(SeesBehind(tiny()), lens=NATIVE)) == (
        "a pass over no more than these tokens, one prefill into a fresh cache and another implementation "
        "give what the cache gives: the uncached pass is wrong"
    )


def test_where_the_ways_disagree_it_says_so() -> None:
    halved = GrowingDecoder(tiny(), HalvesKeys)
    assert "which is wrong cannot be told" in (told(Decoder(halved, lens=NATIVE), CHUNK) or "")
    alone = told(Decoder(SeesBehindAlone(tiny()), lens=NATIVE))
    assert alone is not None
    assert alone.endswith("give what the cache gives: the uncached pass is wrong")
    assert "another implementation" not in alone


def test_the_first_module_that_gives_something_else_is_named() -> None:
    _, module = found("missing-position-offset")
    assert module is not None
    assert module.startswith("transformer.wpe (Embedding) is the first to give it another output")
    _, module = found("unmasked-chunk")
    assert module is not None
    assert module.startswith("transformer.h.0.attn.c_proj (Linear)")
    assert "before it gave the same" in module


def test_modules_of_a_healthy_decoder_part_nowhere() -> None:
    decoder = Decoder(GrowingDecoder(tiny()), lens=NATIVE)
    assert first_parting(decoder, CHUNK, Divergence("", 2, 0, 3)) is None
    assert witnessed(decoder, CHUNK, Divergence("", 2, 0, 3)) is None
