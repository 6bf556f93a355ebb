"""The kill matrix: what its cells say, that no bug can take the run along, and how it is saved and read."""

import json
import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from kvref.bug import Bug, catalogue
from kvref.cache import GrowingCache, Padding
from kvref.errors import MatrixError
from kvref.law import laws
from kvref.matrix import Cell, Mark, Matrix, read_matrix
from kvref.matrix import cli as matrix_cli
from kvref.matrix.analysis import analyse
from kvref.matrix.plan import WithReference, order, run, tracks_of
from kvref.matrix.reach import Seam, noting, seams
from kvref.matrix.reliability import Reliability, reliability, upper_bound
from kvref.matrix.stryker import to_stryker
from kvref.matrix.worker import Job, tried
from kvref.operations import Extend, Poison, Start
from kvref.schedule import Schedule
from kvref.search import Effort
from kvref.targets.reference import Part
from kvref.tests.helpers import BENCH
from kvref.tests.test_cli import run as run_cli

LOGITS, QUERIES = "cached-logits-equal-uncached-logits", "queries-are-not-stored"
EFFORT = Effort(examples=10, shrink=False)
BYTES = "bytes-equal-the-formula"


class Harmless(GrowingCache):
    @override
    def commit(self, new: int, padding: Padding | None = None) -> None:
        super().commit(new, padding)


class Raises(GrowingCache):
    @override
    def commit(self, new: int, padding: Padding | None = None) -> None:
        raise RuntimeError("no commit today")


class Hangs(GrowingCache):
    @override
    def commit(self, new: int, padding: Padding | None = None) -> None:
        time.sleep(1000)


class Leaves(GrowingCache):
    @override
    def commit(self, new: int, padding: Padding | None = None) -> None:
        os._exit(7)


class CannotBeMade(GrowingCache):
    @override
    def __init__(self) -> None:
        raise ValueError("not made")


def planted(part: Part) -> Bug:
    """A bug of our own."""
    return Bug(part, "write", "It is planted.", "always", ("https://github.com/a/b/issues/1",), "Look here.")


PLANTED = {part.__name__: planted(part) for part in (Hangs, Leaves, Raises, CannotBeMade, Harmless)}


def test_a_bug_that_hangs_dies_or_raises_costs_its_own_cells_alone() -> None:
    bugs = PLANTED | {"stale-cache": catalogue()["stale-cache"]}
    heard = list[Cell]()
    matrix = run(
        bugs, [LOGITS, QUERIES], EFFORT, BENCH, workers=2, max_seconds=12.0, tick=lambda _, cell: heard.append(cell)
    )
    marks = {bug: [cell.mark for cell in matrix.row(bug)] for bug in bugs}
    assert marks == {
        "Hangs": [Mark.TIMEOUT] * 2,
        "Leaves": [Mark.ERROR] * 2,
        "Raises": [Mark.ERROR] * 2,
        "CannotBeMade": [Mark.ERROR] * 2,
        "Harmless": [Mark.SURVIVED] * 2,
        "stale-cache": [Mark.KILLED, marks["stale-cache"][1]],
    }
    assert [cell.mark for cell in matrix.reference] == [Mark.SURVIVED] * 4
    assert sorted(map(repr, heard)) == sorted(map(repr, (*matrix.cells, *matrix.reference)))
    assert matrix.row("Hangs")[0].reason.startswith("not done after 12.")
    assert matrix.row("Leaves")[0].reason == "the process ended: exit code 7"
    assert "no commit today" in matrix.row("Raises")[0].reason
    killed = matrix.row("stale-cache")[0]
    assert killed.schedule is not None
    assert killed.killed_after is not None
    assert killed.killed_after <= killed.examples
    assert killed.killed_seconds is not None
    assert 0 < killed.killed_seconds < killed.seconds
    assert 0 < killed.forward_seconds < killed.seconds
    assert matrix.killers("stale-cache")[0] == LOGITS
    assert Matrix.from_json(matrix.to_json()) == matrix
    assert matrix_cli.exit_code(matrix) == 1


def test_a_gate_tries_the_reference_and_the_bug_on_no_more_than_it_needs() -> None:
    matrix = run({"stale-cache": catalogue()["stale-cache"]}, [LOGITS, QUERIES], EFFORT, BENCH, gate=True, workers=2)
    assert {cell.law for cell in (*matrix.cells, *matrix.reference)} == {LOGITS}
    assert matrix.unfinished() == []
    assert matrix_cli.exit_code(matrix) == 0


