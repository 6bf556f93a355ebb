"""The reference model against an independent one, and at its limits."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import install_import_hook
from torch import Tensor

import kvref.gpt2
import kvref.masks
from kvref.cache import Cache, GrowingCache, Rows, StaticCache
from kvref.config import SIZES, GPTConfig
from kvref.errors import CacheFull, ConfigError, ContextOverflow
from kvref.generate import SeededSampler, generate_cached
from kvref.gpt2 import GPT, CausalSelfAttention
from kvref.targets.reference import DECODERS
from kvref.tests.helpers import TINY, tiny
from kvref.weights import empty_model, load, loud, with_all_heads


def huggingface_model(directory: Path, config: GPTConfig) -> Any:
    """A checkpoint written by transformers, and the model it was written from, in float64."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            n_positions=config.block_size,
            vocab_size=config.vocab_size,
            n_layer=config.n_layer,
            n_head=config.n_head,
            n_embd=config.n_embd,
            initializer_range=0.1,
        )
    ).eval()
    theirs.save_pretrained(directory)
    return theirs.double()


def relative_gap(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (GPTConfig(block_size=16, vocab_size=50, n_layer=3, n_head=4, n_embd=32), 16),
        (GPTConfig(block_size=10, vocab_size=11, n_layer=1, n_head=1, n_embd=3), 10),
        (SIZES["gpt2"], 8),
    ],
    ids=["tiny", "odd", "gpt2-small"],
)
def test_logits_and_greedy_tokens_are_those_of_transformers(tmp_path: Path, config: GPTConfig, length: int) -> None:
    theirs = huggingface_model(tmp_path, config)
    ours = load(str(tmp_path), torch.float64)
    tokens = torch.randint(config.vocab_size, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = theirs(tokens, use_cache=False).logits
        assert relative_gap(ours(tokens)[0], want) < 1e-12
        prompt, new = tokens[:1, : length // 2], length // 2
        # Without a mask, transformers takes every token equal to the padding's for padding.
        options = {"attention_mask": torch.ones_like(prompt), "eos_token_id": None, "pad_token_id": 0}
        generated = theirs.generate(prompt, max_new_tokens=new, do_sample=False, **options)
        for decoder in DECODERS.values():
            assert (
                generate_cached(decoder(ours), prompt, new, SeededSampler()) == generated[:, prompt.size(1) :].tolist()
            )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("gpt2", 124439808), ("gpt2-medium", 354823168), ("gpt2-large", 774030080), ("gpt2-xl", 1557611200)],
)
def test_sizes_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    model = empty_model(SIZES[name], torch.float32, "meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize(
    "sizes", [{"n_head": 5}, {"n_layer": 0}, {"block_size": -1}, {"n_kv_head": 5}, {"n_kv_head": 0}]
)
def test_impossible_shapes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"head 5 does not divide|must be at least 1"):
        GPTConfig(**sizes)


def test_a_chunk_onto_a_past_has_the_lower_right_mask() -> None:
    mask = tiny().causal_mask(past=2, new=3)
    assert mask is not None
    assert mask.int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert tiny().causal_mask(past=4, new=1) is None


def test_positions_of_a_padded_row_count_its_own_tokens() -> None:
    padding = torch.tensor([0, 2])
    assert tiny().position_ids(0, 4, padding).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    assert tiny().position_ids(4, 1, padding).tolist() == [[4], [2]]
    assert tiny().position_ids(4, 1, None).tolist() == [4]


def test_padding_is_hidden_from_a_single_token_too() -> None:
    mask = tiny().attention_mask(past=2, new=1, padding=torch.tensor([0, 2]))
    assert mask is not None
    assert mask.int().tolist() == [[[[1, 1, 1]]], [[[0, 0, 1]]]]


def test_neighbouring_query_heads_share_a_head_of_keys() -> None:
    config = GPTConfig(block_size=8, vocab_size=7, n_layer=1, n_head=4, n_embd=8, n_kv_head=2)
    attention = loud(config).transformer.h[0].attn
    assert isinstance(attention, CausalSelfAttention)
    assert attention.repeat_heads(torch.tensor([[[[5.0]], [[7.0]]]])).flatten().tolist() == [5.0, 5.0, 7.0, 7.0]


def test_shared_heads_are_the_same_model_as_repeated_ones() -> None:
    config = GPTConfig(block_size=8, vocab_size=7, n_layer=2, n_head=4, n_embd=8, n_kv_head=2)
    model, tokens = loud(config, dtype=torch.float64), torch.tensor([[1, 2, 3, 4]])
    copied = with_all_heads(model)
    assert copied.config.kv_heads == 4
    with torch.no_grad():
        torch.testing.assert_close(copied(tokens)[0], model(tokens)[0], rtol=0, atol=1e-12)
        assert copied(tokens)[1].bytes == 2 * model(tokens)[1].bytes


