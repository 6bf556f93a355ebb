"""Cases: what a check finds can be read, changed, kept, explained, and played again."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kvref.case import FOUND, Case, Place, read_case, save_case
from kvref.lens import Lens
from kvref.operations import Crop, Extend, Prefill, Start
from kvref.schedule import Schedule
from kvref.tests.test_cli import kvref as kvref

EQUAL = "cached-logits-equal-uncached-logits"
CHECK = ("--law", EQUAL, "--examples", "12")

MINE = """
import torch
from kvref.config import GPTConfig
from kvref.gpt2 import GPT
from kvref.weights import loud

class Mine:
    vocab_size, block_size = 7, 10
    def __init__(self): self.model = loud(GPTConfig(10, 7, 1, 1, 4), 0, torch.float64)
    def full(self, tokens): return self.model(tokens)[0]
    def start(self, batch, capacity): return torch.zeros(batch, 0, dtype=torch.long)
    def step(self, cache, tokens):
        past, cache = cache.size(1), torch.cat([cache, tokens], dim=1)
        logits = self.full(cache)[:, past:]
        WRONG
        return logits, cache
"""
RIGHT, LATE, EARLY = "pass", "logits = logits + (past > 2)", "logits = logits + (past < 1)"
DIES = "assert past == 0"

CASE = Case(
    "mine.py:Mine --lens fold",
    EQUAL,
    "mine.py:Mine",
    Lens("promoted", torch.bfloat16, 1e-10),
    Schedule((Start(2, 8), Prefill(((1, 2), (3,)), 1), Extend(((4,), (5,))), Crop(0))),
    Place(3, 1, 2),
    "keys are not those",
    True,
    "bug: it is",
    "kvref 0",
)

Kvref = Callable[..., tuple[int, str, str]]


HERE = Case(
    "mine.py:Mine",
    EQUAL,
    "mine.py:Mine",
    Lens("tile", torch.float64),
    Schedule((Start(1), Extend(((0, 0, 0),)), Extend(((0,),)))),
    Place(3, 0, 3),
    "a logit is not that of one uncached pass",
)


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A case of a decoder of one's own, where a check puts what it finds."""
    write(tmp_path, LATE)
    return save_case(HERE, tmp_path / FOUND)


def write(folder: Path, wrong: str) -> None:
    """Write the decoder, with something wrong."""
    (folder / "mine.py").write_text(MINE.replace("WRONG", wrong))


def test_a_case_comes_back_as_it_was_written() -> None:
    assert Case.from_json(CASE.to_json()) == CASE


def test_the_number_of_a_case_is_of_what_it_asks() -> None:
    data: dict[str, Any] = json.loads(CASE.to_json())
    assert Case.from_json(json.dumps(data | {"seen": {}})).id == CASE.id
    assert Case.from_json(json.dumps(data | {"check": "reference"})).id != CASE.id


def test_a_case_is_readable(found: Path) -> None:
    lines = found.read_text().splitlines()
    assert ' "check": "mine.py:Mine",' in lines
    assert '   {"op": "start", "rows": 1, "capacity": null},' in lines
    assert max(map(len, lines)) < 400


@pytest.mark.parametrize(
    ("wrong", "result", "code"),
    [(LATE, "failed", 1), (EARLY, "moved", 1), (DIES, "moved", 1), (RIGHT, "fixed", 0)],
)
def test_a_case_tells_what_became_of_the_bug(
    kvref: Kvref, found: Path, tmp_path: Path, wrong: str, result: str, code: int
) -> None:
    write(tmp_path, wrong)
    ended, out, _ = kvref("replay", found.stem)
    assert (ended, out.split()[0]) == (code, result)
    assert ("it was: " in out) == (result == "moved")


def test_a_decoder_that_raised_and_still_does_has_failed(kvref: Kvref, tmp_path: Path) -> None:
    save_case(replace(HERE, raised=True), tmp_path / FOUND)
    for wrong, result in ((DIES, "failed"), ("assert past != 0", "moved"), (LATE, "moved"), (RIGHT, "fixed")):
        write(tmp_path, wrong)
        assert kvref("replay")[1].split()[0] == result


def test_a_case_that_ends_before_what_its_law_is_about_is_fixed_too(kvref: Kvref, tmp_path: Path) -> None:
    """The smallest schedule that breaks the law of full caches may fail long before the cache is full."""
    law = "what-fits-works-and-one-token-more-is-refused"
    save_case(replace(HERE, law=law), tmp_path / FOUND)
    for wrong, result, code in ((LATE, "failed", 1), (RIGHT, "fixed", 0)):
        write(tmp_path, wrong)
        ended, out, _ = kvref("replay")
        assert (ended, out.split()[0]) == (code, result)
    assert "at step 3 too, where it failed" in out


