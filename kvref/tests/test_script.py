"""A case as a script: what it asks is what was done, it needs no kvref, and it ends as the bug is there or not."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kvref.case import Case, Place, save_case
from kvref.errors import CaseError
from kvref.law import EQUALITY
from kvref.lens import Lens
from kvref.operations import Crop, Extend, Fork, Op, Peek, Prefill, Reorder, Reset, Restore, Start
from kvref.schedule import Schedule
from kvref.script import script
from kvref.tests.test_cli import kvref as kvref

MINE = """
from copy import deepcopy
import torch
from torch import nn
from kvref.cache import GrowingCache
from kvref.tests.helpers import tiny

WRONG = {wrong}

class Module(nn.Module):
    vocab_size, block_size = 7, 8
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 7))
    def forward(self, tokens, past=None):
        seen = tokens if past is None else torch.cat([past, tokens], dim=1)
        sums = self.table[seen].cumsum(1)[:, -tokens.size(1):]
        return sums + WRONG * (past is not None), seen

class Duck:
    vocab_size, block_size = 7, 8
    model = tiny()
    def full(self, tokens): return self.model(tokens)[0]
    def start(self, batch, capacity): return GrowingCache()
    def step(self, cache, tokens):
        if WRONG == 2 and cache.length: raise ValueError("no more")
        past = cache.length
        logits, cache = self.model(tokens, cache)
        return logits * (1 + WRONG * bool(past)), cache
    def crop(self, cache, length): cache.crop(length); return cache
    def fork(self, cache): return deepcopy(cache)
    def peek(self, cache, tokens): return self.step(deepcopy(cache), tokens)[0]
"""

PLAIN: tuple[Op, ...] = (Start(1), Extend(((1, 2),)), Extend(((3,),)))
ALL: tuple[Op, ...] = (
    Start(2),
    Prefill(((1, 2, 3), (4, 5, 6)), 1, 0),
    Extend(((5,), (2,))),
    Crop(2),
    Fork(),
    Extend(((6, 1), (2, 3)), 1),
    Reorder((1, 0), 1),
    Extend(((1,), (1,)), 1),
    Reset(1),
    Extend(((4,), (5,)), 1),
    Extend(((2, 3), (2, 6)), 1),
)


def case(check: str, ops: tuple[Op, ...] = PLAIN, decoder: str = "", **seen: Any) -> Case:
    return Case(check, EQUALITY, decoder or check.split()[0], Lens("native", torch.float32), Schedule(ops), **seen)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Writes the user's file, with a wrong one's size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "path_importer_cache", {})  # it keeps where the current folder was
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file of the same second and size would be the old one
    monkeypatch.delitem(sys.modules, "scripted", raising=False)

    def write(wrong: float) -> None:
        sys.modules.pop("scripted", None)
        (tmp_path / "scripted.py").write_text(MINE.format(wrong=wrong))

    write(1)
    return write


def ends(text: str) -> int:
    """What a script ends with, in this process; and it may import nothing of kvref."""
    assert "import kvref" not in text
    assert "from kvref" not in text
    path = Path("repro.py").resolve()
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("factory", "ops"),
    [
        ("Module", PLAIN),
        ("Duck", PLAIN),
        ("Duck", (*PLAIN, Crop(1), Fork(), Peek(((4, 4),), 1), Extend(((2, 2),)))),
    ],
)
def test_a_script_ends_with_1_while_the_bug_is_there(
    mine: Callable[[float], None], factory: str, ops: tuple[Op, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(case(f"scripted.py:{factory}", ops))
    capsys.readouterr()
    mine(1)
    assert ends(text) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "step 2, row 0: off by 0"
    assert out[1].startswith("step 3, row 0: off by ")
    assert len(out) == sum(isinstance(op, Extend | Peek) for op in ops)
    mine(0)
    assert ends(text) == 0


def test_what_is_off_by_less_than_float32_rounds_is_shown_in_float64(mine: Callable[[float], None]) -> None:
    mine(1e-6)
    text = script(case("scripted.py:Module"))
    assert "import_module('scripted').Module().to(torch.float64).eval()" in text
    mine(1e-6)
    assert ends(text) == 1
    mine(0)
    assert ends(text) == 0


def test_what_raises_raises_in_the_script(mine: Callable[[float], None]) -> None:
    mine(2)
    text = script(case("scripted.py:Duck", raised=True))
    Path("repro.py").write_text(text)
    mine(2)
    with pytest.raises(ValueError, match="no more"):
        runpy.run_path("repro.py")
    mine(0)
    runpy.run_path("repro.py")
    with pytest.raises(CaseError, match="raises no more"):
        script(case("scripted.py:Duck", raised=True))


@pytest.mark.parametrize(
    ("check", "named"),
    [
        ("hf-config:gpt2 --cache dynamic --attn sdpa", "hf-config:gpt2 (dynamic cache, sdpa attention)"),
        ("hf-config:bloom --cache static --attn eager", "hf-config:bloom (static cache, eager attention)"),
        ("hf-config:mistral --cache recorded --attn eager", "hf-config:mistral (recorded cache, eager attention)"),
    ],
)
def test_a_model_of_transformers_is_written_down_with_what_is_done_to_its_cache(
    check: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import cache_utils

    monkeypatch.chdir(tmp_path)
    ops = ALL if "static" not in check else (ALL[0], *ALL[1:3], Reorder((1, 0)), Fork(), *ALL[7:])
    with monkeypatch.context() as planted:
        for layer in (cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer, cache_utils.StaticLayer):
            planted.setattr(layer, "update", halved(layer.update))
        text = script(case(check, ops, named))
        assert ends(text) == 1
    assert ends(text) == 0
    for words in ("deepcopy(", ".reorder_cache(torch.tensor([1, 0]))", ".reset()", "attention_mask=torch.tensor("):
        assert words in text
    assert (".crop(-" in text) == ("static" not in check)


def halved(update: Callable[..., Any]) -> Callable[..., Any]:
    """A layer of a cache that gives half of each value, where there is a past."""

    def wrong(self: Any, keys: Any, values: Any, *args: Any, **more: Any) -> Any:
        past = int(self.get_seq_length()) > 0
        keys, values = update(self, keys, values, *args, **more)
        return keys, values * (0.5 if past else 1)

    return wrong


def test_what_cannot_be_shown_so_is_one_line(
    mine: Callable[[float], None], kvref: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    for message, asked in {
        "a schedule with restore cannot be written down": case("scripted.py:Duck", (*PLAIN, Restore())),
        "has no decoder": case("scripted.py:Duck", decoder="another"),
    }.items():
        with pytest.raises(CaseError, match=message):
            script(asked)
    mine(0)
    path = save_case(case("scripted.py:Duck"), tmp_path)
    code, out, err = kvref("script", str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "or it is mended; `kvref replay` plays it" in err


def test_texts_of_a_case_stay_comments(mine: Callable[[float], None], tmp_path: Path) -> None:
    del mine
    hostile = 'x"""\nimport os; os._exit(9)'
    text = save_case(case("scripted.py:Module", place=Place(3, 0, 2), diverges=hostile), tmp_path).read_text()
    written = script(Case.from_json(text))
    assert all(line.startswith("#") for line in written.splitlines() if "os._exit" in line)