def test_a_look_leaves_the_cache_as_it_was() -> None:
    cache, tokens = GrowingCache(), torch.tensor([[1, 2]])
    with torch.no_grad():
        kept, _ = tiny()(tokens, cache)
        looked = tiny().look(tokens, cache)
        again, _ = tiny()(tokens, cache)
    assert looked.equal(again)
    assert not looked.equal(kept)
    assert cache.length == 4


@pytest.mark.parametrize("new", [0, 9])
def test_tokens_beyond_the_context_are_refused_before_anything_is_written(new: int) -> None:
    cache = GrowingCache()
    with pytest.raises(ContextOverflow, match="at least 1 new token and 8 in all"):
        tiny()(torch.zeros(1, new, dtype=torch.long), cache)
    assert (cache.length, cache.bytes) == (0, 0)


class Fails(GPT):
    """Dies in the second layer."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.transformer.h[1].register_forward_hook(self.die)
        self.alive = False

    def die(self, *_: object) -> None:
        if not self.alive:
            raise RuntimeError("no memory left")


@pytest.mark.parametrize("kind", DECODERS)
def test_a_pass_that_dies_half_way_leaves_the_past_as_it_was(kind: str) -> None:
    healthy = tiny()
    model = Fails(TINY).double()
    model.load_state_dict(healthy.state_dict())
    decoder, model.alive = DECODERS[kind](model), True
    tokens = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        _, cache = decoder.step(decoder.start(1, None), tokens[:, :2])
        model.alive = False
        with pytest.raises(RuntimeError, match="no memory"):
            decoder.step(cache, tokens[:, 2:3])
        model.alive = True
        assert cache.length == 2
        logits, _ = decoder.step(cache, tokens[:, 2:])
        assert relative_gap(logits, healthy(tokens)[0][:, 2:]) < 1e-12


@pytest.mark.parametrize("kind", DECODERS)
def test_a_padded_prefill_that_dies_leaves_no_padding_behind(kind: str) -> None:
    model = Fails(TINY).double()
    model.load_state_dict(tiny().state_dict())
    decoder, tokens = DECODERS[kind](model), torch.tensor([[1, 2, 3], [4, 5, 6]])
    cache = decoder.start(2, None)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="no memory"):
            decoder.prefill(cache, tokens, [0, 1])
        model.alive = True
        assert cache.lengths == []
        assert decoder.step(cache, tokens)[0].equal(decoder.full(tokens))


def test_a_full_static_cache_refuses_and_stays_as_it_was() -> None:
    cache = StaticCache(2, 1, 2, capacity=3, head_dim=4, dtype=torch.float64)
    with torch.no_grad():
        tiny()(torch.tensor([[1, 2]]), cache)
        before = cache.keys.clone()
        with pytest.raises(CacheFull, match="3 slots: crop or reset it"):
            tiny()(torch.tensor([[3, 4]]), cache)
    assert cache.length == 2
    assert cache.keys.equal(before)


def test_the_shapes_of_the_model_are_what_its_annotations_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model once more, imported under the hook that enforces them: prefill, chunk, and one token, in a batch."""
    for module in (kvref.gpt2, kvref.masks):
        source = inspect.getsource(module).replace("from kvref.masks", "from checked_masks")
        (tmp_path / f"checked_{module.__name__.removeprefix('kvref.')}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with install_import_hook(["checked_gpt2", "checked_masks"], "beartype.beartype"):
        checked = import_module("checked_gpt2")
    model, cache = checked.GPT(checked.GPTConfig(**vars(TINY))).double(), None
    model.load_state_dict(tiny().state_dict())
    for new in (3, 2, 1):
        logits, cache = model(torch.ones(2, new, dtype=torch.long), cache)
        assert logits.shape == (2, new, TINY.vocab_size)
    for new, cache in ((3, checked.GrowingCache()), (1, checked.GrowingCache())):
        cache.padding = torch.tensor([0, new - 1])
        _, cache = model(torch.ones(2, new, dtype=torch.long), cache)
        for more in (2, 1):
            model(torch.ones(2, more, dtype=torch.long), cache)
    with pytest.raises(Exception, match=r"[Tt]ype-check error"):
        model(torch.ones(3, dtype=torch.long))


def test_shapes_are_checked_in_tests() -> None:
    """The annotations are enforced by the import hook of the conftest; without it they would be prose."""
    cache: Cache = GrowingCache()
    keys: Rows = torch.zeros(1, 2, 3, 4)
    with pytest.raises(Exception, match=r"[Tt]ype-check error"):
        cache.append(0, keys, torch.zeros(1, 2, 5, 4))
