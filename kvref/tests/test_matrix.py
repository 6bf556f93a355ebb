"""The kill matrix as data: what its cells say, and how it is saved and read."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kvref.bug import catalogue
from kvref.errors import MatrixError
from kvref.law import Law, laws
from kvref.matrix import Cell, Mark, Matrix, read_matrix
from kvref.matrix.analysis import analyse
from kvref.matrix.gate import Kill
from kvref.matrix.record import Record, record
from kvref.matrix.reliability import upper_bound
from kvref.matrix.strength import Strength, recorded_strength, strength_of
from kvref.matrix.stryker import to_stryker
from kvref.matrix.worker import Job, tried
from kvref.operations import Extend, Poison, Start
from kvref.schedule import Schedule
from kvref.search import Effort, Outcome, Status
from kvref.targets import Bench

LOGITS, QUERIES = "cached-logits-equal-uncached-logits", "queries-are-not-stored"


@pytest.mark.parametrize("trials", [1, 20, 300])
def test_the_bound_without_a_miss_is_about_three_in_so_many(trials: int) -> None:
    bound = upper_bound(0, trials)
    assert bound == pytest.approx(1 - 0.05 ** (1 / trials))
    assert bound <= 3 / trials


@pytest.mark.parametrize(("misses", "trials", "bound"), [(1, 20, 0.21611), (2, 20, 0.28262), (5, 100, 0.10225)])
def test_the_bound_is_that_of_clopper_and_pearson(misses: int, trials: int, bound: float) -> None:
    assert upper_bound(misses, trials) == pytest.approx(bound, abs=1e-4)
    assert upper_bound(trials, trials) == 1.0


def test_the_bound_is_there_for_any_number_of_trials() -> None:
    assert upper_bound(1000, 2000) == pytest.approx(0.5 + 1.645 * 0.5 / 2000**0.5, abs=1e-3)
    assert upper_bound(0, 1_000_000) == pytest.approx(3e-6, rel=1e-2)


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
        (broken(("schema",), True), "schema True of a kill matrix is unknown"),
        (broken(("bugs",), []), "lists bugs and laws, each once"),
        (broken(("laws",), [LOGITS, LOGITS]), "lists bugs and laws, each once"),
        (broken(("cells", 0, "killed_after"), None), "stale-cache is killed under .* an impossible number of examples"),
        (broken(("cells", 0, "examples"), -1), "an impossible number of examples"),
        ("[" * 200_000, "no JSON"),
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
        assert path in ("kvref/cache.py", "kvref/gpt2.py", "kvref/masks.py")
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


RECORD = Record("torch 2.13.0", 60, 0, {"one": {"a": 3, "b": 20}, "two": {"b": 7}, "alive": {}})


def test_a_record_is_what_a_matrix_killed() -> None:
    kept = Record.of(SAVED, "torch 2.13.0")
    assert kept == Record("torch 2.13.0", 60, 0, {"stale-cache": {LOGITS: 5}, "unmasked-chunk": {}})
    assert Record.from_json(kept.to_json()) == kept
    assert kept.to_json().count("\n") == 5


@pytest.mark.parametrize(
    ("tried", "alive"),
    [
        ({}, ["one", "two", "alive"]),
        ({"a": 60}, ["two", "alive"]),
        ({"a": 2, "b": 19}, ["one", "alive"]),
        ({"b": 20}, ["alive"]),
    ],
)
def test_a_bug_survives_laws_that_kill_it_only_later(tried: dict[str, int], alive: list[str]) -> None:
    assert RECORD.alive(tried) == alive


def test_the_soonest_killer_comes_first() -> None:
    assert RECORD.killers("one") == ["a", "b"]
    assert RECORD.killers("unknown") == []


def test_the_record_is_of_this_catalogue_and_these_laws() -> None:
    assert list(record().kills) == [bug for bug in catalogue() if bug in record().kills]
    assert all(record().kills.values())


def test_a_law_says_that_it_is_redundant_where_every_bug_on_record_has_another_killer() -> None:
    needed = {law for kills in record().kills.values() if len(kills) == 1 for law in kills}
    told = {name for name, law in laws().items() if "Redundant on the catalogue, it stays" in in_one_line(law)}
    assert told == set(laws()) - needed


def test_every_law_kills_something_on_record() -> None:
    assert {law for kills in record().kills.values() for law in kills} == set(laws())


def in_one_line(law: Law) -> str:
    """The docstring of a law."""
    return " ".join((law.check.__doc__ or "").split())


@pytest.mark.parametrize("bug", list(catalogue())[::7])
def test_what_is_on_record_can_be_seen_again(bug: str) -> None:
    law = record().killers(bug)[-1]
    after = record().kills[bug][law]
    effort = Effort(record().examples, record().seed, shrink=False)
    assert tried(Job(bug, law, effort, Bench(), catalogue()[bug])).killed_after == after


def outcome(law: str, status: Status, examples: int) -> Outcome:
    """What came of a law, by name."""
    return Outcome(laws()[law], "mine", status, examples, asked=60)


def test_the_strength_of_a_check_counts_what_its_laws_kill() -> None:
    kept = Record("torch 2.13.0", 60, 0, {"one": {LOGITS: 3}, "two": {LOGITS: 20, QUERIES: 4}, "three": {}})
    outcomes = [outcome(LOGITS, Status.HELD, 8), outcome(QUERIES, Status.SKIPPED, 0)]
    assert str(recorded_strength(outcomes, kept, ["one", "new", "two", "three"])) == (
        "strength: 1 law kills 1 of 3 catalogued bugs, measured in the reference with torch 2.13.0, seed 0, "
        "up to 8 examples; alive: two, three; not measured yet: new"
    )
    outcomes = [outcome(LOGITS, Status.HELD, 200), outcome(QUERIES, Status.UNDECIDED, 60)]
    assert recorded_strength(outcomes, kept, []).alive == ("three",)


def test_a_finding_counts_what_would_have_been_drawn_and_a_crash_counts_nothing() -> None:
    kept = Record("torch 2.13.0", 60, 0, {"one": {LOGITS: 30}, "two": {QUERIES: 4}})
    found = replace(outcome(LOGITS, Status.BROKEN, 2), finding=cast("Any", object()))
    crashed = outcome(QUERIES, Status.RAISED, 60)
    assert recorded_strength([found, crashed], kept, []).alive == ("two",)
    assert recorded_strength([replace(found, asked=24)], kept, []).alive == ("one", "two")


def test_survivors_beyond_a_few_are_counted() -> None:
    assert str(Strength(2, 1, tuple("abcdefg"), "measured now")) == (
        "strength: 2 laws kill 1 of 8 catalogued bugs, measured now; alive: a, b, c, d, e and 2 more"
    )
    kills = [Kill("one", None, 3, 1.0), Kill("two", SAVED.cells[0], 1, 1.0)]
    assert strength_of(kills, 3) == Strength(3, 1, ("one",), "measured now")
