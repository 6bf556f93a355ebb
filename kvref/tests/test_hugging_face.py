"""Models of transformers as targets: unmodified ones hold, and a fault in any part of them or of their caches shows."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, cache_utils

from kvref.answers import Refused
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.law import laws
from kvref.operations import Crop, Extend, Fork, Prefill, Reset, Start
from kvref.schedule import Schedule
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import Bench, OneDecoder
from kvref.targets.causal_lm import CacheKind, CausalLM
from kvref.targets.resolve import resolve
from kvref.targets.tiny import tiny_model
from kvref.tests.helpers import BENCH

EQUAL = "cached-logits-equal-uncached-logits"
FEW = Effort(examples=20, shrink=False)


def tried(law: str, target: str, caches: str | None = None, effort: Effort = FEW) -> Outcome:
    """A law on the only target that is meant."""
    (found,) = resolve(target, BENCH, caches)
    return search(laws()[law], found, effort)


def tokens(rows: int, columns: int) -> torch.Tensor:
    """Some tokens."""
    return torch.arange(rows * columns).view(rows, columns) % 90


HELD = (
    ("llama", "static", "no-operation-makes-logits-differ-from-uncached-ones"),
    ("llama", "dynamic", "every-token-passes-every-layer-once"),
    ("gpt2", "dynamic", "past-keys-and-values-never-change"),
    ("bloom", "dynamic", "padding-changes-nothing"),
    ("mistral", "recorded", "crop-equals-never-having-appended"),
    ("mistral", "static", "reorder-equals-having-had-that-order-from-the-start"),
    ("opt", "dynamic", "each-row-of-a-batch-generates-what-it-generates-alone"),
)


@pytest.mark.parametrize(("model_type", "cache", "law"), HELD)
def test_models_as_they_are_hold_bit_for_bit(model_type: str, cache: str, law: str) -> None:
    outcome = tried(law, f"hf-config:{model_type}", cache)
    assert outcome.status is Status.HELD
    assert re.fullmatch(r"|\d+ of 20 schedules refused: the target refuses crop here \(.*\)", outcome.reason)


def test_each_kind_of_cache_that_fits_is_a_target_with_a_command_of_its_own() -> None:
    plain = resolve("hf-config:gpt2", BENCH)
    assert [target.command for target in plain] == [
        f"hf-config:gpt2 --cache {kind} --attn sdpa" for kind in ("dynamic", "static")
    ]
    windows = resolve("hf-config:mistral", BENCH, None, "eager,sdpa")
    assert [target.name.partition(" ")[2] for target in windows] == [
        f"({kind} cache, {attention} attention)"
        for attention in ("eager", "sdpa")
        for kind in ("dynamic", "recorded", "static")
    ]


def one_less(self: Any, tokens_to_remove: int) -> None:
    kept = self.keys.shape[-2] + tokens_to_remove + (1 if tokens_to_remove < 0 else 0)
    self.keys, self.values = self.keys[..., :kept, :], self.values[..., :kept, :]


def keys_alone(self: Any, beam_idx: torch.Tensor) -> None:
    if self.get_seq_length():
        self.keys = self.keys.index_select(0, beam_idx)
        self.values = self.values[: len(beam_idx)].repeat(len(beam_idx), 1, 1, 1)[: len(beam_idx)]


def forgets_nothing(self: Any) -> None:
    del self


def left_out(self: Any, keys: Any, values: Any, *_: Any, **__: Any) -> Any:
    if not self.is_initialized:
        self.lazy_initialization(keys, values)
    self.keys, self.values = torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values * 1.01], dim=-2)
    return self.keys, self.values


FAULTS: Mapping[str, tuple[str, Callable[..., Any], str]] = {
    "crop": ("crop", one_less, "crop-equals-never-having-appended"),
    "reorder": ("reorder_cache", keys_alone, "reorder-equals-having-had-that-order-from-the-start"),
    "reset": ("reset", forgets_nothing, "a-second-request-equals-a-fresh-cache"),
    "update": ("update", left_out, EQUAL),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_the_cache_of_transformers_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, faulty, law = FAULTS[name]
    if name == "update":  # the uncached pass has none, so the past alone is wrong
        right = cache_utils.DynamicLayer.update

        def later(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (faulty if self.get_seq_length() else right)(self, *args, **kwargs)

        monkeypatch.setattr(cache_utils.DynamicLayer, method, later)
    else:
        monkeypatch.setattr(cache_utils.DynamicLayer, method, faulty)
    outcome = tried(law, "hf-config:gpt2", "dynamic")
    assert outcome.status is Status.BROKEN


class CountsPadding(CausalLM):
    """Positions count the padding, as they do where nobody gives any."""

    def padded(self, cache: Any, tokens: Any) -> Mapping[str, Any]:
        return {"attention_mask": super().padded(cache, tokens)["attention_mask"]}


class SeesPadding(CausalLM):
    """Padding is attended to."""

    def padded(self, cache: Any, tokens: Any) -> Mapping[str, Any]:
        return {"position_ids": super().padded(cache, tokens)["position_ids"]}


class SharesAFork(CausalLM):
    """A fork is the cache itself."""

    def fork(self, cache: Any) -> Any:
        return cache


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (CountsPadding, "padding-changes-nothing"),
        (SeesPadding, "padding-of-another-token-gives-the-same-bits"),
        (SharesAFork, "a-fork-and-its-origin-never-meet"),
    ],
)
def test_a_fault_in_how_a_model_is_called_shows(kind: type[CausalLM], law: str) -> None:
    decoder = Decoder(kind(tiny_model("gpt2")), kind.__name__, BENCH.lens_for(torch.float32))
    outcome = search(laws()[law], OneDecoder(kind.__name__, "", decoder, BENCH), FEW)
    assert outcome.status is Status.BROKEN


@pytest.mark.parametrize(
    ("model_type", "kind", "bears"),
    [("gpt2", CausalLM, True), ("gpt2", CountsPadding, False), ("opt", CausalLM, True), ("opt", SeesPadding, False)],
)
def test_padding_that_is_wrong_without_a_cache_is_known(model_type: str, kind: type[CausalLM], bears: bool) -> None:
    assert all((not kind(tiny_model(model_type, seed)).padding_refused()) is bears for seed in range(3))


def test_padding_that_is_wrong_without_a_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CausalLM, "padding_refused", lambda _: "it has no mask")
    outcome = tried("padding-changes-nothing", "hf-config:gpt2", "dynamic")
    assert outcome.status is Status.SKIPPED
    assert outcome.reason == "the target offers no prefill (it has no mask)"


def test_a_recorded_cache_that_was_reset_goes_on() -> None:
    (recorded,) = resolve("hf-config:mistral", BENCH, "recorded")[0].decoders()
    _, cache = recorded.step(recorded.start(1), tokens(1, 3))
    logits, _ = recorded.step(recorded.reset(cache), tokens(1, 3))
    assert torch.equal(logits, recorded.full(tokens(1, 3)))


def test_columns_of_padding_may_stay_behind_a_crop() -> None:
    ops = Start(1), Prefill(((5,),), padding=1), Crop(1), Fork(0), Extend(((6,),), 1), Reset(1), Extend(((7,),), 1)
    (target,) = resolve("hf-config:gpt2", BENCH, "dynamic")
    laws()["lengths-equal-the-tokens-given"].check(target.decoders()[0], Schedule(ops))


def test_a_window_shows_no_keys_and_can_be_left_only_when_recorded() -> None:
    dynamic, recorded, _ = [target.decoders()[0] for target in resolve("hf-config:mistral", BENCH)]
    assert Capability.KEYS_VALUES not in dynamic.capabilities
    assert "keep the keys and values of every token" in dynamic.refuses[Capability.KEYS_VALUES]
    _, beyond = dynamic.step(dynamic.start(1), tokens(1, 12))
    with pytest.raises(Refused, match="only a recorded cache can be cropped"):
        dynamic.crop(beyond, 10)
    _, beyond = recorded.step(recorded.start(1), tokens(1, 12))
    _, further = recorded.step(beyond, tokens(1, 3))
    assert recorded.length(recorded.crop(recorded.fork(further), 12)) == 12
    with pytest.raises(Refused, match="takes back its last pass, and no more"):
        recorded.crop(further, 11)


def test_a_cache_that_says_it_can_be_cropped_is_held_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a window those of transformers 5.24 say so, and lack keys; as that may be mended, it is planted here."""

    def keeps_a_window(self: Any, tokens_to_remove: int) -> None:
        end = self.keys.shape[-2] + tokens_to_remove
        self.keys, self.values = (
            x[:, :, max(end - self.sliding_window + 1, 0) : end] for x in (self.keys, self.values)
        )
        self.cumulative_length += tokens_to_remove

    monkeypatch.setattr(cache_utils.DynamicSlidingWindowLayer, "crop", keeps_a_window)
    monkeypatch.setattr(cache_utils.DynamicSlidingWindowLayer, "is_croppable", True)
    law = "crop-equals-never-having-appended"
    assert tried(law, "hf-config:mistral", "claimed").status is Status.BROKEN
    assert tried(law, "hf-config:mistral", "recorded").status is Status.HELD


