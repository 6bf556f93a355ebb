"""`kvref measure tests`: counts add up, both lenses try the same, and a run that is stopped keeps its rows."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from kvref.asked import Asked
from kvref.errors import BadInput
from kvref.law import EQUALITY, choose, law_called
from kvref.matrix.gate import Kill
from kvref.measure import tests_cli, tests_cost
from kvref.measure.growth import Fit
from kvref.measure.tests_cost import (
    BugsCost,
    Growth,
    LawCost,
    LengthCost,
    LensCost,
    Request,
    Row,
    Run,
    decoding,
    doublings,
    measure_tests,
    together,
    tried,
)
from kvref.search import Effort, search
from kvref.targets import Under
from kvref.tests.helpers import reference, try_law

pytestmark = pytest.mark.late

GROWING = Asked("reference", cache="growing", device="cpu")
POISON = "free-slots-do-not-matter"


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Tiny targets set torch to one thread, which other tests need not have."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def asked(*only: str, laws: tuple[str, ...] = (EQUALITY,), examples: int = 4, repeats: int = 2) -> Request:
    """A small request."""
    return Request(GROWING, laws, examples, repeats=repeats, only=only, bugs=2, lengths=(4, 8, 12))


def test_schedules_and_seconds_of_laws_add_up() -> None:
    *costs, whole = measure_tests(asked("laws", laws=(EQUALITY, "lengths-equal-the-tokens-given", POISON)))
    laws = [cost for cost in costs if isinstance(cost, LawCost)]
    assert isinstance(whole, LawCost)
    assert [cost.status for cost in laws] == ["held", "held", "skipped"]
    assert [[run.schedules for run in cost.runs] for cost in laws] == [[4, 4], [4, 4], [0, 0]]
    for number, run in enumerate(whole.runs):
        assert run.schedules == 8
        assert run.seconds == pytest.approx(sum(cost.runs[number].seconds for cost in laws))
        assert run.forward_seconds == pytest.approx(sum(cost.runs[number].forward_seconds for cost in laws))
    assert all(0 < run.forward_seconds < run.seconds for cost in (*laws[:2], whole) for run in cost.runs)


def test_a_law_costs_what_its_search_says() -> None:
    (cost, _) = measure_tests(asked("laws", examples=6))
    assert isinstance(cost, LawCost)
    outcome = search(law_called(EQUALITY), reference(), Effort(6, 0))
    assert {run.schedules for run in cost.runs} == {outcome.examples}


@pytest.mark.parametrize("lens", ["tile", "fold"])
def test_a_lens_and_ordinary_kernels_try_the_same_schedules(lens: str) -> None:
    request = Request(Asked("reference", cache="growing", device="cpu", lens=lens), (), 6, repeats=2, only=("lens",))
    costs = list(measure_tests(request))
    assert [isinstance(cost, LensCost) and cost.law for cost in costs] == list(tests_cost.COMPARED)
    for cost in costs:
        assert isinstance(cost, LensCost)
        assert cost.same
        assert [run.schedules for run in (*cost.lensed, *cost.native)] == 4 * [6]
        assert not any(run.broken or run.unable for run in (*cost.lensed, *cost.native))


def test_one_lens_is_exact_and_the_other_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = list[set[str]](), tried

    def noted(law: Any, target: Any, request: Request) -> Any:
        seen.append({decoder.lens.name for decoder in target.decoders()})
        assert all(bool(decoder.lens.bound) is not decoder.lens.exact for decoder in target.decoders())
        return real(law, target, request)

    monkeypatch.setattr(tests_cost, "tried", noted)
    list(measure_tests(asked("lens", examples=2)))
    # Not timed once each, and then each first every other time.
    assert seen == [{"tile"}, {"native"}, {"tile"}, {"native"}, {"native"}, {"tile"}]


def test_there_is_no_ratio_of_other_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tried

    def other(law: Any, target: Any, request: Request) -> Any:
        run, cases = real(law, target, request)
        return run, cases[1:] if isinstance(target, Under) else cases

    monkeypatch.setattr(tests_cost, "tried", other)
    (cost,) = measure_tests(asked("lens", examples=2))
    assert isinstance(cost, LensCost)
    assert not cost.same
    assert "NOT the same" in " ".join(cost.lines())


def test_what_breaks_is_counted_and_ends_nothing() -> None:
    request = Request(Asked("bug:missing-position-offset", device="cpu"), (EQUALITY,), 8, repeats=1, only=("lens",))
    (cost,) = measure_tests(request)
    assert isinstance(cost, LensCost)
    assert cost.same
    assert cost.lensed[0].schedules == cost.native[0].schedules == 8
    assert cost.lensed[0].broken > 1
    assert f"of these, under tile: {cost.lensed[0].broken} broken, 0 not done" in cost.tried()
    assert try_law(EQUALITY, "missing-position-offset", Effort(8, shrink=False)).examples < 8  # a search does end


def test_a_law_that_cannot_be_tried_is_skipped_under_both() -> None:
    (cost,) = measure_tests(asked("lens", laws=(POISON,)))
    assert isinstance(cost, LensCost)
    assert (cost.reason, cost.native) == ("the target offers no poison", ())
    assert "skipped" in cost.lines()[1]


@pytest.mark.parametrize("length", [2, 7, 64])
def test_a_schedule_of_a_length_has_as_many_tokens(length: int) -> None:
    schedule = decoding(length, 0)
    assert len(schedule.contents[-1][0].rows[0]) == length
    assert len(schedule.ops) == 2 + length - length // 2


def test_growth_with_length_is_fitted_to_the_medians_that_are_said() -> None:
    *costs, whole, inside = measure_tests(asked("length", repeats=3))
    assert [isinstance(cost, LengthCost) and cost.length for cost in costs] == [4, 8, 12]
    assert isinstance(whole, Growth)
    assert isinstance(inside, Growth)
    assert whole.sizes == inside.sizes == (4, 8, 12)
    assert whole.seconds == tuple(cost.seconds for cost in costs if isinstance(cost, LengthCost))
    assert all(inner <= outer for inner, outer in zip(inside.seconds, whole.seconds, strict=True))
    assert whole.fit.low <= whole.fit.exponent <= whole.fit.high


def test_the_gate_is_timed_on_more_and_more_of_the_same_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = list[list[str]]()

    def killed(bugs: Any, names: Any, effort: Effort, *_: Any, workers: int) -> Iterator[Kill]:
        assert (effort.examples, effort.shrink, workers, len(names)) == (60, False, 1, len(choose([])))
        asked_for.append(list(bugs))
        for number, bug in enumerate(bugs):
            yield Kill(bug, None if number == 2 else Any, 1, 0.0)  # pyright: ignore[reportArgumentType] only None counts

    monkeypatch.setattr(tests_cost, "kills", killed)
    *costs, last = measure_tests(Request(GROWING, bugs=5, repeats=1, only=("bugs",)))
    assert [(cost.bugs, cost.killed) for cost in costs if isinstance(cost, BugsCost)] == [
        (1, 1),
        (2, 2),
        (4, 3),
        (5, 4),
    ]
    assert isinstance(last, Growth)
    assert last.sizes == (1, 2, 4, 5)
    assert all(names == asked_for[-1][: len(names)] for names in asked_for)


def test_the_gate_kills_what_it_is_timed_on() -> None:
    costs = list(measure_tests(asked("bugs", repeats=1)))
    assert [(cost.bugs, cost.killed) for cost in costs if isinstance(cost, BugsCost)] == [(1, 1), (2, 2)]
    assert len(costs) == 2  # two sizes are no growth


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (16, [1, 2, 4, 8, 16])])
def test_bugs_are_doubled(most: int, sizes: list[int]) -> None:
    assert doublings(most) == sizes


def test_rows_come_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[str]()
    real = tests_cost.law_cost
    monkeypatch.setattr(tests_cost, "law_cost", lambda law, *rest: (begun.append(law.name), real(law, *rest))[1])
    rows = measure_tests(asked("laws", laws=(EQUALITY, POISON), examples=1))
    next(rows)
    assert begun == [EQUALITY]


def test_lines_fit_a_terminal() -> None:
    runs = (Run(1000, 99.0, 98.0), Run(1000, 9.0, 8.0, 500, 500))
    name = max((law.name for law in choose([])), key=len)
    rows: list[Row] = [
        LawCost("reference:growing", name, "cut short, held", runs),
        together([LawCost("reference:growing", name, "held", runs)]),
        LensCost("reference:growing", name, "tile", runs, runs),
        LengthCost("growing", 1024, (Run(1, 99.0, 98.0), Run(1, 9.0, 8.0))),
        BugsCost(76, 76, (1000.0, 2000.0)),
        Growth("growing, in the decoder: length", (1, 2, 3), (1.0, 2.0, 3.0), Fit(1.0, -10.0, 12.0)),
    ]
    assert not [line for row in rows for line in row.lines() if len(line) > 78]


BAD = {
    "no such law": (("--law", "nonesuch"), "there is no law 'nonesuch'"),
    "no such lens": (("--lens", "nonesuch"), "there is no lens 'nonesuch'"),
    "no such target": (("nonesuch",), "'nonesuch' is no target"),
    "no such part": (("--only", "nonesuch"), "nothing called 'nonesuch'"),
    "no example": (("--examples", "0"), "--examples is 0"),
    "no repeat": (("--repeats", "0"), "--repeats is 0"),
    "no bug": (("--bugs", "0"), "--bugs is 0"),
    "more bugs than there are": (("--bugs", "1000"), "the catalogue has"),
    "a file nowhere": (("--json", "none/rows.json"), "cannot be written"),
}


def command(*args: str) -> int:
    """The exit code of the command alone, in this process."""
    app = typer.Typer()
    app.command()(tests_cli.tests)
    return app([*args, "--device", "cpu"], standalone_mode=False) or 0


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    args, said = BAD[name]
    with pytest.raises(BadInput, match=said) as error:
        command(*args, *(() if "--json" in args else ("--json", "rows.json")))
    assert len(str(error.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


SMALL = ("--cache", "growing", "--law", EQUALITY, "--examples", "2", "--repeats", "1", "--json", "rows.json")


def test_a_run_says_and_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(*SMALL, "--only", "laws", "--only", "lens") == 0
    out = capsys.readouterr().out
    kept = json.loads(Path("rows.json").read_text())
    assert [row["row"] for row in kept["rows"]] == ["LawCost", "LawCost", "LensCost"]
    assert not kept["stopped"]
    assert kept["environment"]["torch"] == torch.__version__
    assert all(f"  {line}\n" in out for row in kept["rows"] for line in row["said"])
    assert "the same 2 schedules under both" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("done", [0, 1])
def test_a_run_that_is_stopped_has_said_and_keeps_its_rows(
    done: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    times, real = list[str](), tests_cost.law_cost

    def stopped(law: Any, *rest: Any) -> LawCost:
        if len(times) == done:
            assert ("a second  " in capsys.readouterr().out) == bool(done)  # said before the next is measured
            raise KeyboardInterrupt
        times.append(law.name)
        return real(law, *rest)

    monkeypatch.setattr(tests_cost, "law_cost", stopped)
    assert command(*SMALL, "--law", POISON) == tests_cli.STOPPED
    assert "stopped before the end; what is above was done\n" in capsys.readouterr().out
    kept = json.loads(Path("rows.json").read_text())
    assert kept["stopped"]
    assert [row["law"] for row in kept["rows"]] == times == [EQUALITY][:done]


def test_a_run_that_breaks_keeps_its_rows_and_is_not_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def broken(*_: Any) -> LensCost:
        raise RuntimeError("broken")

    monkeypatch.setattr(tests_cost, "lens_cost", broken)
    with pytest.raises(RuntimeError):
        command(*SMALL, "--only", "laws", "--only", "lens")
    kept = json.loads(Path("rows.json").read_text())
    assert kept["stopped"]
    assert len(kept["rows"]) == 2


def test_the_command_needs_no_torch_before_it_runs() -> None:
    code = "import sys, kvref.measure.tests_cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