def test_a_gate_begins_with_the_laws_about_what_the_bug_overrides() -> None:
    class CropsNothing(GrowingCache):
        @override
        def crop(self, length: int) -> None:
            pass

    known = list(laws().values())
    first, *others = order(planted(CropsNothing), known)
    assert "crop" in first.needs
    assert sorted(law.name for law in (first, *others)) == sorted(laws())
    assert order(PLANTED["Harmless"], known) == known
    loops = [law.name for law in order(catalogue()["pending-token-fed-twice"], known)][:4]
    assert "a-conversation-gives-what-its-whole-text-gives" in loops
    assert "prefill" in order(catalogue()["padding-mask-added-to-scores"], known)[0].needs


def test_nothing_begins_once_the_reference_has_failed() -> None:
    bugs = {"Harmless": PLANTED["Harmless"]}
    known = [laws()[LOGITS], laws()[QUERIES]]
    tracks = tracks_of(bugs, known, EFFORT, BENCH, gate=False)
    plan = WithReference(tracks, [LOGITS, QUERIES], EFFORT, BENCH, gate=False)
    asked = [plan.take() for _ in range(3)]
    assert [job and job.subject for job in asked] == ["reference:growing", "reference:static", "reference:growing"]
    assert asked[0]
    assert asked[1]
    plan.done(asked[0], Cell(asked[0].subject, LOGITS, Mark.SKIPPED))
    plan.done(asked[1], Cell(asked[1].subject, LOGITS, Mark.KILLED))
    assert plan.take() is None


def test_a_law_is_not_tried_on_a_bug_before_the_reference_has_held_it() -> None:
    bugs = {"Harmless": PLANTED["Harmless"]}
    tracks = tracks_of(bugs, [laws()[LOGITS]], EFFORT, BENCH, gate=False)
    plan = WithReference(tracks, [LOGITS], EFFORT, BENCH, gate=False)
    references = [job for _ in range(2) if (job := plan.take())]
    assert plan.take() is None
    for job in references:
        plan.done(job, Cell(job.subject, job.law, Mark.SURVIVED, called=tuple(map(str, job.watched))))
    job = plan.take()
    assert job
    assert job.subject == "Harmless"


class CannotFork(GrowingCache):
    @override
    def fork(self) -> GrowingCache:
        raise RuntimeError("no fork today")


class CannotForkAndIsMarked(CannotFork):
    @override
    def fork(self) -> GrowingCache:
        return super().fork()

    marked = True


def test_a_bug_in_what_a_law_never_calls_is_not_tried_under_it() -> None:
    bugs = {"CannotFork": planted(CannotFork), "Marked": planted(CannotForkAndIsMarked)}
    forks = "a-fork-and-its-origin-never-meet"
    heard = list[Cell]()
    matrix = run(bugs, [LOGITS, forks], EFFORT, BENCH, workers=2, tick=lambda _, cell: heard.append(cell))
    marks = {bug: [cell.mark for cell in matrix.row(bug)] for bug in bugs}
    assert marks == {"CannotFork": [Mark.UNREACHED, Mark.ERROR], "Marked": [Mark.SURVIVED, Mark.ERROR]}
    assert sorted(map(repr, heard)) == sorted(map(repr, (*matrix.cells, *matrix.reference)))
    called = {cell.law: cell.called for cell in matrix.reference if cell.subject == "reference:growing"}
    assert called == {LOGITS: (), forks: ("kvref.cache.GrowingCache.fork",)}


def test_calls_are_noted_in_a_context_and_not_behind_it() -> None:
    before = vars(GrowingCache)["fork"]
    with noting([Seam(GrowingCache, "fork"), Seam(GrowingCache, "crop")]) as called:
        GrowingCache().fork()
    assert called == {"kvref.cache.GrowingCache.fork"}
    called.clear()
    GrowingCache().fork()
    assert not called
    assert vars(GrowingCache)["fork"] is before


def test_every_bug_of_the_catalogue_has_its_seam() -> None:
    for bug in catalogue().values():
        found = seams(bug)
        assert found
        (seam,) = found
        assert seam.name in vars(bug.part)
        assert seam.name in vars(seam.owner)
        assert seam.owner in bug.part.__mro__[1:]


