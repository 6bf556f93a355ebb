"""The check for Python, targets by a name, and what an installed kvref does to a session of pytest."""

import importlib
import pkgutil
import subprocess
import sys
from copy import deepcopy
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kvref
from kvref import pytest_plugin
from kvref.api import of_object
from kvref.errors import BadInput, TargetError
from kvref.search import Status
from kvref.targets import named
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH, tiny

EQUAL = "cached-logits-equal-uncached-logits"


class Duck:
    """A decoder that knows nothing of kvref, right or not."""

    vocab_size, block_size = 7, 8

    def __init__(self, wrong: float = 0.0) -> None:
        self.model, self.wrong = tiny(), wrong

    def full(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens)[0]

    def start(self, batch: int, capacity: int | None) -> torch.Tensor:
        del capacity
        return torch.zeros(batch, 0, dtype=torch.long)

    def step(self, cache: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cache = torch.cat([cache, tokens], dim=1)
        if cache.size(1) > self.block_size:
            raise ValueError("full")
        logits = self.full(cache)[:, -tokens.size(1) :]
        return logits + (self.wrong if tokens.size(1) == 1 else 0), cache


def wrong() -> Duck:
    return Duck(1.0)


def test_a_result_says_what_came_of_each_law() -> None:
    result = kvref.check(Duck, laws=[EQUAL, "crop-equals-never-having-appended"], examples=15)
    assert [outcome.status for outcome in result.outcomes] == [Status.HELD, Status.SKIPPED]
    assert result.held
    assert not result.findings
    result.require()
    assert str(result).splitlines()[1].endswith("(the target offers no crop)")


@pytest.mark.parametrize("target", [wrong, Duck(1.0)])
def test_a_result_that_does_not_hold_raises_with_its_findings(target: object) -> None:
    result = kvref.check(target, laws=[EQUAL], examples=15)
    (finding,) = result.findings
    assert result.exit_code == 1
    with pytest.raises(AssertionError, match=r"is broken by kvref\.tests\.test_api:") as caught:
        result.require()
    assert str(finding) in str(caught.value)


def test_what_is_undecided_does_not_hold_either() -> None:
    result = kvref.check(Duck, laws=[EQUAL], examples=1)
    assert (result.exit_code, result.held, result.findings) == (4, False, [])
    with pytest.raises(AssertionError, match="vacuous"):
        result.require()


def test_modules_and_strings_are_targets_too() -> None:
    assert kvref.check(tiny(), laws=[EQUAL], examples=15).held
    assert len(kvref.check("reference", laws=[EQUAL], examples=15, dtype="float64").outcomes) == 2


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (3, {}),
        (None, {}),
        ("", {}),
        ("nothing", {}),
        (Duck, {"laws": ["gravity"]}),
        (Duck, {"lens": "thick"}),
        (Duck, {"dtype": "int8"}),
        (Duck, {"examples": 0}),
        (Duck, {"max_time": float("nan")}),
    ],
)
def test_what_cannot_be_checked_is_bad_input(target: object, options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        kvref.check(target, **{"laws": [EQUAL], "examples": 5} | options)


def test_each_name_of_the_library_is_one_thing_whatever_was_imported() -> None:
    before = {name: getattr(kvref, name) for name in kvref.__all__}
    for info in pkgutil.iter_modules(kvref.__path__):
        importlib.import_module(f"kvref.{info.name}")
    for name, thing in before.items():
        assert getattr(kvref, name) is thing
        assert not isinstance(thing, ModuleType)


def project(folder: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with a table for targets, and a folder in it to be in."""
    (folder / "pyproject.toml").write_text(table)
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")


def test_a_path_is_from_the_project_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("from kvref.tests.test_api import Duck\n")
    project(tmp_path, '[tool.kvref.targets.mine]\ntarget = "mine.py:Duck"\n', monkeypatch)
    (target,) = resolve("mine", BENCH)
    assert target.command == "../mine.py:Duck"
    table = '[tool.kvref.targets.mine]\ntarget = "hf:./nowhere"\n'
    (tmp_path / "pyproject.toml").write_text(table)
    with pytest.raises(TargetError, match=r"\.\./nowhere is no directory"):
        resolve("mine", BENCH)


def test_a_module_is_left_as_it_was() -> None:
    model = deepcopy(tiny()).float().requires_grad_(True).train()
    threads = torch.get_num_threads()
    assert kvref.check(model, laws=[EQUAL], examples=15, dtype="float64").held
    assert model.training
    assert all(parameter.requires_grad and parameter.dtype is torch.float32 for parameter in model.parameters())
    assert torch.get_num_threads() == threads


def test_what_cannot_be_found_by_a_name_gives_no_command_that_finds_another() -> None:
    assert of_object(wrong, BENCH).command == "kvref.tests.test_api:wrong"
    (finding,) = kvref.check(lambda: Duck(1.0), laws=[EQUAL], examples=15).findings
    assert finding.replay == f'the same kvref.check(...), with laws=["{EQUAL}"]'


def test_a_project_names_its_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = '[tool.kvref.targets.mine]\ntarget = "reference"\ncache = "static"\n'
    project(tmp_path, table, monkeypatch)
    assert [target.name for target in resolve("mine", BENCH)] == ["reference:static"]
    assert [target.name for target in resolve("mine", BENCH, "growing")] == ["reference:growing"]
    assert len(resolve("reference", BENCH)) == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[tool.kvref.targets.mine]\n", "must have a target"),
        ('[tool.kvref.targets.mine]\ntarget = "reference"\nlens = "tile"\n', "must have a target, and may have"),
        ("[tool.kvref.targets.mine]\ntarget = 3\n", "all texts"),
        ("[tool.kvref.targets]\nmine = 3\n", "must have a target"),
        ('[tool.kvref.targets.mine]\ntarget = "mine"\n', "stands for 'mine', which is no target"),
        ("[tool.kvref.targets.other]\n", "'mine' is no target, and nothing is called so"),
        ("tool = 3", "'mine' is no target, and nothing is called so"),
        ("[tool", "pyproject.toml cannot be read"),
    ],
)
def test_a_table_that_names_no_target_says_so(
    table: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, table, monkeypatch)
    with pytest.raises(BadInput) as caught:
        resolve("mine", BENCH)
    assert message in str(caught.value)


def test_a_package_names_its_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"theirs": "kvref.tests.test_api:Duck", "gone": "kvref.tests.test_api:Goose"}

    def entry_points(group: str, name: str) -> list[EntryPoint]:
        return [EntryPoint(name, values[name], group)] if name in values else []

    monkeypatch.setattr(named, "entry_points", entry_points)
    (target,) = resolve("theirs", BENCH)
    assert (target.name, target.command) == ("theirs", "theirs")
    with pytest.raises(TargetError, match=r"entry point gone .* cannot be loaded"):
        resolve("gone", BENCH)
    with pytest.raises(TargetError, match="nothing is called so"):
        resolve("nobody", BENCH)


def session(folder: Path, *args: str) -> str:
    """Output of a session of pytest in a folder."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.stdout


def test_a_session_of_somebody_else_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "import sys\n\n\ndef test_theirs():\n    assert 'torch' not in sys.modules\n"
    )
    out = session(tmp_path)
    assert "1 passed" in out
    assert "kvref:" not in out


def test_the_laws_run_in_a_session_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from kvref.tests.test_api import Duck\n")
    law = f"test_{EQUAL.replace('-', '_')}"
    args = ("--pyargs", "kvref.properties", "-k", law, "--kvref-examples", "15", "--kvref-target")
    out = session(tmp_path, *args, "mine.py:Duck")
    assert "kvref: lens tile; profile ci, 15 examples a law, seed 0" in out
    assert "kvref: mine.py:Duck offers atomic, batch" in out
    assert "1 passed" in out


def test_a_target_that_is_none_ends_a_session(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"target": "nothing", "device": "cpu", "lens": "fold", "dtype": [], "cache": None, "attn": None}
    monkeypatch.setattr(pytest_plugin, "option", lambda _, name: options[name])
    with pytest.raises(pytest.UsageError, match="'nothing' is no target"):
        pytest_plugin.targets_of(pytestconfig)
    options["lens"] = "thick"
    with pytest.raises(pytest.UsageError, match="there is no lens 'thick'"):
        pytest_plugin.targets_of(pytestconfig)
