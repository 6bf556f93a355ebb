"""Diagnosis: probes that a healthy decoder answers rightly, a dictionary of how bugs answer, and who is like whom."""

import pytest

from kvref.bug import catalogue
from kvref.diagnosis.diagnose import compared, diagnose
from kvref.diagnosis.dictionary import SHAPE, dictionary, signatures_of
from kvref.diagnosis.probes import PROBES, program
from kvref.diagnosis.ranking import BROKEN, LAW, alike, known, place, rank
from kvref.diagnosis.symptoms import RIGHT, SAID, Symptom
from kvref.law import EQUALITY, laws
from kvref.matrix.record import record
from kvref.operations import Crop, Extend, Prefill, Start
from kvref.schedule import Schedule
from kvref.search import Effort, search
from kvref.tests.helpers import BENCH, reference


def test_a_line_of_the_notation_is_a_schedule() -> None:
    schedule = program("rows 2 room 9; prompts 3 1 more 1; crop 1; give 2", 50)
    start, prefill, crop, give = schedule.ops
    assert (start, crop) == (Start(2, 9), Crop(1))
    assert isinstance(prefill, Prefill)
    assert (list(map(len, prefill.tokens)), prefill.padding) == ([3, 1], 1)
    assert isinstance(give, Extend)
    assert list(map(len, give.tokens)) == [2, 2]
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_the_reference_answers_every_probe_rightly() -> None:
    healthy = signatures_of(None, BENCH)
    assert set(healthy["static"]) == set(PROBES) | {name + SAID for name in PROBES}
    assert set(healthy["growing"]) < set(healthy["static"])
    assert {answer for probes in healthy.values() for answer in probes.values()} == {RIGHT}


def test_the_dictionary_is_of_the_catalogue_and_as_measured() -> None:
    assert set(dictionary()) == set(catalogue())
    for name in sorted(catalogue())[::25]:
        assert signatures_of(catalogue()[name], BENCH) == dictionary()[name], name


def test_a_symptom_is_read_as_it_was_written() -> None:
    symptom = Symptom(2, "logits", "keys", "new", "within", "some", "first")
    assert Symptom.read(str(symptom)) == symptom
    assert Symptom.read(RIGHT) is None


ALIKE = [
    {"crop-keeps-the-buffer", "fused-projection-kept"},
    {"draft-accepted-past-its-first-error", "rows-rolled-back-to-one-length"},
    {"finished-row-keeps-writing", "last-logits-counted-without-padding"},
    {"last-token-never-cached", "pending-token-fed-twice"},
]
"""Bugs that no probe and no law tells apart: one thing in other ways."""


def test_every_bug_is_most_like_itself() -> None:
    bugs = known(dictionary(), record().kills, list(laws()), {})
    places = {bug: place(bug, rank(kinds[0], bugs)) for bug, kinds in bugs.items()}
    assert {bug for bug in places if places[bug] > 1} == set[str]().union(*ALIKE)
    assert max(places.values()) == 3


def test_a_bug_is_named_by_what_it_breaks() -> None:
    target = catalogue()["missing-position-offset"].target(BENCH)
    outcomes = [search(laws()[EQUALITY], target, Effort(shrink=False))]
    said = diagnose(target, outcomes)
    assert said is not None
    assert said.guesses[0].bug == "missing-position-offset"
    assert said.guesses[0].score > 0.9
    assert "looks like missing-position-offset" in str(said)
    assert "a guess" in str(said)


def test_nothing_is_said_of_a_target_that_breaks_nothing() -> None:
    target = reference()
    assert diagnose(target, [search(laws()[EQUALITY], target, Effort(4, shrink=False))]) is None


def test_what_is_like_no_bug_is_said_to_be() -> None:
    said = compared("mine", {"a prefill": RIGHT, "one token": "1 raised hidden any hidden all all"}, [])
    assert said.named == ()
    assert "looks like none of the catalogue's bugs" in str(said)


def test_what_one_side_was_not_asked_weighs_nothing() -> None:
    bugs = {
        "one": [{"p": "1 logits keys new within all all", LAW + "l": BROKEN}],
        "other": [{"p": RIGHT, LAW + "l": BROKEN}],
    }
    guesses = rank({"p": "1 logits keys new within all all"}, bugs)
    assert [(guess.bug, guess.score) for guess in guesses] == [("one", 1.0), ("other", 0.0)]
    half = rank({"p": "1 logits both new within all all"}, bugs)[0]
    hidden = rank({"p": "1 logits hidden any hidden all all"}, bugs)[0]
    assert 0.5 < half.score < hidden.score == 1.0


def test_what_goes_wrong_elsewhere_is_little_alike() -> None:
    wrong = "1 logits keys new within all all"
    assert alike("p", wrong, wrong) == 1.0
    assert alike("p", wrong, "1 logits keys new within some all") == 0.9
    assert alike("p", wrong, wrong.replace("1", "2")) == alike("p", wrong, "1 raised hidden any hidden all all") == 0.25
    assert alike("p", wrong, RIGHT) == alike(LAW + "l", BROKEN, RIGHT) == 0.0


@pytest.mark.parametrize(("held", "expected"), [(5, RIGHT), (8, BROKEN)])
def test_a_law_that_held_for_few_examples_clears_no_bug(held: int, expected: str) -> None:
    bugs = known({"b": {"static": {}}}, {"b": {"l": 7}}, ["l"], {"l": held})
    assert bugs["b"] == [{LAW + "l": expected}]


def test_probes_fit_the_reference_that_they_were_measured_in() -> None:
    schedules = [program(text, SHAPE.vocab_size) for text in PROBES.values()]
    assert len(set(schedules)) == len(PROBES)