def test_a_gate_tries_the_first_examples_of_each_law_and_then_all() -> None:
    known = [laws()[LOGITS], laws()[QUERIES]]
    track = tracks_of({"Harmless": PLANTED["Harmless"]}, known, Effort(examples=60), BENCH, gate=True)["Harmless"]
    assert [(job.law, job.effort.first) for job in track.jobs] == [
        (LOGITS, 16),
        (QUERIES, 16),
        (LOGITS, None),
        (QUERIES, None),
    ]
    for mark in (Mark.SURVIVED, Mark.SKIPPED):
        track.running += 1
        track.hear(Cell("Harmless", track.jobs.popleft().law, mark, seconds=1.0))
    assert [job.law for job in track.jobs] == [LOGITS]
    track.jobs.clear()
    track.running += 1
    track.hear(Cell("Harmless", LOGITS, Mark.KILLED, seconds=2.0))
    assert track.cells[LOGITS] == Cell("Harmless", LOGITS, Mark.KILLED, seconds=3.0)
    assert track.done


@pytest.mark.parametrize("first", [1, 4, 5, 12])
def test_a_round_of_few_examples_sees_the_first_of_those_of_a_whole_search(first: int) -> None:
    job = Job("stale-cache", LOGITS, EFFORT, BENCH, catalogue()["stale-cache"])
    whole, few = tried(job), tried(replace(job, effort=replace(EFFORT, first=first)))
    assert whole.killed_after is not None
    killed = first >= whole.killed_after
    assert few.mark is (Mark.KILLED if killed else Mark.SURVIVED)
    assert few.killed_after == (whole.killed_after if killed else None)
    assert few.schedule == (whole.schedule if killed else None)


def test_what_leaves_a_bug_alive_is_an_error_of_the_reference() -> None:
    job = Job("reference:growing", "crop-equals-never-having-appended", Effort(examples=1), BENCH)
    healthy, bug = tried(job), tried(replace(job, subject="Harmless", bug=PLANTED["Harmless"]))
    assert (healthy.mark, bug.mark) == (Mark.ERROR, Mark.SURVIVED)
    assert healthy.reason.startswith("vacuous: never met")


def test_reliability_counts_seeds() -> None:
    bugs = {"stale-cache": catalogue()["stale-cache"]}
    assert list(reliability(bugs, {"stale-cache": [LOGITS]}, EFFORT, BENCH, 3, workers=1)) == [
        Reliability("stale-cache", (LOGITS,), 3, 3)
    ]


@pytest.mark.parametrize("trials", [1, 20, 300])
def test_the_bound_without_a_miss_is_about_three_in_so_many(trials: int) -> None:
    bound = upper_bound(0, trials)
    assert bound == pytest.approx(1 - 0.05 ** (1 / trials))
    assert bound <= 3 / trials


@pytest.mark.parametrize(("misses", "trials", "bound"), [(1, 20, 0.21611), (2, 20, 0.28262), (5, 100, 0.10225)])
def test_the_bound_is_that_of_clopper_and_pearson(misses: int, trials: int, bound: float) -> None:
    assert upper_bound(misses, trials) == pytest.approx(bound, abs=1e-4)
    assert upper_bound(trials, trials) == 1.0


def row(bug: str, marks: str) -> list[Cell]:
    """Cells of a bug under the laws a, b, c and d, by the signs of the table; a blank is no cell."""
    signs = {"#": Mark.KILLED, ".": Mark.SURVIVED, "-": Mark.SKIPPED, "!": Mark.ERROR, "T": Mark.TIMEOUT}
    return [Cell(bug, law, signs[sign]) for law, sign in zip("abcd", marks, strict=True) if sign != " "]


def matrix_of(**rows: str) -> Matrix:
    """A matrix by the signs of its table."""
    return Matrix(tuple(rows), tuple("abcd"), tuple(cell for bug, marks in rows.items() for cell in row(bug, marks)))


def test_what_stands_out() -> None:
    found = analyse(matrix_of(one="..#.", all_="##-#", same="##!.", alike="##T.", alive="...."))
    assert found.survivors == ("alive",)
    assert found.fragile == {"one": "c"}
    assert found.trivial == ("all_",)
    assert found.twins == (("same", "alike"),)
    assert found.idle == ()
    assert found.needed == {"c": ("one",)}
    assert found.redundant == ("a", "b", "d")
    assert found.enough == ("a", "c")


def test_a_law_that_kills_nothing_is_idle_and_not_redundant() -> None:
    found = analyse(matrix_of(one="#...", other="#-.."))
    assert found.idle == ("b", "c", "d")
    assert found.redundant == ()
    assert found.enough == ("a",)


def test_what_is_unfinished() -> None:
    matrix = matrix_of(one="#   ", other=".  .", whole="-..!")
    assert matrix.unfinished() == ["one", "other"]
    assert replace(matrix, gate=True).unfinished() == ["other"]
    assert matrix.survivors() == ["other", "whole"]


