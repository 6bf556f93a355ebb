"""Generation as transformers does it: each way is what its name says, holds, and is seen to fail by itself."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import GenerationMixin, cache_utils

from kvref import check
from kvref.answers import Refused
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.finding import LawBroken
from kvref.law import laws
from kvref.operations import Prefill, Start
from kvref.schedule import Schedule
from kvref.targets.causal_lm import CausalLM
from kvref.targets.generation import WAYS, until
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH, tiny

LAW = laws()["each-row-of-a-batch-generates-what-it-generates-alone"]
NAMES = list(WAYS)
MIXIN: Any = GenerationMixin
"""Its methods are typed for the models that it is mixed into."""


def decoder(kind: str = "dynamic", model_type: str = "gpt2") -> Decoder:
    return resolve(f"hf-config:{model_type}", BENCH, kind)[0].decoders()[0]


def prompts(way: str) -> Schedule:
    """Prompts of different lengths, under which the law asks for a way: it goes by their sum."""
    first, second = (5, 6, 7, 5, 6, 7, 5, 6), (11, 12)
    last = (NAMES.index(way) - sum(first + second)) % len(NAMES) + 40
    return Schedule((Start(2), Prefill((first, (*second, last)), 0, 0)))


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("way", NAMES)
def test_each_way_holds(way: str, kind: str) -> None:
    LAW.check(decoder(kind), prompts(way))


def counts_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MIXIN.prepare_inputs_for_generation

    def wrong(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = right(self, *args, **kwargs)
        width, new = told["attention_mask"].shape[1], told["input_ids"].shape[1]
        return told | {"position_ids": torch.arange(width - new, width)[None]}

    monkeypatch.setattr(GenerationMixin, "prepare_inputs_for_generation", wrong)


def loses_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MIXIN._prefill

    def wrong(self: Any, tokens: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        if config.prefill_chunk_size:
            tokens = torch.cat([tokens[:, :3] * 0, tokens[:, 3:]], dim=1)
        return right(self, tokens, config, *args, **kwargs)

    monkeypatch.setattr(GenerationMixin, "_prefill", wrong)


def keeps_its_beams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_utils.DynamicLayer, "reorder_cache", lambda *_: None)


def keeps_its_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(self: Any, tokens_to_remove: int) -> None:
        self.keys[:, :, tokens_to_remove:] = 0

    monkeypatch.setattr(cache_utils.DynamicLayer, "crop", zeros)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "greedy": counts_padding,
    "greedy, prefill in chunks": loses_a_chunk,
    "beam search": keeps_its_beams,
    "prompt lookup": keeps_its_drafts,
}


@pytest.mark.parametrize("way", NAMES)
def test_a_fault_in_one_way_shows_there(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[way](monkeypatch)
    with pytest.raises(LawBroken, match=f"as end token and by {way} the batch generates"):
        LAW.check(decoder(), prompts(way))
    if way != "greedy":
        LAW.check(decoder(), prompts("greedy"))


def test_a_way_calls_the_model_as_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = list[tuple[int, ...]]()
    right = MIXIN.prepare_inputs_for_generation

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = right(self, *args, **kwargs)
        widths.append(tuple(told["input_ids"].shape))
        return told

    monkeypatch.setattr(GenerationMixin, "prepare_inputs_for_generation", noted)
    called = dict[str, list[tuple[int, ...]]]()
    for way in NAMES:
        widths.clear()
        decoder().generate_batch([(5, 6, 7, 5, 6, 7, 5, 6)], 3, 98, way)
        called[way] = list(widths)
    assert called["greedy"] == [(1, 8), (1, 1), (1, 1)]
    assert called["greedy, prefill in chunks"][:3] == [(1, 3), (1, 3), (1, 2)]
    assert all(rows == 2 for rows, _ in called["beam search"])
    assert called["prompt lookup"][0] == (1, 8 + 2)


def test_drafts_that_a_full_window_cannot_give_back_are_refused() -> None:
    with pytest.raises(Refused, match="requires a cache that can be cropped"):
        decoder("static", "mistral").generate_batch([(3, 4) * 6], 12, 98, "prompt lookup")


def test_what_generate_does_not_support_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(message: str) -> Callable[..., None]:
        def generate(*_: object, **__: object) -> None:
            raise ValueError(message)

        return generate

    monkeypatch.setattr(GenerationMixin, "generate", raises("assisted generation is not supported with it"))
    with pytest.raises(Refused, match="not supported with it"):
        decoder().generate_batch([(5, 6)], 3, 98, "prompt lookup")
    monkeypatch.setattr(GenerationMixin, "generate", raises("something else"))
    with pytest.raises(Exception, match="generate_batch raised ValueError: something else"):
        decoder().generate_batch([(5, 6)], 3, 98, "greedy")


def test_tokens_end_with_the_first_end() -> None:
    assert until([1, 2, 3, 2], 2) == [1, 2]
    assert until([1, 2], 9) == [1, 2]
    assert decoder().generate_batch([(5, 6)], 0, 98, "greedy") == [[]]


class Server:
    """What only generates: greedily, and without order but always the same, where it is asked for that."""

    vocab_size, block_size = 7, 8
    ways = ("greedy", "other")
    model = tiny()

    def generate_uncached(self, prompt: Sequence[int], new: int, end: int, way: str) -> list[int]:
        tokens = list(prompt)
        for _ in range(new):
            logits = self.model(torch.tensor([tokens]))[0][0, -1]
            tokens.append(int(logits.argmax() if way == "greedy" else logits.argmin()))
        return until(tokens[len(prompt) :], end)

    def generate_batch(self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str) -> list[list[int]]:
        return [self.generate_uncached(prompt, new, end, way) for prompt in prompts]


class Plain(Server):
    """The same with one way, which has no name."""

    ways = ()

    def generate_uncached(self, prompt: Sequence[int], new: int, end: int, way: str = "greedy") -> list[int]:
        return super().generate_uncached(prompt, new, end, way)

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str = "greedy"
    ) -> list[list[int]]:
        return super().generate_batch(prompts, new, end, way)


class SharesAnEnd(Server):
    """A batch ends where its first row does."""

    def generate_batch(self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str) -> list[list[int]]:
        rows = super().generate_batch(prompts, new, end, way)
        return [row[: len(rows[0])] for row in rows]


class OtherIsGreedy(Server):
    """One of its ways is none with a cache."""

    def generate_batch(self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str) -> list[list[int]]:
        del way
        return super().generate_batch(prompts, new, end, "greedy")


@pytest.mark.parametrize(
    ("kind", "status"),
    [(Server, "held"), (Plain, "held"), (SharesAnEnd, "broken"), (OtherIsGreedy, "broken")],
)
def test_what_only_generates_is_tested_by_what_it_generates(kind: type[Server], status: str) -> None:
    result = check(kind, examples=24)
    came = {outcome.law.name: (outcome.status, outcome.reason) for outcome in result.outcomes}
    assert came.pop(LAW.name)[0] == status
    assert set(came.values()) == {("skipped", "the target only generates")}


def test_ways_that_are_no_names_are_an_error() -> None:
    made = decoder().given
    assert isinstance(made, CausalLM)
    made.ways = "greedy"  # pyright: ignore[reportAttributeAccessIssue] what it must not be
    with pytest.raises(TargetError, match="`ways` is str 'greedy'"):
        Decoder(made)
