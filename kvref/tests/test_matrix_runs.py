"""Runs of the kill matrix: the reference first, no bug takes the run along, and a gate tries no more than it needs."""

import os
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from typing_extensions import override

from kvref.bug import Bug, catalogue
from kvref.cache import GrowingCache, Padding
from kvref.generate import Session
from kvref.gpt2 import GPT
from kvref.law import laws
from kvref.matrix import Cell, Mark, Matrix
from kvref.matrix import cli as matrix_cli
from kvref.matrix.plan import WithReference, order, run, tracks_of
from kvref.matrix.reach import Seam, noting, seams
from kvref.matrix.record import record
from kvref.matrix.reliability import Reliability, Repeats, reliability
from kvref.matrix.worker import Job, tried
from kvref.protocol import Tokens
from kvref.search import Effort
from kvref.targets.reference import Part
from kvref.tests.helpers import BENCH
from kvref.tests.test_matrix import LOGITS, QUERIES

EFFORT = Effort(examples=10, shrink=False)


class Harmless(GrowingCache):
    @override
    def commit(self, new: int) -> None:
        super().commit(new)


class Raises(GrowingCache):
    @override
    def commit(self, new: int) -> None:
        raise RuntimeError("no commit today")


class Hangs(GrowingCache):
    @override
    def commit(self, new: int) -> None:
        time.sleep(1000)


class Leaves(GrowingCache):
    @override
    def commit(self, new: int) -> None:
        os._exit(7)


class CannotBeMade(GrowingCache):
    @override
    def __init__(self) -> None:
        raise ValueError("not made")


def planted(part: Part) -> Bug:
    """A bug of our own."""
    return Bug(part, "write", "It is planted.", "always", ("https://github.com/a/b/issues/1",), "Look here.")


class FeedsNothing(Session):
    @override
    def feed(self, tokens: Tokens) -> Tensor:
        return torch.zeros(1, 1)


class HidesNothing(GPT):
    @override
    def attention_mask(self, past: int, new: int, padding: Padding | None) -> Tensor | None:
        return self.causal_mask(past, new)


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
        "stale-cache": [Mark.KILLED] * 2,
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
    (killed,) = matrix.cells
    assert killed.law in (LOGITS, QUERIES)
    assert [cell.law for cell in matrix.reference] == [killed.law] * 2
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
    loops = [law.name for law in order(planted(FeedsNothing), known)][:4]
    assert "a-conversation-gives-what-its-whole-text-gives" in loops
    assert "prefill" in order(planted(HidesNothing), known)[0].needs


def test_a_gate_begins_with_the_law_on_record_that_kills_soonest() -> None:
    known = list(laws().values())
    ordered = order(catalogue()["stale-cache"], known)
    killers = record().killers("stale-cache")
    assert [law.name for law in ordered][: len(killers)] == killers
    others = [law for law in known if law.name not in killers]
    assert ordered[len(killers) :] == others


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
    effort = Effort(examples=20, shrink=False)
    matrix = run(bugs, [LOGITS, forks], effort, BENCH, workers=2, tick=lambda _, cell: heard.append(cell))
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


def test_the_reference_may_be_cut_short_where_only_its_first_examples_are_asked_for() -> None:
    job = Job("reference:growing", "crop-equals-never-having-appended", Effort(first=2), BENCH)
    cell = tried(job)
    assert (cell.mark, cell.examples) == (Mark.SURVIVED, 2)
    assert cell.reason.startswith("cut short")


def test_reliability_goes_on_with_the_law_that_kills_soonest() -> None:
    bugs = {"stale-cache": catalogue()["stale-cache"]}
    plan = Repeats(bugs, {"stale-cache": ["slow", "quick", "misses"]}, EFFORT, BENCH, 6)
    seconds, tried = {"slow": 3.0, "quick": 1.0, "misses": 0.6}, list[tuple[int, str]]()
    while job := plan.take():
        tried.append((job.effort.seed, job.law))
        mark = Mark.SURVIVED if job.law == "misses" else Mark.KILLED
        plan.done(job, Cell(job.subject, job.law, mark, seconds=seconds[job.law]))
    assert tried == [(1, "slow"), (2, "quick"), (3, "misses"), *((seed, "quick") for seed in (3, 4, 5, 6))]
    assert (plan.left, plan.killed) == ({"stale-cache": 0}, {"stale-cache": 6})


def test_a_seed_misses_only_where_every_law_does() -> None:
    bugs = {"stale-cache": catalogue()["stale-cache"]}
    plan = Repeats(bugs, {"stale-cache": ["one", "other"]}, EFFORT, BENCH, 2)
    while job := plan.take():
        killed = (job.law, job.effort.seed) == ("other", 2)
        plan.done(job, Cell(job.subject, job.law, Mark.KILLED if killed else Mark.SURVIVED, seconds=1.0))
    assert (plan.left, plan.killed) == ({"stale-cache": 0}, {"stale-cache": 1})


def test_a_seed_that_could_not_be_tried_is_no_miss() -> None:
    bugs = {"Leaves": PLANTED["Leaves"]}
    (row,) = reliability(bugs, {"Leaves": [LOGITS, QUERIES]}, EFFORT, BENCH, 2, workers=1)
    assert (row.seeds, row.killed, row.failed) == (2, 0, 2)
    assert row.reason == "the process ended: exit code 7"


def test_reliability_counts_seeds() -> None:
    bugs = {"stale-cache": catalogue()["stale-cache"]}
    assert list(reliability(bugs, {"stale-cache": [LOGITS]}, EFFORT, BENCH, 3, workers=1)) == [
        Reliability("stale-cache", (LOGITS,), 3, 3)
    ]