SCHEDULE = Schedule((Start(2), Extend(((1,), (2,))), Poison(math.inf)))
SAVED = Matrix(
    ("stale-cache", "unmasked-chunk"),
    (LOGITS, QUERIES),
    (
        Cell("stale-cache", LOGITS, Mark.KILLED, "", 6, 5, 0.25, 0.5, 0.125, SCHEDULE, "step 2: it differs", "keys"),
        Cell("stale-cache", QUERIES, Mark.ERROR, "raised: step raised RuntimeError", 60, seconds=1.0),
        Cell("unmasked-chunk", LOGITS, Mark.SURVIVED, examples=60, seconds=1.0),
        Cell("unmasked-chunk", QUERIES, Mark.SKIPPED, "the target offers no tensors"),
    ),
    (Cell("reference:growing", LOGITS, Mark.SURVIVED),),
    examples=60,
    seconds=3.5,
    version="0.1.0",
)


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "matrix.json").write_text(SAVED.to_json())
    assert read_matrix(tmp_path / "matrix.json") == SAVED
    assert json.loads(SAVED.to_json())["schema"] == 1


def broken(path: tuple[str | int, ...], value: object) -> str:
    """A saved matrix with one value wrong; `...` takes it out."""
    data = json.loads(SAVED.to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[]", "a kill matrix is no JSON object"),
        (broken(("schema",), 2), "schema 2 of a kill matrix is unknown; this kvref reads 1"),
        (broken(("laws",), ...), "the matrix has no 'laws'"),
        (broken(("laws",), [1]), "'laws' has something that is no name"),
        (broken(("seed",), "0"), "'seed' of the matrix is '0'"),
        (broken(("seed",), True), "'seed' of the matrix is True"),
        (broken(("cells", 0), 3), r"cells\[0\] is no JSON object"),
        (broken(("cells", 0, "mark"), "dead"), r"cells\[0\]: there is no mark 'dead'; there are killed"),
        (broken(("cells", 0, "schedule", "ops"), [{"op": "jump"}]), r"cells\[0\]: there is no operation 'jump'"),
        (broken(("cells", 1, "law"), "gravity"), "about stale-cache and gravity, which the matrix does not list"),
        (broken(("cells", 1, "law"), LOGITS), "two cells are about the same bug and law"),
    ],
)
def test_what_is_no_matrix_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(MatrixError, match=message):
        Matrix.from_json(text)


def test_a_mutation_testing_report_has_each_bug_where_the_reference_is_right() -> None:
    report = json.loads(to_stryker(SAVED, catalogue()))
    assert report["schemaVersion"] == "2"
    assert {"high", "low"} == report["thresholds"].keys()
    mutants = {mutant["id"]: mutant for file in report["files"].values() for mutant in file["mutants"]}
    assert mutants.keys() == set(SAVED.bugs)
    for path, file in report["files"].items():
        assert file["language"] == "python"
        for mutant in file["mutants"]:
            start, end = mutant["location"]["start"], mutant["location"]["end"]
            lines = file["source"].splitlines()[start["line"] - 1 : end["line"]]
            assert lines[0][start["column"] - 1 :].startswith("def ")
            assert len(lines[-1]) == end["column"] - 1
            assert "def " in mutant["replacement"]
        assert path in ("kvref/cache.py", "kvref/gpt2.py")
    killed, survived = mutants["stale-cache"], mutants["unmasked-chunk"]
    assert (killed["status"], killed["killedBy"], killed["coveredBy"]) == ("Killed", [LOGITS], [LOGITS, QUERIES])
    assert killed["mutatorName"] == "write"
    assert killed["statusReason"] == f"{LOGITS}: step 2: it differs"
    assert (survived["status"], survived["killedBy"], survived["coveredBy"]) == ("Survived", [], [LOGITS])
    tests = [test["id"] for file in report["testFiles"].values() for test in file["tests"]]
    assert sorted(tests) == sorted(SAVED.laws)


@pytest.mark.parametrize(
    ("marks", "status"),
    [(".#!T", "Killed"), (".!T-", "Survived"), ("T!--", "Timeout"), ("!---", "RuntimeError"), ("----", "NoCoverage")],
)
def test_a_status_says_the_most_telling(marks: str, status: str) -> None:
    from kvref.matrix.stryker import status as status_of

    matrix = matrix_of(bug=marks)
    assert status_of(matrix, "bug") == status
    cut = replace(matrix, cells=matrix.cells[:1], stopped=True)
    assert status_of(cut, "bug") == "Pending"


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
