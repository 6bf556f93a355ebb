"""Checkpoints in and out, and what is said of those that cannot be used."""

import json
import shutil
from pathlib import Path
from statistics import median

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvref.cache import GrowingCache
from kvref.config import GPTConfig
from kvref.errors import CheckpointError
from kvref.gpt2 import GPT
from kvref.tests.helpers import TINY, tiny
from kvref.weights import empty_model, load, loud, save


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint"
    save(tiny(), directory)
    return directory


def edit_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_weights(directory: Path, **changes: torch.Tensor | None) -> None:
    path = directory / "model.safetensors"
    weights = load_file(path)
    for name, value in changes.items():
        key = name.replace("__", ".")
        if value is None:
            del weights[key]
        else:
            weights[key] = value
    save_file(weights, path)


def test_a_saved_model_is_loaded_bit_for_bit(checkpoint: Path) -> None:
    ours, theirs = tiny().state_dict(), load(str(checkpoint), torch.float64).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(ours[key].equal(theirs[key]) for key in ours)


def test_transformers_reads_what_we_write(checkpoint: Path) -> None:
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(checkpoint, dtype=torch.float64).eval()
    tokens = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert (model(tokens).logits - tiny()(tokens)[0]).abs().max() < 1e-12


def test_a_checkpoint_in_shards_is_loaded(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    for number, keys in enumerate((sorted(weights)[::2], sorted(weights)[1::2])):
        save_file({key: weights[key] for key in keys}, checkpoint / f"model-{number}.safetensors")
    assert load(str(checkpoint), torch.float64).state_dict().keys() == tiny().state_dict().keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_head": 3}, "n_head 3 does not divide n_embd 8"),
        ({"vocab_size": None}, "vocab_size is None; it must be a whole number"),
        ({"activation_function": "relu"}, "activation_function is 'relu'; only 'gelu_new' is GPT-2's"),
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"n_inner": 7}, "n_inner is 7"),
        ({"vocab_size": 10**13}, "it must be a whole number below"),
        ({"vocab_size": 10**9}, "has shape .* its config says"),
        ({"n_embd": 16}, "has shape .* its config says"),
        ({"n_layer": 3}, "weights are missing, the first is transformer.h.2"),
        ({"n_layer": 1}, "weights are not GPT-2's, the first is transformer.h.1"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(checkpoint: Path, changes: dict[str, object], message: str) -> None:
    edit_config(checkpoint, **changes)
    with pytest.raises(CheckpointError, match=message) as raised:
        load(str(checkpoint))
    assert "\n" not in str(raised.value)


def test_weights_that_are_missing_or_untied_are_refused(checkpoint: Path) -> None:
    edit_weights(checkpoint, lm_head__weight=torch.ones(TINY.vocab_size, TINY.n_embd))
    with pytest.raises(CheckpointError, match="tied head"):
        load(str(checkpoint))
    edit_weights(checkpoint, lm_head__weight=None, transformer__ln_f__bias=None)
    with pytest.raises(CheckpointError, match=r"1 weights are missing, the first is transformer.ln_f.bias"):
        load(str(checkpoint))


def test_a_pickled_checkpoint_is_never_read(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(b"not even a pickle")
    with pytest.raises(CheckpointError, match=r"only pytorch_model.bin, which is pickled and could run code"):
        load(str(checkpoint))


def test_a_damaged_checkpoint_is_named(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"\0" * 7)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(str(checkpoint))
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    with pytest.raises(CheckpointError, match=r"has no config.json"):
        load(str(checkpoint))


def test_a_config_that_is_no_json_is_refused(checkpoint: Path) -> None:
    for text in ("[" * 100_000, "[]", "{", '"gpt2"'):
        (checkpoint / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match="is not a GPT-2 config"):
            load(str(checkpoint))


def test_a_weight_of_another_rank_is_refused(checkpoint: Path) -> None:
    edit_weights(checkpoint, transformer__h__0__attn__c_attn__weight=torch.ones(2, 4, 24))
    with pytest.raises(CheckpointError, match=r"c_attn.weight has shape \(2, 4, 24\), its config says \(8, 24\)"):
        load(str(checkpoint))


def test_a_directory_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a directory"):
        load(str(tmp_path / "nowhere"))


def test_loud_weights_depend_on_the_seed_alone() -> None:
    config = GPTConfig(block_size=4, vocab_size=5, n_layer=1, n_head=1, n_embd=4)
    state = torch.get_rng_state()
    double, single = loud(config, 3, torch.float64), loud(config, 3, torch.float32)
    assert torch.get_rng_state().equal(state)
    for one, other in zip(double.parameters(), single.parameters(), strict=True):
        assert one.float().equal(other)
    assert not next(loud(config, 4).parameters()).equal(next(single.parameters()))


def test_loud_weights_let_no_wrong_key_hide() -> None:
    """With GPT-2's own std of 0.02 a stale key changes a logit by a ten-thousandth of what it does here."""
    quiet = empty_model(TINY, torch.float64, "cpu")
    generator = torch.Generator().manual_seed(0)
    for parameter in quiet.parameters():
        parameter.data.normal_(0.0, 0.02, generator=generator)
    hidden = median(effect_of_a_stale_key(quiet))
    effects = [effect for seed in range(8) for effect in effect_of_a_stale_key(tiny(seed))]
    assert min(effects) > 1e-4
    assert median(effects) > 1e-2
    assert median(effects) > 100 * hidden


def effect_of_a_stale_key(model: GPT) -> list[float]:
    """How far the next logits move, against the largest, when one key in one layer is its neighbour's."""
    tokens, effects = torch.tensor([[1, 5, 2, 6, 3, 0]]), list[float]()
    with torch.no_grad():
        want = model(tokens)[0][:, -1]
        for layer in range(model.config.n_layer):
            _, cache = model(tokens[:, :-1], GrowingCache())
            keys = cache.keys_values(layer)[0]
            keys[:, :, 1] = keys[:, :, 0]
            got = model(tokens[:, -1:], cache)[0][:, -1]
            effects.append(float((got - want).abs().max() / want.abs().max()))
    return effects


def test_heads_that_share_keys_are_no_checkpoint_of_gpt2(tmp_path: Path) -> None:
    model = loud(GPTConfig(block_size=8, vocab_size=7, n_layer=1, n_head=4, n_embd=8, n_kv_head=2))
    with pytest.raises(CheckpointError, match="for each query head"):
        save(model, tmp_path / "shared")
    assert not (tmp_path / "shared").exists()