def test_what_differs_by_rounding_alone_holds_and_says_why() -> None:
    outcome = tried("padding-changes-nothing", "hf-config:mpt", "dynamic")
    assert outcome.status is Status.HELD
    assert outcome.reason.startswith("order or layout of keys")


def test_rows_with_padding_of_their_own_are_not_cropped() -> None:
    for target in resolve("hf-config:gpt2", BENCH):
        (decoder,) = target.decoders()
        _, ragged = decoder.prefill(decoder.start(2), tokens(2, 4), [0, 2])
        assert decoder.lengths(ragged) == [4, 2]
        with pytest.raises(Refused, match="as many tokens from every row"):
            decoder.crop(ragged, 1)
        assert decoder.lengths(decoder.crop(ragged, 0)) == [0, 0]


def test_columns_of_padding_are_not_room_in_a_growing_cache() -> None:
    dynamic, static = (target.decoders()[0] for target in resolve("hf-config:gpt2", BENCH))
    for decoder, padding_fits in ((dynamic, True), (static, False)):
        _, cache = decoder.prefill(decoder.start(1, 6), tokens(1, 5), [2])
        if padding_fits:
            logits, _ = decoder.step(cache, tokens(1, 3))
            assert logits.shape == (1, 3, decoder.vocab_size)
        else:
            with pytest.raises(Exception, match="do not fit"):
                decoder.step(cache, tokens(1, 2))


