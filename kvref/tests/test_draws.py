"""What is drawn depends on the seed alone, and on no source code that happens to be there."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvref.decoder import Decoder
from kvref.explore import Explorer
from kvref.law import laws
from kvref.prompts import BYTE_VOCAB
from kvref.schedule import Schedule
from kvref.targets import ReferenceTarget
from kvref.tests.helpers import BENCH
from kvref.watch import Watch

CONSTANTS = "\n".join(
    f"{name} = {value!r}"
    for number in range(400)
    for name, value in (
        (f"I{number}", number),
        (f"S{number}", chr(200 + number) * 3),
        (f"B{number}", bytes([number % 256])),
    )
)


class Draws(Watch):
    """Notes what is drawn, and tries nothing."""

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        drawn.append((decoder.name, schedule))


class OfText(ReferenceTarget):
    """Those models of the reference whose vocabulary has bytes, so that texts are drawn for them."""

    def decoders(self) -> Sequence[Decoder]:
        return [decoder for decoder in super().decoders() if decoder.vocab_size >= BYTE_VOCAB]


drawn: list[tuple[str, Schedule]] = []


def draws(law: str) -> list[tuple[str, Schedule]]:
    drawn.clear()
    draws = Draws(laws()[law])
    Explorer(draws.law, OfText("reference:growing", "growing", BENCH)).explore(draws, 200, 0)
    return list(drawn)


def test_a_line_of_source_code_more_changes_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law = "no-operation-makes-logits-differ-from-uncached-ones"
    before = draws(law)
    (tmp_path / "decoder_with_constants.py").write_text(CONSTANTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "decoder_with_constants", __import__("decoder_with_constants"))
    assert len({name for name, _ in before}) > 1
    assert draws(law) == before
