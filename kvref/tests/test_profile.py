"""Profiles: how hard a check tries, by a name, on the command line, in a project, and under pytest."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kvref import profile as profile_module
from kvref import pytest_plugin
from kvref.api import check
from kvref.errors import BadInput
from kvref.profile import PROFILES, effort_for
from kvref.search import Effort
from kvref.tests.test_api import EQUAL, Duck, session
from kvref.tests.test_cli import kvref as kvref

README = Path(profile_module.__file__).resolve().parent.parent / "README.md"
Kvref = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write what a project says, and be in it."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> None:
        (tmp_path / "pyproject.toml").write_text(text)

    return write


def test_a_profile_is_what_is_said_first(project: Callable[[str], None]) -> None:
    project("")
    usual = effort_for()
    assert (usual.profile, usual.examples, usual.seed, usual.flags()) == ("ci", Effort.examples, 0, "")
    assert effort_for("quick").flags() == f" --examples {PROFILES['quick']}"
    assert str(effort_for("quick", examples=3, seed=5)) == "profile quick, 3 examples a law, seed 5"
    project('[tool.kvref]\nprofile = "quick"\n')
    assert effort_for().examples == PROFILES["quick"]
    # What is the default elsewhere is not the default of this project, so it has to be said.
    assert effort_for("ci").flags() == f" --examples {Effort.examples} --seed 0"


def test_a_deep_search_draws_a_seed_and_gives_it_again(
    project: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    project("")
    seeds = iter([17, 18])
    monkeypatch.setattr(profile_module, "randbelow", lambda _: next(seeds))
    first, second = effort_for("deep"), effort_for("deep")
    assert (first.seed, second.seed) == (17, 18)
    assert first.flags() == " --examples 1000 --seed 17"
    assert effort_for("deep", seed=0).seed == 0
    assert effort_for("deep", drawn=3).seed == 3
    assert effort_for("ci", drawn=3).seed == 0


@pytest.mark.parametrize(
    ("asked", "text", "message"),
    [
        ({"profile": "slow"}, "", "there is no profile 'slow'; there are quick, ci, deep"),
        ({}, "[tool.kvref]\nprofile = 3\n", "there is no profile 3"),
        ({"examples": 0}, "", "at least one example is needed"),
        ({"seed": -1}, "", "a seed from 0 up"),
    ],
)
def test_what_is_no_profile_is_bad_input(
    project: Callable[[str], None], kvref: Kvref, asked: dict[str, Any], text: str, message: str
) -> None:
    project(text)
    with pytest.raises(BadInput, match=message):
        effort_for(**asked)
    with pytest.raises(BadInput, match=message):
        check(Duck, laws=[EQUAL], **asked)
    flags = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    code, out, err = kvref("check", "reference", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_check_says_its_profile_and_keeps_to_it(kvref: Kvref, tmp_path: Path) -> None:
    code, out, _ = kvref("check", "reference:growing", "--law", EQUAL, "--profile", "quick")
    assert code == 0
    assert f"profile quick, {PROFILES['quick']} examples a law, seed 0" in out.splitlines()[0]
    assert f"{PROFILES['quick']} examples" in out.splitlines()[4]
    assert '"profile": "quick"' in (tmp_path / ".kvref/report.json").read_text()


def test_processes_of_a_session_share_the_seed_that_was_drawn(tmp_path: Path) -> None:
    (tmp_path / "test_seed.py").write_text(
        "from pathlib import Path\nfrom kvref.pytest_plugin import drawn\n\n\n"
        "def test_seed(request, worker_id):\n    Path(worker_id).write_text(str(drawn(request.config)))\n"
    )
    assert "2 passed" in session(tmp_path, "-n", "2", "--dist", "each")
    assert (tmp_path / "gw0").read_text() == (tmp_path / "gw1").read_text()


def test_a_session_takes_the_options_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, project: Callable[[str], None]
) -> None:
    project('[tool.kvref]\nprofile = "quick"\n')
    options: dict[str, Any] = dict.fromkeys(("cache", "attn", "profile", "examples", "seed"))
    options |= {"target": "reference", "device": "cpu", "lens": "fold", "dtype": []}
    monkeypatch.setattr(pytest_plugin, "option", lambda _, name: options[name])
    config: Any = SimpleNamespace(stash=pytest.Stash())
    assert pytest_plugin.effort_of(config).profile == "quick"
    options |= {"profile": "slow"}
    with pytest.raises(pytest.UsageError, match="there is no profile 'slow'"):
        pytest_plugin.effort_of(config)
    options |= {"target": "hf-config:gpt2", "cache": "dynamic,static", "attn": "eager"}
    names = [target.name for target in pytest_plugin.targets_of(config)]
    assert names == [f"hf-config:gpt2 ({kind} cache, eager attention)" for kind in ("dynamic", "static")]


def test_a_factory_that_draws_weights_gives_the_same_model_each_time() -> None:
    """Otherwise a case is replayed on another decoder than the one it was found on."""
    found = [check(Drawn, laws=[EQUAL], examples=15).findings[0] for _ in range(2)]
    assert found[0] == found[1]


class Drawn(Duck):
    """Draws how wrong it is."""

    def __init__(self) -> None:
        super().__init__(1 + float(torch.rand(())))


def test_the_help_and_the_readme_say_how_many_schedules_a_profile_draws(kvref: Kvref) -> None:
    quick, ci, deep = PROFILES.values()
    said = " ".join(kvref("check", "--help")[1].split())
    assert f"ci: {ci}, the same ones each time, and the usual one; deep: {deep}, others each time" in said
    if README.exists():
        said = " ".join(README.read_text().split())
        assert f"`quick` draws {quick} schedules a law; `ci`, the usual one, {ci}" in said
        assert f"`deep` {deep:,}, with a seed of its own" in said