def test_what_a_check_finds_is_a_case_that_fails_and_is_fixed(kvref: Kvref, tmp_path: Path) -> None:
    write(tmp_path, LATE)
    code, out, _ = kvref("check", "mine.py:Mine", *CHECK)
    assert code == 1
    (path,) = (tmp_path / FOUND).iterdir()
    assert f"case      .kvref/cases/{path.name}; `kvref replay {path.stem}` plays it again" in out
    assert kvref("replay", path.stem)[0] == 1
    write(tmp_path, RIGHT)
    code, out, _ = kvref("replay", path.stem)
    assert (code, out.split()[0]) == (0, "fixed")
    assert "which meets: a prefill, one token onto a past" in out


def test_a_case_of_the_catalogue_is_played_in_the_dtype_that_showed_it(kvref: Kvref, tmp_path: Path) -> None:
    code, _, _ = kvref("check", "bug:missing-position-offset", "--cache", "growing", "--dtype", "bfloat16", *CHECK)
    assert code == 1
    (path,) = (tmp_path / FOUND).iterdir()
    assert read_case(path).lens == Lens("tile", torch.bfloat16)
    code, out, _ = kvref("replay")
    assert (code, out.split()[0]) == (1, "failed")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"check": "gone.py:Mine"}, "gone.py does not exist"),
        ({"check": "mine.py:Mine --dtype"}, "is no command"),
        ({"check": "mine.py:Mine --lens thick"}, "there is no lens 'thick'"),
        ({"law": "no-such-law"}, "there is no law 'no-such-law'"),
        ({"law": "crop-equals-never-having-appended"}, "the target offers no crop"),
        ({"decoder": "another"}, "has no decoder 'another'; the first is 'mine.py:Mine'"),
        ({"check": "reference --help"}, "it asks for help"),
        ({"schedule": {"schema": 1, "ops": [{"op": "start", "rows": 1}]}}, "meets none of the law's cases"),
        ({"schedule": {"schema": 1, "ops": []}}, "meets none of the law's cases"),
        ({"tokens": [[7]]}, "token 7 is in the schedule, and the vocabulary has 7"),
        ({"tokens": [[0] * 11]}, "the schedule leads to 11 tokens, and the decoder takes 10"),
    ],
)
def test_a_case_that_cannot_be_played_says_why(kvref: Kvref, found: Path, change: dict[str, Any], told: str) -> None:
    data: dict[str, Any] = json.loads(found.read_text())
    if "tokens" in change:
        ops = [{"op": "start", "rows": 1}, {"op": "extend", "tokens": change["tokens"]}]
        change = {"schedule": {"schema": 1, "ops": ops}}
    found.write_text(json.dumps(data | change))
    code, out, _ = kvref("replay")
    assert told in out
    assert (code, out.split()[0]) == (4, "error")


def test_a_schedule_that_a_law_cannot_be_asked_on_is_an_error(kvref: Kvref, found: Path) -> None:
    data: dict[str, Any] = json.loads(found.read_text())
    data["law"] = "a-second-request-equals-a-fresh-cache"
    data["check"] = data["decoder"] = "reference:growing"
    data["decoder"] += " (1 layer, 1 head of 4, block_size 8, vocab_size 7, weights 0, float64)"
    data["check"] += " --dtype float64"
    data["schedule"]["ops"] += [{"op": "start", "rows": 1}]
    found.write_text(json.dumps(data))
    code, out, _ = kvref("replay")
    assert (code, out.split()[0]) == (4, "error")
    assert "the law cannot be asked on this schedule" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("[]", 'it must be {"schema": 1'),
        ('{"schedule": 1, "schema": 2}', "schema 2 is unknown"),
        (CASE.to_json().replace("promoted", "glass"), "'lens' is {'name': 'glass'"),
        (CASE.to_json().replace("1e-10", "-1"), "a bound between 0 and 1"),
        (CASE.to_json().replace("1e-10", "NaN"), "a bound between 0 and 1"),
        (CASE.to_json().replace("1e-10", "1" + "0" * 400), "a bound between 0 and 1"),
        (CASE.to_json().replace("1e-10", "true"), "a bound between 0 and 1"),
        (CASE.to_json().replace("bfloat16", "int8"), "a dtype"),
        (CASE.to_json().replace('"bfloat16"', '["bfloat16"]'), "a dtype"),
        (CASE.to_json().replace(EQUAL, "\\ud800"), "'law' is '\\ud800'; it must be a text of one line"),
        (CASE.to_json().replace("mine.py:Mine --lens", "mine.py:Mine\\n--lens"), "must be a text of one line"),
        (CASE.to_json().replace(EQUAL, ""), "'law' is ''"),
        (CASE.to_json().replace('"step": 3', '"step": "three"'), "'step' is 'three'"),
        (CASE.to_json().replace("prefill", "fill"), "there is no operation 'fill'"),
        (CASE.to_json().replace('"length": 0', '"length": 9'), "step 4"),
    ],
)
def test_a_file_that_is_no_case_is_one_line_and_exits_with_2(
    kvref: Kvref, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "odd.json").write_text(text)
    for command in ("replay", "keep", "explain"):
        code, _, err = kvref(command, "odd.json")
        assert code == 2
        assert err.startswith("kvref: odd.json is no case: ")
        assert message in err
        assert len(err.splitlines()) == 1


