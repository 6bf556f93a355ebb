"""The command line of the catalogue: `kvref bugs`."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvref.bug import catalogue
from kvref.matrix import Matrix, read_matrix
from kvref.matrix import cli as matrix_cli
from kvref.tests.test_cli import run as run_cli
from kvref.tests.test_matrix import LOGITS, SAVED

BYTES = "bytes-equal-the-formula"


@pytest.fixture
def kvref(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run the command line in this process."""
    return lambda *args: run_cli(*args, capfd=capfd, monkeypatch=monkeypatch)


def saved(tmp_path: Path, matrix: Matrix = SAVED) -> str:
    """Path of a saved matrix."""
    path = tmp_path / "matrix.json"
    path.write_text(matrix.to_json())
    return str(path)


def test_bugs_are_listed_one_a_line(kvref) -> None:
    code, out, err = kvref("bugs", "list")
    assert (code, err) == (0, "")
    assert [line.split("\t")[0] for line in out.splitlines()] == list(catalogue())


def test_a_bug_is_shown_with_its_diff_and_its_killers(kvref, tmp_path: Path) -> None:
    code, out, _ = kvref("bugs", "show", "stale-cache", "--matrix", saved(tmp_path))
    assert code == 0
    for part in ("wrong     Only the first call is kept", "--- reference", "+++ stale-cache", "seen      https://"):
        assert part in out
    assert f"killed by {LOGITS}, at example 5\n  1. start a cache of 2 rows" in out
    _, out, _ = kvref("bugs", "show", "unmasked-chunk", "--matrix", saved(tmp_path))
    assert "no law kills it" in out


def test_a_bug_that_is_killed_exits_with_0_and_is_saved(kvref, tmp_path: Path) -> None:
    files = [tmp_path / "matrix.json", tmp_path / "report.json"]
    options = ["--examples", "10", "--workers", "1", "--json", str(files[0]), "--stryker", str(files[1])]
    code, out, err = kvref("bugs", "run", "stale-cache", "--law", LOGITS, "--shrink", *options)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert f"   1 {LOGITS}" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["stale-cache", "#", "1", "killer"] in rows
    assert ["reference:growing", "."] in rows
    assert ["reference:static", "."] in rows
    assert "1 of 1 bug killed." in out
    (cell,) = read_matrix(files[0]).cells
    assert cell.schedule is not None
    assert len(cell.schedule) <= 4
    assert json.loads(files[1].read_text())["schemaVersion"] == "2"


def test_a_bug_that_survives_exits_with_1(kvref) -> None:
    args = ["missing-position-offset", "--law", BYTES, "--gate", "--examples", "20", "--workers", "2"]
    code, out, _ = kvref("bugs", "run", *args)
    assert code == 1
    assert "0 of 1 bug killed." in out


def test_a_reference_that_fails_exits_with_4_before_any_bug(kvref) -> None:
    args = ["--law", "crop-equals-never-having-appended", "--examples", "1", "--workers", "1"]
    code, out, _ = kvref("bugs", "run", "stale-cache", *args)
    assert code == 4
    assert "the reference does not hold: reference:growing under crop-equals-never-having-appended: vacuous" in out
    assert "0 of 1 bug killed" in out


def test_a_fault_of_our_own_exits_with_3(kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_cli, "choose_bugs", lambda _: 1 / 0)
    code, _, err = kvref("bugs", "run")
    assert code == 3
    assert "kvref broke (ZeroDivisionError)" in err


def test_reliability_takes_its_laws_from_a_matrix(kvref, tmp_path: Path) -> None:
    options = ["--seeds", "2", "--examples", "10", "--workers", "1", "--matrix", saved(tmp_path)]
    code, out, _ = kvref("bugs", "reliability", *options)
    assert code == 1
    assert "unmasked-chunk: no law kills it" in out
    assert f"killed with 2 of 2 seeds, misses at most {1 - 0.05**0.5:.1%}  {LOGITS}" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give a command, such as `kvref bugs list`"),
        (["show", "stale-cash"], "there is no bug 'stale-cash'; did you mean stale-cache?"),
        (["run", "zzz"], "there is no bug 'zzz'; there are"),
        (["run", "--law", "gravity"], "there is no law 'gravity'"),
        (["run", "--json", "/no/such/file"], "/no/such/file cannot be written: No such file"),
        (["run", "--workers", "0"], "Invalid value for '--workers'"),
        (["run", "--gate", "--record", "kills.json"], "--record takes the whole matrix under tile"),
        (["run", "stale-cache", "--record", "kills.json"], "--record takes the whole matrix under tile"),
        (["run", "--lens", "rose"], "there is no lens 'rose'"),
        (["run", "--json", "kills.json", "--stryker", "./kills.json"], "two reports cannot go to one file"),
        (["show", "stale-cache", "--matrix", "/no/such/file"], "/no/such/file cannot be read: No such file"),
        (["show", "stale-cache", "--matrix", sys.executable], "can't decode"),
    ],
)
def test_bad_input_is_one_line_and_exits_with_2(kvref, args: list[str], message: str) -> None:
    code, out, err = kvref("bugs", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (replace(SAVED, stopped=True), "the matrix was stopped before its end"),
        (replace(SAVED, bugs=(*SAVED.bugs, "gone")), "of another kvref: there is no bug 'gone'"),
        (replace(SAVED, laws=(*SAVED.laws, "gone")), "of another kvref: there is no law 'gone'"),
        (replace(SAVED, bugs=SAVED.bugs[1:], cells=SAVED.cells[2:]), "the matrix has no bug 'stale-cache'"),
    ],
)
def test_a_matrix_about_something_else_exits_with_2(kvref, tmp_path: Path, matrix: Matrix, message: str) -> None:
    code, out, err = kvref("bugs", "reliability", "stale-cache", "--matrix", saved(tmp_path, matrix))
    assert (code, out) == (2, "")
    assert message in err


def test_bad_input_leaves_no_file_behind(kvref, tmp_path: Path) -> None:
    wanted = tmp_path / "kills.json"
    for wrong in (["--lens", "rose"], ["--stryker", "/no/such/file"]):
        code, _, _ = kvref("bugs", "run", "--json", str(wanted), *wrong)
        assert code == 2
        assert not wanted.exists()


def test_a_report_that_cannot_be_written_costs_no_other(kvref, tmp_path: Path) -> None:
    full, other = Path("/dev/full"), tmp_path / "report.json"
    if not full.exists():
        pytest.skip("no device that is always full")
    args = ["--law", LOGITS, "--examples", "10", "--workers", "1", "--json", str(full), "--stryker", str(other)]
    code, out, err = kvref("bugs", "run", "stale-cache", *args)
    assert code == 2
    assert "1 of 1 bug killed." in out
    assert err == "kvref: /dev/full could not be written: No space left on device\n"
    assert json.loads(other.read_text())["schemaVersion"] == "2"


def test_an_endless_limit_is_none(kvref) -> None:
    args = ["--law", LOGITS, "--examples", "10", "--workers", "1", "--max-seconds", "1e300"]
    assert kvref("bugs", "run", "stale-cache", *args)[0] == 0


def test_showing_a_bug_until_stopped_exits_with_4(kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_cli, "gated", lambda *_: replace(SAVED, cells=(), stopped=True))
    code, out, _ = kvref("bugs", "show", "stale-cache")
    assert code == 4
    assert "stopped before a law killed it" in out
