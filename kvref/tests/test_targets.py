"""What a target string means, and the forms that a user's decoder can have."""

from pathlib import Path

import pytest

from kvref.decoder import Capability
from kvref.errors import TargetError
from kvref.law import Effort, Status, laws, search
from kvref.targets import Bench
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH

MINE = """
import torch
from torch import nn
from kvref.cache import GrowingCache
from kvref.gpt2 import GPT, GPTConfig
from kvref.weights import loud

CONFIG = GPTConfig(block_size=10, vocab_size=300, n_layer=2, n_head=2, n_embd=8)

def module():
    return loud(CONFIG)

class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.config = loud(CONFIG), CONFIG
    def forward(self, tokens, cache=None):
        logits, cache = self.inner(tokens, cache)
        return logits + (cache.length > 3 and tokens.size(1) == 1), cache

class Duck:
    vocab_size, block_size = 300, 10
    def full(self, tokens): return loud(CONFIG, 0, torch.float64)(tokens)[0]
    def start(self, batch, capacity): return ()
    def step(self, cache, tokens):
        logits, cache = loud(CONFIG, 0, torch.float64)(tokens, cache or GrowingCache())
        return logits, cache
    def length(self, cache): return cache.length if cache else 0

class Subclass(GPT):
    def position_ids(self, past, new): return torch.arange(new)

class Sizeless(nn.Module):
    pass

class Misshapen(Duck):
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return logits[:, -1], cache

def broken(): raise ValueError("no weights")
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def outcome(path: Path, name: str, law: str = "cached-logits-equal-uncached-logits") -> Status:
    (target,) = resolve(f"{path}:{name}", BENCH)
    return search(laws()[law], target, Effort(examples=40)).status


def test_a_module_that_returns_its_cache_is_a_decoder(mine: Path) -> None:
    assert outcome(mine, "module") is Status.HELD
    assert outcome(mine, "Wrong") is Status.BROKEN


def test_a_module_offers_no_more_than_it_shows(mine: Path) -> None:
    (target,) = resolve(f"{mine}:module", BENCH)
    assert target.capabilities() == frozenset()
    assert outcome(mine, "module", "crop-equals-never-having-appended") is Status.SKIPPED


def test_an_object_with_the_methods_is_a_decoder(mine: Path) -> None:
    (target,) = resolve(f"{mine}:Duck", BENCH)
    assert target.capabilities() == {Capability.LENGTH}
    assert outcome(mine, "Duck") is Status.HELD
    assert outcome(mine, "Duck", "lengths-equal-the-tokens-given") is Status.HELD


def test_a_class_derived_from_the_reference_is_tried_in_every_shape(mine: Path) -> None:
    (target,) = resolve(f"{mine}:Subclass", BENCH)
    assert len(target.decoders()) > 1
    assert outcome(mine, "Subclass") is Status.BROKEN


def test_logits_of_another_shape_are_the_decoders_fault(mine: Path) -> None:
    (target,) = resolve(f"{mine}:Misshapen", BENCH)
    result = search(laws()["cached-logits-equal-uncached-logits"], target, Effort(examples=5))
    assert result.status is Status.RAISED
    assert "logits must be a tensor of shape (1, 1, 300), not (1, 300)" in result.reason


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"broken\(\) raised ValueError: no weights"),
        ("CONFIG", "is a GPTConfig; a target is a factory"),
        ("Sizeless", "gives a module without `vocab_size`"),
        ("Dukc", "did you mean Duck"),
    ],
)
def test_what_cannot_be_tested_is_refused(mine: Path, name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        resolve(f"{mine}:{name}", BENCH)


def test_a_file_that_does_not_import_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    with pytest.raises(TargetError, match=r"cannot be imported .SyntaxError"):
        resolve(f"{tmp_path / 'bad.py'}:f", BENCH)


def test_the_reference_means_both_caches() -> None:
    assert [target.name for target in resolve("reference", BENCH)] == ["reference:growing", "reference:static"]
    assert [target.name for target in resolve("reference", BENCH, "static")] == ["reference:static"]
    assert [target.name for target in resolve("bug:missing-position-offset:static", BENCH)] == [
        "bug:missing-position-offset:static"
    ]


def test_text_and_prompt_reach_the_reference_in_any_shape() -> None:
    prompt = "A prompt of more tokens than the shapes have positions."
    (target,) = resolve("reference:growing", Bench(prompt=prompt))
    result = search(laws()["cached-logits-equal-uncached-logits"], target, Effort(examples=10))
    assert result.status in (Status.HELD, Status.VACUOUS)
    assert all(decoder.block_size > len(prompt) for decoder in target.decoders())
