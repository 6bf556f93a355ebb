"""A cache that rounds what it keeps is asked for no uncached logits, and compared with itself alone."""

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from kvref import cli
from kvref.cache import GrowingCache
from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.law import laws
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import OneDecoder
from kvref.targets.reference import GrowingDecoder
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH, TINY
from kvref.weights import loud

EQUAL = "cached-logits-equal-uncached-logits"
REORDER = "reorder-equals-having-had-that-order-from-the-start"
ALONE = "a-row-alone-equals-the-row-in-a-batch"


class Rounded(GrowingCache):
    """Keeps keys and values in eight bits."""

    def commit(self, new: int) -> None:
        super().commit(new)
        self.layers = {layer: (self.rounded(k), self.rounded(v)) for layer, (k, v) in self.layers.items()}

    def rounded(self, kept: torch.Tensor) -> torch.Tensor:
        scale = self.largest(kept) / 127
        return (kept / scale).round() * scale

    def largest(self, kept: torch.Tensor) -> torch.Tensor:
        return kept.abs().amax(dim=-1, keepdim=True)


class OneScale(Rounded):
    """One scale for all rows, so that what a row keeps depends on its neighbours."""

    def largest(self, kept: torch.Tensor) -> torch.Tensor:
        return kept.abs().amax()


class SharesItsFork(Rounded):
    """A fork is the same cache once more."""

    def fork(self) -> Any:
        return self


class ReordersKeys(Rounded):
    """Reorders keys, and leaves the values."""

    def reorder(self, rows: Any) -> None:
        values = [kept for _, kept in self.layers.values()]
        super().reorder(rows)
        for layer, (keys, kept) in list(self.layers.items()):
            self.layers[layer] = keys, (values[layer] if len(values[layer]) == len(kept) else kept)


class Lossy(GrowingDecoder):
    """The reference, which says that its cache is lossy."""

    refuses: ClassVar = {"lossless": "it keeps eight bits", "keys_values": "it keeps eight bits"}


def tried(cache: type[Rounded], law: str, lossy: bool = True) -> Outcome:
    implementation = (Lossy if lossy else GrowingDecoder)(loud(TINY, dtype=torch.float64))
    implementation.cache_class = cache
    target = OneDecoder("mine", "mine", Decoder(implementation, "mine"), BENCH)
    return search(laws()[law], target, Effort(examples=20, shrink=False))


def test_a_lossy_cache_is_compared_with_itself_alone() -> None:
    assert tried(Rounded, EQUAL, lossy=False).status is Status.BROKEN
    outcome = tried(Rounded, EQUAL)
    assert outcome.status is Status.SKIPPED
    assert outcome.reason == "the target offers no lossless (it keeps eight bits)"
    statuses = {name: tried(Rounded, name).status for name in laws()}
    assert set(statuses.values()) == {Status.HELD, Status.SKIPPED}
    asked = [
        REORDER,
        ALONE,
        "a-fork-and-its-origin-never-meet",
        "caches-side-by-side-never-meet",
        "a-second-request-equals-a-fresh-cache",
        "the-same-schedule-gives-the-same-bits",
    ]
    assert {statuses[name] for name in asked} == {Status.HELD}


@pytest.mark.parametrize(
    ("cache", "law", "than"),
    [
        (ReordersKeys, REORDER, "with a fresh cache and these calls alone"),
        (SharesItsFork, "a-fork-and-its-origin-never-meet", "with a fresh cache and these calls alone"),
        (OneScale, ALONE, "of the batch"),
    ],
)
def test_a_fault_of_a_lossy_cache_is_found(cache: type[Rounded], law: str, than: str) -> None:
    outcome = tried(cache, law)
    assert outcome.status is Status.BROKEN
    assert outcome.finding
    assert than in outcome.reason
    # An uncached pass is no witness where rounding is meant.
    assert (outcome.finding.oracle, outcome.finding.origin, outcome.finding.errors) == (None, None, ())


def test_quantised_caches_of_transformers_are_lossy() -> None:
    (target,) = resolve("hf-config:gpt2", BENCH, "fp8")
    assert target.name == "hf-config:gpt2 (fp8 cache, sdpa attention)"
    assert target.refusals()[Capability.LOSSLESS] == "a quantised cache rounds them"
    effort = Effort(examples=20, shrink=False)
    assert search(laws()["a-second-request-equals-a-fresh-cache"], target, effort).status is Status.HELD
    # One scale serves a whole batch, padding and all.
    assert search(laws()["padding-of-another-token-gives-the-same-bits"], target, effort).status is Status.BROKEN
    with pytest.raises(TargetError, match="only supported for models with only full attention layers"):
        resolve("hf-config:mistral", BENCH, "fp8")


@pytest.mark.parametrize(
    ("refuses", "message"),
    [
        ({"losless": "it rounds"}, "names 'losless', which is no capability; did you mean lossless?"),
        ({7: "it rounds"}, "names 7, which is no capability; there are batch, atomic, lossless"),
        ({"lossless": None}, "must say why there is no lossless, in words, not NoneType"),
        ({"lossless": ""}, "must say why there is no lossless, in words, not str"),
        (["lossless"], "must be a dict with a reason for each capability, not list"),
    ],
)
def test_refusals_that_say_nothing_are_bad_input(refuses: Any, message: str) -> None:
    implementation: Any = Lossy(loud(TINY, dtype=torch.float64))
    implementation.refuses = refuses
    with pytest.raises(TargetError, match=re.escape(message)):
        Decoder(implementation, "mine")


@pytest.mark.parametrize(("kind", "claims"), [("fp8", False), ("dynamic", True)])
def test_no_strength_is_claimed_for_a_lossy_cache(
    kind: str, claims: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["check", "hf-config:gpt2", "--cache", kind, "--law", "lengths-equal-the-tokens-given", "--examples", "20"]
    monkeypatch.setattr(sys, "argv", ["kvref", *asked, "--no-isolate"])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    torch.set_num_threads(threads)
    assert stopped.value.code == 0
    assert ("strength: 1 law kills" in capsys.readouterr().out) is claims
