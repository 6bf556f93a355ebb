"""The reports of a check, and the findings that are known."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvref.case import Case
from kvref.checked import Checked
from kvref.errors import BadInput
from kvref.expected import Expected, expected_by_project, expected_by_report, unmet
from kvref.matrix.gate import Kill
from kvref.search import Effort, Outcome, Status
from kvref.tests.helpers import BENCH, reference, try_law
from kvref.tests.test_cli import kvref as kvref

EQUAL = "cached-logits-equal-uncached-logits"
FEW = Effort(examples=12, shrink=False)
Kvref = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broken() -> Outcome:
    """A finding."""
    return try_law(EQUAL, "missing-position-offset", FEW)


@pytest.fixture(scope="module")
def held() -> Outcome:
    """A law that held."""
    return try_law(EQUAL, reference(), FEW)


def checked(*outcomes: Outcome, expected: Sequence[Expected] = (), **more: Any) -> Checked:
    """A check that came to this."""
    return Checked([reference()], BENCH, FEW, outcomes, more.pop("kills", ()), None, 1.25, expected=expected, **more)


def test_the_report_for_programs_holds_all_that_is_printed(broken: Outcome, held: Outcome) -> None:
    data = json.loads(checked(broken, held).to_json())
    assert (data["schema"], data["exit_code"], data["lens"], data["seed"]) == (1, 1, "tile", 0)
    assert data["targets"][0]["name"] == "reference:growing"
    assert "crop" in data["targets"][0]["offers"]
    first, second = data["outcomes"]
    assert (first["status"], second["status"], second["finding"]) == ("broken", "held", None)
    assert broken.finding is not None
    assert first["finding"]["diverges"] == str(broken.finding.divergence)
    assert first["finding"]["verdict"] == "bug"
    case = first["finding"]["case"]
    assert case.pop("id") == Case.of(broken.finding).id
    assert Case.from_json(json.dumps(case)) == Case.of(broken.finding)


def test_the_summary_counts_and_shows_each_finding(broken: Outcome, held: Outcome) -> None:
    skipped = replace(held, status=Status.SKIPPED, reason="it has none")
    vacuous = replace(held, status=Status.VACUOUS, reason="never met: a prefill")
    text = checked(broken, held, skipped, vacuous, kills=[Kill("stale-cache", None, 3, 1.0)]).to_markdown()
    assert text.startswith("## kvref: findings\n")
    assert "| target | held | broken | skipped | vacuous |" in text
    assert "| reference:growing | 1 | 0 | 1 | 1 |" in text
    assert str(broken.finding) in text
    assert f"- {EQUAL} is vacuous for reference:growing: never met: a prefill" in text
    assert "- bug stale-cache survived" in text


@pytest.mark.parametrize(("known", "code"), [(False, 1), (True, 0)])
def test_a_known_finding_is_shown_and_does_not_fail(broken: Outcome, held: Outcome, known: bool, code: int) -> None:
    expected = [Expected("cached-*", "bug:missing-*", "issue 7")] if known else []
    one = checked(broken, held, expected=expected)
    assert one.exit_code == code
    assert (json.loads(one.to_json())["outcomes"][0]["expected"] == "issue 7") == known
    assert ("(expected: issue 7)" in one.to_markdown()) == known
    assert one.to_markdown().startswith("## kvref: nothing new, 1 known finding\n" if known else "## kvref: findings\n")
    assert bool(one.annotations()) != known


def test_where_all_is_known_nothing_is_new(broken: Outcome, held: Outcome) -> None:
    known = [Expected("*", "*", "known")]
    assert checked(broken, expected=known).exit_code == 0
    assert checked(broken, replace(held, status=Status.SKIPPED), expected=known).exit_code == 0
    assert checked(broken, replace(held, status=Status.VACUOUS), expected=known).exit_code == 4
    assert checked(broken, expected=known, stopped=True).exit_code == 4
    assert checked(replace(held, status=Status.SKIPPED), expected=known).exit_code == 4


def test_only_what_holds_now_can_be_missed(broken: Outcome, held: Outcome) -> None:
    gone, there, elsewhere = Expected(EQUAL, "ref*", "a"), Expected(EQUAL, "bug:*", "b"), Expected("crop-*", "*", "c")
    assert unmet([broken, held], [gone, there, elsewhere]) == [gone]
    for status in (Status.SKIPPED, Status.VACUOUS, Status.CUT_SHORT, Status.UNDECIDED):
        assert not unmet([broken, replace(held, status=status)], [gone, there])


def test_what_ends_in_another_way_is_new(broken: Outcome) -> None:
    known = [Expected(EQUAL, "*", "known")]
    assert checked(broken, expected=known).exit_code == 0
    assert checked(replace(broken, status=Status.RAISED), expected=known).exit_code == 1
    assert (
        checked(replace(broken, status=Status.RAISED), expected=[Expected(EQUAL, "*", "it does", "raised")]).exit_code
        == 0
    )


def test_a_bug_that_survived_is_not_passed_over(broken: Outcome) -> None:
    known = [Expected("*", "*", "known")]
    assert checked(broken, expected=known, kills=[Kill("stale-cache", None, 3, 1.0)]).exit_code == 1


def test_a_gap_that_is_not_finite_is_json_too(broken: Outcome) -> None:
    assert broken.finding is not None
    endless = replace(broken.finding, divergence=replace(broken.finding.divergence, gap=math.inf))
    data = json.loads(checked(replace(broken, finding=endless)).to_json(), parse_constant=pytest.fail)
    assert data["outcomes"][0]["finding"]["gap"] == "inf"


def test_a_report_is_a_baseline(broken: Outcome, held: Outcome, tmp_path: Path) -> None:
    odd = replace(broken, target="model[0]*?")
    path = checked(odd, held).write(tmp_path / "deep" / "reports")[0]
    (known,) = expected_by_report(path)
    assert known.covers(odd)
    assert not known.covers(broken)
    assert not known.covers(held)
    assert known.reason == "known from report.json"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"outcomes": 3}', '{"outcomes": [{"law": 1, "finding": 1}]}'])
def test_what_is_no_report_is_no_baseline(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(BadInput, match=r"odd\.json is no report\.json that kvref wrote"):
        expected_by_report(tmp_path / "odd.json")
    with pytest.raises(BadInput, match="cannot be read"):
        expected_by_report(tmp_path / "nothing.json")


def test_annotations_are_few_and_in_one_line_each(broken: Outcome) -> None:
    lines = checked(*[broken] * 14).annotations()
    assert len(lines) == 10
    assert re.fullmatch(r"::error title=\S.* is broken by bug%3Amissing-position-offset%3Agrowing::step .*", lines[0])


def test_reports_hold_no_path_of_this_machine(broken: Outcome, held: Outcome) -> None:
    one = checked(broken, held)
    for text in (one.to_json(), one.to_markdown(), *one.annotations()):
        assert str(Path.cwd()) not in text
        assert str(Path.home()) not in text
        assert "\x1b" not in text


def project(folder: Path, table: str) -> None:
    (folder / "pyproject.toml").write_text(table)


@pytest.mark.parametrize(
    "table",
    [
        "[[tool.kvref.expected]]\n",
        '[[tool.kvref.expected]]\nlaw = "a"\n',
        '[[tool.kvref.expected]]\nlaw = "a"\nreason = ""\n',
        '[[tool.kvref.expected]]\nlaw = "a"\nreason = "b"\nuntil = 2026-12-01\n',
        '[[tool.kvref.expected]]\nlaw = "a"\nreason = "b"\nsince = 3\n',
        '[[tool.kvref.expected]]\nlaw = "a"\nreason = "b"\nstatus = "held"\n',
        '[tool.kvref.expected]\nlaw = "a"\n',
        "[tool.kvref]\nexpected = false\n",
        "[tool.kvref]\nexpected = [3]\n",
    ],
)
def test_a_table_that_expects_nothing_says_so(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path, table)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"tool\.kvref\.expected"):
        expected_by_project()


def test_a_gate_fails_for_what_is_new(kvref: Kvref, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bug, new and known: by its own report, and by the project."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    args = ("check", "bug:missing-position-offset", "--cache", "growing", "--examples", "12", "--law", EQUAL)
    code, out, _ = kvref(*args)
    assert (code, out.count("::error ")) == (1, 1)
    assert (tmp_path / "summary.md").read_text() == (tmp_path / ".kvref/report.md").read_text()
    assert json.loads((tmp_path / ".kvref/report.json").read_text())["exit_code"] == 1

    shared = (tmp_path / ".kvref/report.json").rename(tmp_path / "baseline.json")
    code, out, _ = kvref(*args, "--baseline", "baseline.json")
    assert (code, out.count("::error ")) == (0, 0)
    assert "expected: known from baseline.json" in out

    shared.unlink()
    table = f'[[tool.kvref.expected]]\nlaw = "{EQUAL}"\nreason = "issue 7"\nsince = 2026-11-30\n'
    project(tmp_path, table)
    code, out, _ = kvref(*args)
    assert code == 0
    assert "expected: issue 7, since 2026-11-30" in out
    code, out, _ = kvref("check", "reference:growing", *args[4:], "--dtype", "float64")
    assert code == 0
    assert f"no longer there, though expected: {EQUAL} by * (issue 7, since 2026-11-30)" in out


def test_where_no_report_can_be_written_the_check_says_so(kvref: Kvref, tmp_path: Path) -> None:
    (tmp_path / ".kvref").write_text("a file in the way")
    code, out, err = kvref("check", "reference:growing", "--examples", "6", "--law", EQUAL, "--dtype", "float64")
    assert (code, err) == (0, "")
    assert "no report in .kvref (File exists)" in out
