"""The job for CI that `kvref init` writes: what it holds, what it never does, and that its steps run."""

import os
import platform
import shlex
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kvref as library
from kvref import init_cli
from kvref.case import KEPT, Case, Place, save_case
from kvref.lens import Lens
from kvref.operations import Extend, Start
from kvref.schedule import Schedule
from kvref.tests.test_case import EQUAL
from kvref.tests.test_cli import kvref as kvref

Kvref = Callable[..., tuple[int, str, str]]
SUMS = """
import torch

class Mine:
    vocab_size, block_size = 7, 10
    refuses = {"batch": "it serves one request at a time"}
    def full(self, tokens): return torch.nn.functional.one_hot(tokens.cumsum(1) % 7, 7).float()
    def start(self, batch, capacity): return torch.zeros(batch, 0, dtype=torch.long)
    def step(self, cache, tokens):
        past, cache = cache.size(1), torch.cat([cache, tokens], dim=1)
        if cache.size(1) > 10: raise ValueError("full")
        return self.full(cache)[:, past:] + (WRONG), cache
"""
"""A decoder that takes next to no time: its logits say what the tokens so far add up to."""

HERE = Case(
    "mine.py:Mine",
    EQUAL,
    "mine.py:Mine",
    Lens("tile", torch.float32),
    Schedule((Start(1), Extend(((0, 0, 0),)), Extend(((0,),)))),
    Place(3, 0, 3),
)

WORKFLOW = ".github/workflows/kvref.yml"


