"""Attacks: a bug of one's own is caught, or is none, or is a gap."""

from pathlib import Path
from typing import Any

import pytest

from kvref.law import laws
from kvref.learn import attack as attacks
from kvref.tests.test_cli import kvref as kvref

pytestmark = pytest.mark.late

FILE = """
from kvref.gpt2 import GPT
from kvref.cache import GrowingCache


class FromZero(GPT):
    def position_ids(self, past, new, padding=None):
        return super().position_ids(0, new, padding)


class Same(GrowingCache):
    def reset(self):
        super().reset()


class Scaled(GPT):
    def look(self, tokens, cache):
        return 2 * super().look(tokens, cache)
"""

BYTES = "bytes-equal-the-formula"


@pytest.fixture
def attack(kvref: Any):
    """Attack with a class of the file."""
    Path("mine.py").write_text(FILE)
    return lambda name: kvref("learn", "attack", f"mine.py:{name}", "--examples", "12")


@pytest.fixture
def one_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one law, which sees nothing of positions."""
    monkeypatch.setattr(attacks, "laws", lambda: {BYTES: laws()[BYTES]})


def test_what_a_law_catches_is_shown(attack: Any) -> None:
    code, out, _ = attack("FromZero")
    assert code == 0
    assert "caught: cached-logits-equal-uncached-logits is broken by mine.py:FromZero" in out


@pytest.mark.usefixtures("one_law")
def test_what_no_law_catches_and_is_alive_is_a_gap(attack: Any) -> None:
    code, out, _ = attack("FromZero")
    assert code == 1
    assert "SURVIVES and is alive" in out
    assert "1. start a cache" in out
    assert "Please report it" in out


@pytest.mark.usefixtures("one_law")
def test_what_changes_nothing_is_no_gap(attack: Any) -> None:
    code, out, _ = attack("Same")
    assert code == 4
    assert "nothing differs from the reference" in out


@pytest.mark.usefixtures("one_law")
def test_another_model_is_no_gap(attack: Any) -> None:
    code, out, _ = attack("Scaled")
    assert code == 4
    assert "as another model" in out


def test_what_has_no_healthy_twin_cannot_attack(kvref: Any) -> None:
    code, _, err = kvref("learn", "attack", "reference")
    assert code == 2
    assert "derive from GPT" in err
