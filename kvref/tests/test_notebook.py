"""The notebook: every cell runs, in order, and says what its text promises."""

import json
import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from kvref.learn.exercises import exercises
from kvref.learn.notebook import SCRIPT, Cell, cells, to_notebook
from kvref.tests.test_cli import kvref as kvref

pytestmark = pytest.mark.late


def test_a_script_is_cut_into_cells() -> None:
    script = "# first\n# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n\nprint(x)\n\n# %%\ny\n"
    assert cells(script) == [Cell(True, "# Title\n\nText."), Cell(False, "x = 1\n\nprint(x)"), Cell(False, "y")]


def test_ids_are_unique_and_stay() -> None:
    made = to_notebook(SCRIPT.read_text())
    ids = [cell["id"] for cell in made["cells"]]
    assert len(set(ids)) == len(ids)
    assert made == to_notebook(SCRIPT.read_text())


def test_every_cell_of_the_notebook_runs(kvref: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kvref("learn", "notebook", "cache.ipynb")[0] == 0
    made = json.loads(Path("cache.ipynb").read_text())
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    monkeypatch.setenv("MPLBACKEND", "agg")
    scope: dict[str, Any] = {"__name__": "__main__"}
    said, threads = StringIO(), torch.get_num_threads()
    with redirect_stdout(said):
        for cell in made["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), scope)
    torch.set_num_threads(threads)
    for line in (
        "430 token passes for 20 tokens behind 12",
        "naive, 12 tokens, the first of them: computed 12, q read 12, k read 78",
        "cached, 12 tokens, the first of them: computed 1, q read 1, k read 12",
        "the first six keys are the same bits: True",
        "31 token passes, and the same tokens: True",
        "to the bit: True",
        "it holds: True",
        "cached-logits-equal-uncached-logits is broken by",
        "missing-position-offset: 3 steps are enough",
        "causal-during-decode: 3 steps are enough",
        "stale-cache: 4 steps are enough",
        "36 KiB for each token",
        "500,500 token passes for 1,000 tokens without a cache, 1,000 with",
        "behind 64 tokens, naive / static:",
    ):
        assert line in said.getvalue()
    assert scope["broken"].findings[0].divergence.position == 1
    assert all(by_formula == by_count for _, by_formula, by_count in scope["bill"])
    right, wrong = scope["naive"][0, scope["prompt"].size(1) :].tolist(), scope["written"]
    assert right[0] == wrong[0]
    assert right != wrong
    if pyplot := scope.get("pyplot"):
        assert len(pyplot.gcf().axes[0].lines) == 3
        pyplot.close("all")
    assert "uniplot" in drawn_without_matplotlib(scope, monkeypatch)


def drawn_without_matplotlib(scope: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the cell that draws says where neither matplotlib nor uniplot is installed."""
    said = StringIO()
    for missing in ("matplotlib", "uniplot"):
        monkeypatch.setitem(sys.modules, missing, None)
    with redirect_stdout(said):
        exec(next(cell.source for cell in cells(SCRIPT.read_text()) if "pyplot" in cell.source), scope)
    return said.getvalue()


def test_the_exercises_that_it_names_are_there() -> None:
    names = set(re.findall(r"`([a-z]+-(?:\d|law|cause))`", SCRIPT.read_text()))
    assert len(names) >= 5
    assert names <= set(exercises())


def test_the_notebook_is_valid() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(to_notebook(SCRIPT.read_text()))


def test_a_notebook_is_not_written_over_a_file(kvref: Any) -> None:
    Path("cache.ipynb").write_text("mine")
    code, _, err = kvref("learn", "notebook", "cache.ipynb")
    assert code == 2
    assert "is there already" in err
    assert Path("cache.ipynb").read_text() == "mine"
    code, _, err = kvref("learn", "notebook", "none/cache.ipynb")
    assert code == 2
    assert "cannot be written" in err


@pytest.mark.parametrize("cell", [cell for cell in cells(SCRIPT.read_text()) if cell.text])
def test_the_text_begins_with_a_title_or_goes_on(cell: Cell) -> None:
    assert cell.source.splitlines()[0].startswith("#") or cell.source[0].isupper()