def job(folder: Path) -> dict[str, Any]:
    """The job, as GitHub reads it."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with transformers, and may go with it")
    jobs = yaml.safe_load((folder / WORKFLOW).read_text())["jobs"]
    return jobs["kvref"]


def runs(folder: Path) -> dict[str, str]:
    """What the steps of the job run, by name."""
    return {step["name"]: step["run"] for step in job(folder)["steps"] if "run" in step}


def test_a_job_is_written_and_never_over_another(kvref: Kvref, tmp_path: Path) -> None:
    told = f"{WORKFLOW}: checks mine.py:Mine, with kvref==1.2\n"
    args = ("init", "mine.py:Mine", "--ci", "github", "--package", "kvref==1.2")
    assert kvref(*args) == (0, told, "")
    (tmp_path / WORKFLOW).write_text("mine")
    code, out, err = kvref(*args)
    assert (code, out) == (2, "")
    assert err == f"kvref: {WORKFLOW} is there already; give --force to write over it\n"
    assert (tmp_path / WORKFLOW).read_text() == "mine"
    assert kvref(*args, "--force") == (0, told, "")
    assert runs(tmp_path)["Check"] == "kvref check mine.py:Mine --profile ci\n"


def test_the_job_has_no_secrets_and_keeps_hidden_files(kvref: Kvref, tmp_path: Path) -> None:
    kvref("init", "mine.py:Mine")
    assert "secrets" not in (tmp_path / WORKFLOW).read_text()
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in job(tmp_path)["steps"] if "uses" in step}
    assert used["actions/checkout"]["persist-credentials"] is False
    # A folder whose name begins with a dot is left out of an artifact unless that is asked for.
    upload = used["actions/upload-artifact"]
    # Nor is what Hypothesis keeps of the source code that it met, with the paths of that machine.
    assert (upload["path"].split(), upload["include-hidden-files"]) == ([".kvref/", "!.kvref/hypothesis/"], True)


def test_the_job_installs_what_the_project_needs(kvref: Kvref, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("einops\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.kvref.targets.mine]\ntarget = "mine.py:M"\n')
    assert kvref("init")[1] == f"{WORKFLOW}: checks mine, with kvref=={library.__version__}\n"
    assert runs(tmp_path)["Install"].splitlines() == [
        "pip install torch --index-url https://download.pytorch.org/whl/cpu",
        f"pip install kvref=={library.__version__}",
        "pip install -r requirements.txt",
        "pip install .",
    ]


@pytest.mark.parametrize(
    ("origin", "package"),
    [
        (None, f"kvref=={library.__version__}"),
        ("{}", f"kvref=={library.__version__}"),
        ('{"url": "file:///home/me/kvref", "dir_info": {}}', f"kvref=={library.__version__}"),
        (
            '{"url": "file:///home/me/kvref", "vcs_info": {"vcs": "git", "commit_id": "ab"}}',
            f"kvref=={library.__version__}",
        ),
        (
            '{"url": "https://example.org/kvref", "vcs_info": {"vcs": "git", "commit_id": "ab"}}',
            "kvref @ git+https://example.org/kvref@ab",
        ),
    ],
)
def test_the_job_installs_the_kvref_that_wrote_it(
    origin: str | None, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return origin

    monkeypatch.setattr(init_cli, "distribution", lambda _: Installed())
    assert init_cli.own_package() == package


@pytest.mark.parametrize(
    ("args", "table", "message"),
    [
        ((), "", "say what the job is to check: `kvref init TARGET`, such as my_model.py:make"),
        ((), "[tool.kvref.targets.a]\n[tool.kvref.targets.b]\n", "`kvref init TARGET`, one of a, b"),
        (("a\nb",), "", "the target is 'a\\nb'; it must be a text of one line"),
        (("a${{ secrets.KEY }}",), "", "without ${{"),
        (("a", "--package", "\x1b"), "", "--package is '\\x1b'"),
        (("a", "--ci", "gitlab"), "", "'gitlab' is not"),
    ],
)
def test_what_no_job_can_be_written_for_is_one_line(
    kvref: Kvref, tmp_path: Path, args: tuple[str, ...], table: str, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(table)
    code, out, err = kvref("init", *args)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / ".github").exists()


def test_below_the_root_of_a_repository_no_job_is_written(
    kvref: Kvref, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    assert kvref("init", "mine.py:Mine")[0] == 0
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    code, _, err = kvref("init", "mine.py:Mine")
    assert code == 2
    assert "at the root of the repository alone" in err
    (tmp_path / "inner" / ".github").write_text("a file in the way")
    (tmp_path / ".git").rmdir()
    assert "cannot be written" in kvref("init", "mine.py:Mine")[2]


class Shell:
    """Runs steps as GitHub does, but what they ask of kvref in this process: a new one imports torch for seconds."""

    def __init__(self, folder: Path, kvref: Kvref) -> None:
        self.folder, self.kvref, self.out = folder, kvref, ""
        self.bin = folder.parent / f"{folder.name}-bin"
        self.bin.mkdir()
        (self.bin / "kvref").write_text('#!/bin/sh\necho "$@" >>"$CALLS"\nexit "$CODE"\n')
        (self.bin / "kvref").chmod(0o755)

    def step(self, script: str) -> int:
        """Exit code of a step, where each command of kvref in it ends with the code that it ends with here."""
        _, calls = self.play(script, 0)
        codes = [0]
        for call in calls:
            code, out, err = self.kvref(*shlex.split(call))
            self.out += out + err
            codes.append(code)
        return self.play(script, max(codes))[0]

    def play(self, script: str, code: int) -> tuple[int, list[str]]:
        """Exit code of a step, and the commands of kvref in it, each of which ends with a code."""
        calls = self.bin / "calls"
        calls.write_text("")
        here = {"PATH": f"{self.bin}:{os.environ['PATH']}", "CALLS": str(calls), "CODE": str(code)}
        done = subprocess.run(["bash", "-e", "-c", script], cwd=self.folder, env=here, check=False, timeout=60)
        return done.returncode, calls.read_text().splitlines()


def test_the_steps_of_the_job_run_in_a_project(kvref: Kvref, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the network's: what is right passes the check and its kept case, and a bug fails the case."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for module, name in ((socket, "gethostname"), (platform, "node")):
        monkeypatch.setattr(module, name, lambda: "this-host")
    shell = Shell(tmp_path, kvref)
    assert kvref("init", "mine.py:Mine", "--ci", "github")[0] == 0
    steps = runs(tmp_path)
    assert list(steps) == ["Install", "Check", "Replay the cases that were kept"]
    check, replay = steps["Check"], steps["Replay the cases that were kept"]

    (tmp_path / "mine.py").write_text(SUMS.replace("WRONG", "0"))
    assert shell.step(check) == 0, shell.out
    assert shell.play(check, 1) == (1, ["check mine.py:Mine --profile ci"])  # and when that fails, so does the step
    assert shell.play(replay, 1) == (0, [])  # none is kept
    save_case(HERE, tmp_path / KEPT)
    assert shell.step(replay) == 0
    (tmp_path / "mine.py").write_text(SUMS.replace("WRONG", "past > 2"))
    assert shell.step(replay) == 1

    kept = [path for path in (tmp_path / ".kvref").iterdir() if path.name != "hypothesis"]  # as the job leaves it out
    written = [path for top in kept for path in [top, *top.rglob("*")] if path.is_file()]
    assert {"report.json", "report.md", "report.html"} <= {path.name for path in written}
    for text in (shell.out, *(path.read_text(errors="replace") for path in written)):
        for here in (str(tmp_path), str(Path.home()), "this-host", "\x1b"):
            assert here not in text, (here, text[max(0, text.find(here) - 150) : text.find(here) + 100])