def test_what_transformers_cannot_do_is_skipped_with_the_reason() -> None:
    outcome = tried("what-fits-works-and-one-token-more-is-refused", "hf-config:gpt2", "dynamic")
    assert outcome.status is Status.SKIPPED
    assert "leaves its tokens in the layers that they had passed" in outcome.reason


def test_a_checkpoint_is_checked_as_it_is(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=99, n_positions=300, n_embd=32, n_layer=2, n_head=2)
    model: Any = GPT2LMHeadModel(config)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    dynamic, static = resolve(f"hf:{tmp_path}", BENCH)
    (decoder,) = dynamic.decoders()
    assert decoder.lens.dtype is torch.bfloat16
    assert decoder.block_size == 128
    assert search(laws()[EQUAL], static, Effort(examples=6)).status is Status.HELD
    (lifted, _) = resolve(f"hf:{tmp_path}", Bench(dtypes=(torch.float32,)))
    assert lifted.decoders()[0].lens.dtype is torch.float32


@pytest.mark.parametrize(
    ("target", "caches", "attentions", "message"),
    [
        ("hf-config:lama", None, None, "no causal language model to 'lama'; did you mean llama?"),
        ("hf-config:", None, None, "no causal language model to ''"),
        (
            "hf-config:gpt2",
            "growing",
            None,
            "no 'growing' cache; give dynamic, recorded, claimed, static, fp8, quanto, hqq",
        ),
        ("hf-config:gpt2", "dynamic,", None, "no '' cache"),
        ("hf-config:gpt2", None, "flash", "no 'flash' attention; give eager, sdpa"),
        ("hf-config:bert", None, "sdpa,sdpa2", "no 'sdpa2' attention"),
        ("hf-config:gemma4_assistant", None, None, "cannot run alone"),
        ("hf:", None, None, "needs a directory or a name"),
        ("hf:./nowhere", None, None, "./nowhere is no directory"),
        ("hf:~nosuchuser/m", None, None, "~nosuchuser/m is no name of a directory"),
        ("hf:/" + 300 * "a", None, None, "is no name of a directory"),
        ("reference", None, "eager", "--attn is for models of transformers"),
        ("reference", "dynamic", None, "there is no 'dynamic' cache; give growing or static"),
    ],
)
def test_what_cannot_be_meant_says_what_to_do(
    target: str, caches: str | None, attentions: str | None, message: str
) -> None:
    with pytest.raises(TargetError) as caught:
        resolve(target, BENCH, caches, attentions)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="transformers cannot load"):
        resolve(f"hf:{tmp_path}", BENCH)