def test_a_case_is_kept_where_one_likes(kvref: Kvref, found: Path, tmp_path: Path) -> None:
    code, out, _ = kvref("keep", found.stem[:5])
    assert (code, out) == (0, f"kvref-cases/{found.name}: `kvref replay kvref-cases/{found.name}` plays it again\n")
    assert kvref("keep", f"kvref-cases/{found.name}")[0] == 0  # it is there already
    assert kvref("keep", found.stem, "ci/cases")[0] == 0
    kept = [tmp_path / folder / found.name for folder in ("kvref-cases", "ci/cases")]
    assert all(read_case(path) == read_case(found) for path in kept)
    assert kvref("replay")[1].count("failed") == 1  # once, though it is there twice
    shutil.rmtree(tmp_path / ".kvref")
    assert kvref("replay")[0] == 1


def test_a_case_is_explained_with_its_law(kvref: Kvref, found: Path) -> None:
    code, out, _ = kvref("explain", found.stem)
    assert code == 0
    assert out.startswith(f"{EQUAL} is broken\n  check     mine.py:Mine\n")
    assert f"  replay    kvref replay .kvref/cases/{found.name}\n" in out
    assert "      ->" in out
    assert "This is what makes a cache an optimisation" in out


def test_laws_and_bugs_are_explained(kvref: Kvref) -> None:
    _, out, _ = kvref("explain", "no-operation-makes-logits-differ-from-uncached-ones")
    assert "needs lossless, and one of crop, crop_rows, fork, " in out
    assert "is about\n  tokens after another operation" in out
    _, out, _ = kvref("explain", "stale-cache")
    assert out.startswith("stale-cache (write)\n  wrong     ")
    assert "\n+++ stale-cache" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("replay",), "there is no case in .kvref/cases or kvref-cases"),
        (("replay", "12345678"), "there is no case '12345678'"),
        (("replay", ""), "there is no case ''"),
        (("keep", "nothing"), "there is no case 'nothing'"),
        (("explain", "stale-cash"), "there is no law, bug or case 'stale-cash'; did you mean stale-cache?"),
        (("explain", "x"), "there is no law, bug or case 'x'"),
        (("explain", "x.json"), "there is no case 'x.json'"),
        (("replay", 300 * "x"), "'xxx"),
    ],
)
def test_what_there_is_not_is_one_line_and_exits_with_2(kvref: Kvref, args: tuple[str, ...], message: str) -> None:
    code, _, err = kvref(*args)
    assert code == 2
    assert err.startswith(f"kvref: {message}")
    assert len(err.splitlines()) == 1


def test_digits_that_may_be_either_are_refused(kvref: Kvref, found: Path) -> None:
    shutil.copy(found, found.with_stem(f"{found.stem[:3]}zzz"))
    for command in ("replay", "keep", "explain"):
        code, _, err = kvref(command, found.stem[:3])
        assert code == 2
        assert f"may be {found.stem}, {found.stem[:3]}zzz; give more digits" in err


def test_where_nothing_can_be_written_the_check_goes_on(kvref: Kvref, tmp_path: Path) -> None:
    write(tmp_path, LATE)
    (tmp_path / ".kvref").write_text("a file in the way")
    code, out, err = kvref("check", "mine.py:Mine", *CHECK)
    assert (code, err) == (1, "")
    assert "case      not saved: .kvref/cases/" in out
