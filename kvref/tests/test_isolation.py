"""Decoders that hang, die or meddle: each costs the law that it was tried on, and is reported as what it is."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kvref.cache import GrowingCache
from kvref.isolation import check as isolated_check
from kvref.law import laws
from kvref.protocol import Logits, Tokens
from kvref.report import Report
from kvref.search import Effort, Status, search
from kvref.targets import OneDecoder
from kvref.targets.module import decoder_of
from kvref.tests.helpers import BENCH, tiny
from kvref.tests.test_cli import kvref as kvref

Kvref = Callable[..., tuple[int, str, str]]

MINE = """
import os, signal, time, torch
from copy import deepcopy
from kvref.cache import GrowingCache
from kvref.tests.helpers import tiny

MODEL = tiny()

class Duck:
    vocab_size, block_size = 7, 8
    def full(self, tokens): return MODEL(tokens)[0]
    def start(self, batch, capacity): return GrowingCache()
    def step(self, cache, tokens): return MODEL(tokens, cache)

class Bad(Duck):
    def save(self, cache, path):
        while True: time.sleep(0.1)
    def restore(self, path): return None
    def fork(self, cache):
        os.kill(os.getpid(), signal.SIGSEGV)
    def peek(self, cache, tokens):
        logits = self.step(deepcopy(cache), tokens)[0]
        tokens.zero_()
        return logits
    def reset(self, cache):
        torch.manual_seed(1)
        return GrowingCache()

class Dies(Duck):
    def start(self, batch, capacity): os._exit(7)

class Hangs(Duck):
    def step(self, cache, tokens):
        while True: time.sleep(0.1)

def dies(): os._exit(3)
"""

HANGS, DIES, CHANGES, SEEDS, HOLDS, LATER, REPEATS, ALONE = (
    "a-restored-cache-goes-on-as-the-saved-one",
    "a-fork-and-its-origin-never-meet",
    "a-look-changes-nothing",
    "a-second-request-equals-a-fresh-cache",
    "cached-logits-equal-uncached-logits",
    "later-tokens-change-nothing-earlier",
    "the-same-schedule-gives-the-same-bits",
    "a-row-alone-equals-the-row-in-a-batch",
)


def only(*names: str) -> list[str]:
    """Options for some laws and few examples."""
    return [word for name in names for word in ("--law", name)] + ["--examples", "12"]


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of decoders in the folder that the command runs in, and less patience than usual."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setattr(isolated_check, "SECONDS", 2.0)
    monkeypatch.setattr(isolated_check, "GRACE", 0.0)


def test_what_hangs_dies_or_meddles_costs_its_own_law_and_plays_again(kvref: Kvref) -> None:
    code, out, err = kvref("check", "mine.py:Bad", *only(HANGS, DIES, CHANGES, SEEDS, HOLDS))
    assert (code, err) == (1, "")
    outcomes = {o["law"]: o for o in json.loads(Path(".kvref/report.json").read_text())["outcomes"]}
    assert [outcomes[law]["status"] for law in (HANGS, DIES, CHANGES, SEEDS, HOLDS)] == [
        *("timed out", "died", "meddled", "meddled", "held")
    ]
    assert "killed by SIGSEGV" in outcomes[DIES]["reason"]
    assert outcomes[CHANGES]["reason"] == "peek changed the tokens that it was given"
    assert outcomes[SEEDS]["reason"] == "reset seeded torch's global generator, which others draw from"
    assert f"mine.py:Bad timed out under {HANGS}" in out
    last = {law: outcomes[law]["finding"]["case"]["schedule"]["ops"][-1]["op"] for law in (HANGS, DIES)}
    assert last == {HANGS: "restore", DIES: "fork"}
    assert "timed out step" in out

    code, out, _ = kvref("replay")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == ["failed"] * 4
    assert multiprocessing.active_children() == []


def test_a_decoder_that_ends_one_process_after_the_other_is_given_up(kvref: Kvref) -> None:
    code, out, _ = kvref("check", "mine.py:Dies", *only(HOLDS, LATER, REPEATS, ALONE))
    assert code == 1
    assert out.count("->   1. start a cache") == 3
    assert out.count("step 1: the process ended: exit code 7") == 3
    assert f"cut short {ALONE}" in out
    assert "left out, since the target was lost under 3 laws before" in out


def test_limited_time_bounds_a_decoder_that_hangs(kvref: Kvref) -> None:
    code, out, _ = kvref("check", "mine.py:Hangs", *only(HOLDS, LATER), "--max-time", "4", "--timeout", "500")
    assert code == 4
    assert "out of time: it was ended in the midst of its work" in out
    assert "0 held" not in out


def test_a_factory_that_dies_is_bad_input(kvref: Kvref) -> None:
    assert kvref("check", "mine.py:dies", *only(HOLDS)) == (
        *(2, ""),
        "kvref: mine.py:dies cannot be made: the process ended: exit code 3\n",
    )


def test_it_can_be_tried_in_this_process(kvref: Kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvref.isolation.Isolated", None)
    code, out, _ = kvref("check", "mine.py:Duck", "--no-isolate", *only(HOLDS))
    assert code == 0
    assert "1 held" in out


def test_stopping_keeps_what_is_done_and_leaves_no_process(kvref: Kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Report.progress

    def stop(self: Report, what: str, done: int) -> None:
        progress(self, what, done)
        if what == LATER:
            raise KeyboardInterrupt

    monkeypatch.setattr(Report, "progress", stop)
    code, out, _ = kvref("check", "mine.py:Duck", *only(HOLDS, LATER))
    assert code == 4
    assert f"held      {HOLDS}" in out
    assert "stopped before the end" in out
    assert multiprocessing.active_children() == []


class Duck:
    """A healthy decoder that draws random numbers and seeds a generator of its own."""

    vocab_size, block_size = 7, 8
    model = tiny()

    def full(self, tokens: Tokens) -> Logits:
        torch.rand(3)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            torch.Generator().manual_seed(3)
        return self.model(tokens)[0]

    def start(self, *_: object) -> GrowingCache:
        return GrowingCache()

    def step(self, cache: GrowingCache, tokens: Tokens) -> tuple[Logits, GrowingCache]:
        return self.model(tokens, cache)


class Meddles(Duck):
    def step(self, cache: GrowingCache, tokens: Tokens) -> tuple[Logits, GrowingCache]:
        answer = super().step(cache, tokens.clone())
        tokens.add_(1)
        return answer


@pytest.mark.parametrize("kind", [Duck, Meddles])
def test_to_draw_at_random_is_not_to_meddle_and_what_meddles_is_told_once(kind: type[Duck]) -> None:
    target = OneDecoder("mine", "", decoder_of(kind(), "mine", BENCH), BENCH)
    first, second = (search(laws()[name], target, Effort(24)) for name in (HOLDS, LATER))
    assert (first.status, second.status) == (Status.MEDDLED if kind is Meddles else Status.HELD, Status.HELD)
    if first.finding:
        assert first.finding.headline() == f"mine meddled under {HOLDS}"
        assert len(first.finding.schedule) == 2