LAYER_OF = {"git": "GitLayer", "got_ocr2": "Qwen2DecoderLayer"}
"""What models that see images too have for text."""


@pytest.mark.parametrize("model_type", LAYER_OF)
def test_layers_are_those_that_text_passes(model_type: str) -> None:
    implementation = CausalLM(tiny_model(model_type))
    assert [type(layer).__name__ for layer in implementation.layers()] == [LAYER_OF[model_type]] * 4
    assert tried("every-token-passes-every-layer-once", f"hf-config:{model_type}", "dynamic").status is Status.HELD


@pytest.mark.parametrize("kind", ["dynamic", "recorded"])
def test_a_state_of_the_last_tokens_is_taken_back_as_far_as_it_is_recorded(kind: CacheKind) -> None:
    implementation = CausalLM(tiny_model("lfm2"), kind)
    tokens = torch.zeros(1, 3, dtype=torch.long)
    _, cache = implementation.step(implementation.start(1, None), tokens)
    _, cache = implementation.step(cache, tokens)
    with pytest.raises(NotImplementedError, match="where a layer keeps a state of the last tokens"):
        implementation.crop(cache, 2 if kind == "recorded" else 4)
    if kind == "recorded":
        assert implementation.crop(cache, 4).width == 4
    assert tried("crop-equals-never-having-appended", "hf-config:lfm2", "recorded").status is Status.HELD


def test_a_cache_of_the_models_own_is_asked_for_no_more_than_it_has() -> None:
    (target,) = resolve("hf-config:xlstm", BENCH)
    assert target.refusals()[Capability.REORDER] == "xLSTMCache has no reorder_cache"
    assert target.refusals()[Capability.KEYS_VALUES] == "xLSTMCache has no layers"
    assert not {Capability.REORDER, Capability.KEYS_VALUES} & target.capabilities()


def test_a_recorded_cache_is_tried_where_the_model_takes_it() -> None:
    assert [target.name.split()[1] for target in resolve("hf-config:minimax", BENCH)] == ["(dynamic"]
    assert [target.name.split()[1] for target in resolve("hf-config:lfm2", BENCH)] == [
        "(dynamic",
        "(recorded",
        "(static",
    ]
