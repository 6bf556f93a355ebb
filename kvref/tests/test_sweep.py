"""The sweep: what it says of each target, and that it goes on where it stopped."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import kvref as kvref_package
from kvref.errors import NoCache, TargetError
from kvref.expected import Expected
from kvref.isolation.work import Described
from kvref.law import laws
from kvref.search import Outcome, Status
from kvref.sweep import families
from kvref.sweep.families import Family, spread
from kvref.sweep.row import ABOUT, Came, exit_code, row, unbuilt
from kvref.targets.packages import PACKAGES
from kvref.tests.helpers import try_law
from kvref.tests.test_cli import kvref as kvref
from kvref.tests.test_isolation import MINE

Kvref = Callable[..., tuple[int, str, str]]

FORK = "a-fork-and-its-origin-never-meet"
README = Path(kvref_package.__path__[0]).resolve().parent / "README.md"
HELD = Outcome(laws()[FORK], "mine", Status.HELD)

SWEPT = f"""{MINE}
class Forks(Duck):
    def fork(self, cache): return deepcopy(cache)

class Shares(Duck):
    def fork(self, cache): return cache
"""

CAME = {
    "mine.py:Forks": "exact",
    "mine.py:Shares": "finding",
    "mine.py:Duck": "limitation",
    "mine.py:Bad": "finding",
    "mine.py:gone": "cannot build",
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of targets of our own, in the folder that the command runs in."""
    (tmp_path / "mine.py").write_text(SWEPT)
    monkeypatch.setitem(families.FAMILIES, "mine", Family("ours", lambda: list(CAME)))


@pytest.mark.usefixtures("mine")
def test_a_sweep_says_what_came_of_each_target_and_goes_on_where_it_stopped(kvref: Kvref) -> None:
    options = ["sweep", "mine", "--law", FORK, "--examples", "12"]
    code, out, err = kvref(*options)
    assert (code, err) == (1, "")
    journal, report = Path(".kvref/sweep.jsonl"), Path(".kvref/sweep.json")
    rows = json.loads(report.read_text())["rows"]
    assert {came["name"]: came["came"] for came in rows} == CAME
    assert "mine.py:Bad" in out
    for came in rows:
        assert (came["came"] == "finding") == bool(came["findings"])
        assert all(Path(f".kvref/cases/{finding['case']}.json").exists() for finding in came["findings"])

    whole = journal.read_text()
    lines = whole.splitlines(keepends=True)
    # Two targets were done, and the line of the second was cut off.
    journal.write_text(lines[0] + lines[1] + lines[2][:40])
    code, out, _ = kvref(*options, "--only", "Forks", "--only", "mine.py:Sh*")
    assert code == 1
    assert "2 targets; 1 done before" in out
    assert [json.loads(line)["target"] for line in journal.read_text().splitlines()[1:]] == list(CAME)[:2]
    assert json.loads(report.read_text())["left"] == []

    code, _, err = kvref(*options, "--seed", "1")
    assert code == 2
    assert err == "kvref: .kvref/sweep.jsonl was begun with other options or versions; give another --out, or --fresh\n"


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["mime"], "there is no family 'mime' to sweep; did you mean mine?"),
        (["mine", "--only", "llama*"], "none of 5 targets is like llama*; they are as mine.py:Forks"),
        (["mine", "--out", "table.json"], "table.json is where the whole goes"),
        (["mine", "--out", "mine.py"], "mine.py is no journal of a sweep"),
        (["mine", "--lens", "thick"], "there is no lens 'thick'"),
        (["mine", "--law", "gravity"], "there is no law 'gravity'"),
    ],
)
def test_bad_input_to_a_sweep_is_one_line_and_exits_with_2(kvref: Kvref, args: list[str], message: str) -> None:
    code, out, err = kvref("sweep", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_word_for_each_mixture_of_outcomes() -> None:
    broken = replace(try_law("cached-logits-equal-uncached-logits", "missing-position-offset"), target="mine")
    skipped = replace(HELD, status=Status.SKIPPED, reason="the target offers no fork")
    vacuous = replace(HELD, status=Status.VACUOUS, reason="never met: a fork")
    rounded = replace(HELD, exact=False, reason="it vanishes in float64")
    target = Described("mine", "mine.py:make", frozenset(), {})
    rows = {
        came: row("mine", target, outcomes, ())
        for came, outcomes in {
            Came.EXACT: [HELD, skipped],
            Came.ROUNDING: [HELD, rounded, skipped],
            Came.FINDING: [broken, rounded, vacuous],
            Came.LIMITATION: [skipped],
            Came.INCONCLUSIVE: [HELD, vacuous],
        }.items()
    }
    assert all(row.came is came and row.reason for came, row in rows.items() if came is not Came.EXACT)
    assert rows[Came.FINDING].findings[0]["verdict"].startswith("bug: ")
    assert [unbuilt("mine", error("why"), 1.0).came for error in (NoCache, TargetError)] == [
        *(Came.LIMITATION, Came.UNBUILT)
    ]
    codes = {came: exit_code([rows[Came.EXACT], row], whole=True) for came, row in rows.items()}
    assert codes == dict.fromkeys(rows, 0) | {Came.FINDING: 1, Came.INCONCLUSIVE: 4}
    assert exit_code([rows[Came.EXACT]], whole=False) == 4
    assert exit_code([rows[Came.LIMITATION]], whole=True) == 4
    known = row("mine", target, [broken], [Expected("cached-*", "mine", "issue 7")])
    assert (known.came, known.known) == (Came.FINDING, "issue 7")
    assert exit_code([known, rows[Came.EXACT]], whole=True) == 0


@pytest.mark.skipif(not README.exists(), reason="installed without its repository")
def test_the_readme_says_what_each_word_means() -> None:
    words = [
        line for line in README.read_text().splitlines() if line.split("|")[1:2] and line.split("|")[1].strip() in ABOUT
    ]
    assert words == [f"| {came} | {about} |" for came, about in ABOUT.items()]


def test_relatives_are_far_apart() -> None:
    names = ["gemma", "gemma2", "gpt2", "gpt_neo", "llama", "qwen2_moe", "qwen3", "qwen3_moe"]
    assert spread(names) == ["gemma", "gpt2", "llama", "qwen2_moe", "gemma2", "gpt_neo", "qwen3", "qwen3_moe"]


def test_other_packages_are_families_that_are_swept_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(PACKAGES) == set(families.FAMILIES) - {"transformers"}
    listed = {name: [f"{name}:one"] for name in families.FAMILIES}
    there = {"litgpt": object(), "x_transformers": None}
    monkeypatch.setattr(families, "find_spec", there.get)
    monkeypatch.setattr(families, "listed", listed.__getitem__)
    assert families.chosen([], []) == ["transformers:one", "litgpt:one"]
    assert families.chosen(["mlx-lm"], []) == ["mlx-lm:one"]


def test_a_family_whose_package_is_absent_says_what_to_install(kvref: Kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> list[str]:
        raise TargetError(f"{package} cannot be imported; install it")

    monkeypatch.setattr("kvref.targets.packages.worth_trying", absent)
    assert kvref("sweep", "litgpt") == (2, "", "kvref: litgpt cannot be imported; install it\n")
