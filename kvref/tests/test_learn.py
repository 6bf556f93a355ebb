"""The course at a terminal: its folder, what a student is told, and the loop that watches files."""

import inspect
import json
import os
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from tokenize import COMMENT
from typing import Any

import pytest
import torch

from kvref.bug import catalogue, source
from kvref.errors import BadInput
from kvref.learn import folder as folders
from kvref.learn import session, watch
from kvref.learn.course import CHAPTERS, chapter_of, repairs
from kvref.learn.exercises import Answer, exercises, file_name
from kvref.learn.folder import PROGRESS, Folder, Progress, make
from kvref.learn.judge import judge
from kvref.learn.repair import Method, solution, start
from kvref.learn.repairs import Repair, repair_exercises
from kvref.search import Effort, search
from kvref.targets import Bench
from kvref.tests.test_cli import kvref as kvref

pytestmark = pytest.mark.late

REPAIRS = {each.name: each for each in repair_exercises()}
FEW = ("why-1", "positions-1", "masks-2")


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few exercises alone, which costs no searches for findings."""
    few = {name: REPAIRS[name] for name in FEW}
    monkeypatch.setattr(folders, "exercises", lambda: few)
    path = tmp_path / "course"
    make(path)
    return path


def file_of(name: str, course: Path) -> Path:
    """The file of an exercise."""
    return course / file_name(REPAIRS[name])


def solve(name: str, course: Path) -> None:
    """Write the solution of an exercise over its file."""
    file_of(name, course).write_text(REPAIRS[name].solution())


def test_every_repair_is_of_the_catalogue_and_there_are_enough() -> None:
    made_from = list(repairs().values())
    assert set(made_from) <= set(catalogue())
    assert len(set(made_from)) == len(made_from) >= 20
    assert all(chapter.repairs for chapter in CHAPTERS)


@pytest.mark.parametrize("name", REPAIRS)
def test_nothing_in_a_repair_names_its_bug(name: str) -> None:
    exercise, bug = REPAIRS[name], REPAIRS[name].bug
    text = exercise.start()
    comments = [token.string for token in tokenize.generate_tokens(StringIO(text).readline) if token.type == COMMENT]
    assert not comments
    for secret in (bug.name, bug.name.replace("-", "_"), bug.part.__name__, bug.wrong, bug.trigger, bug.hint):
        assert secret.lower() not in text.lower()
    assert text != exercise.solution()
    compile(text, name, "exec")


@pytest.mark.parametrize("name", REPAIRS)
def test_a_solution_is_the_method_of_the_reference(name: str) -> None:
    # So it holds under every law, as the reference does; `kvref teach check` tries it.
    bug = REPAIRS[name].bug
    body = [f"    {line}" for line in source(Method.of(bug).right)[1:]]
    assert body == solution(bug, "Heading").splitlines()[-len(body) :]
    assert start(bug, "Heading") != solution(bug, "Heading")


def test_a_name_that_there_is_not_gets_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean positions-1"):
        chapter_of("postions-1")


PICTURES = {
    "positions-1": ("position ids   expected 1", "position ids   yours    0"),
    "masks-2": ("keys seen      expected   yours   (# seen, . not)", "token 1        ##.        #.."),
    "masks-4": ("token 1        ##         ########",),
    "writing-2": ("cached tokens  =x",),
    "batching-1": ("token 1        .#         #.",),
    "why-1": ("cached tokens  =xx ",),
    "why-2": ("cached tokens  xx ",),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_repair_shows_what_the_wrong_step_did(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(REPAIRS[name].start())
    answer = REPAIRS[name].judge(path)
    assert not answer.solved
    assert answer.score == 0.0
    for line in PICTURES[name]:
        assert any(said.startswith(line) for said in answer.lines), answer.lines
    assert all(len(line) <= 80 and line.isprintable() for line in answer.lines)
    assert any("->" in line for line in answer.lines)
    assert len(answer.hints) == 3
    assert REPAIRS[name].bug.hint in answer.hints


def test_a_cache_that_cannot_be_looked_at_has_no_picture_of_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(method("commit(self, new)", "pass", "GrowingCache"))
    answer = REPAIRS["why-1"].judge(path)
    assert not answer.solved
    assert answer.lines[0].startswith("law ")


BAD = {
    "a syntax error": ("def", "SyntaxError"),
    "an empty file": ("", "has no 'Mine'"),
    "another class": ("class Mine: pass", "has no class Mine that derives from"),
    "no method": ("from kvref.gpt2 import GPT\nclass Mine(GPT): pass", "Mine has no position_ids"),
    "an exit": ("import sys; sys.exit(0)", "SystemExit"),
}


def test_annotations_and_helpers_are_welcome(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    solution = (
        REPAIRS["why-1"].solution().replace("def commit(self, new)", "def commit(self: GrowingCache, new: int) -> None")
    )
    helper = (
        "def helper(self) -> 'GrowingCache':\n        return GrowingCache() if isinstance(self, GrowingCache) else self"
    )
    wrapped = solution.replace("    def commit", "    @torch.no_grad()\n    def commit").replace(
        '"""\n\n', '"""\n\nimport torch\n', 1
    )
    shown = "def __repr__(self):\n        return 'mine'\n\n\nclass Note:\n    def __init__(self):\n        self.n = 0"
    path.write_text(f"{wrapped}\n    {helper}\n\n    {shown}\n")
    assert REPAIRS["why-1"].judge(path).solved


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_tried_gets_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text, said = BAD[name]
    path.write_text(text)
    with pytest.raises(BadInput, match=said) as raised:
        REPAIRS["positions-1"].judge(path)
    assert "\n" not in str(raised.value)


def test_a_repair_that_breaks_something_else_is_not_solved(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(REPAIRS["positions-1"].solution().replace(".clamp(min=0)", ""))
    answer = REPAIRS["positions-1"].judge(path)
    assert not answer.solved


def test_a_method_that_raises_is_not_solved_and_told_where_with_what_it_printed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from kvref.gpt2 import GPT\nclass Mine(GPT):\n    def position_ids(self, past, new, padding=None):\n"
        "        if past:\n            print('here', past)\n            raise ValueError('nothing yet')\n"
        "        return super_positions(new)\n"
        "def super_positions(new):\n    import torch\n    return torch.arange(new)\n"
    )
    answer = REPAIRS["positions-1"].judge(path)
    assert not answer.solved
    assert any("nothing yet" in line for line in answer.lines)
    assert "line      6: raise ValueError('nothing yet')" in answer.lines
    assert "printed   here 1" in answer.lines


@pytest.mark.parametrize("name", REPAIRS)
def test_the_last_hint_shows_what_is_wrong(name: str) -> None:
    exercise = REPAIRS[name]
    last = exercise.hints("look")[-1]
    assert exercise.bug.trigger in last
    lines = [line for line in exercise.start().splitlines() if f"`{line.strip()}`" in last and line.strip()]
    assert lines


@pytest.mark.parametrize("name", sorted(exercises()))
def test_what_is_to_be_read_fits_a_terminal(name: str) -> None:
    text = exercises()[name].start().split('"""')[1]
    long = [line for line in text.splitlines() if len(line) > 80 and not line.startswith("    decoder.")]
    assert not long
    assert f"kvref learn test {name}" in text or exercises()[name].kind == "explain"


def test_what_a_folder_says_fits_a_terminal(course: Path) -> None:
    assert all(len(line) <= 80 for line in (course / "README.md").read_text().splitlines())


def method(name: str, body: str, base: str, more: str = "") -> str:
    """A file whose class has one method."""
    module = {"GPT": "gpt2", "Session": "generate", "Speculation": "speculate"}.get(base, "cache")
    return (
        f"from kvref.{module} import {base}\nimport torch\nclass Mine({base}):\n    def {name}:\n        {body}\n{more}"
    )


UNDONE = {
    "refuses to crop": ("lifetime-2", method("crop(self, length)", "raise NotImplementedError", "StaticCache")),
    "refuses to fork": ("sharing-1", method("fork(self)", "raise NotImplementedError", "StaticCache")),
    "refuses turns": ("counting-1", method("feed(self, tokens)", "raise NotImplementedError", "Session")),
    "has no positions": (
        "positions-1",
        method("position_ids(self, past, new, padding=None)", "return torch.zeros(new, dtype=torch.long)", "GPT"),
    ),
    "sees itself alone": (
        "masks-1",
        method(
            "causal_mask(self, past, new)", "return torch.ones(new, past + new).tril(past).triu(past).bool()", "GPT"
        ),
    ),
    "accepts no draft": ("counting-4", method("accepted(self, draft, choice)", "return 0", "Speculation")),
}


@pytest.mark.parametrize("way", UNDONE)
def test_what_does_less_or_is_another_model_is_no_repair(way: str, tmp_path: Path) -> None:
    name, text = UNDONE[way]
    path = tmp_path / "mine.py"
    path.write_text(text)
    answer = REPAIRS[name].judge(path)
    assert not answer.solved
    assert answer.lines[0].startswith("law" if name == "counting-4" else "unlike")
    assert len(answer.hints) == 3
    assert all(len(line) <= 80 for line in answer.lines)


def test_a_capability_that_is_refused_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = REPAIRS["lifetime-5"].solution()
    path.write_text(f"{text}\n    refuses = {{'peek': 'not today'}}\n")
    answer = REPAIRS["lifetime-5"].judge(path)
    assert not answer.solved
    assert "peek" in answer.lines[0]


@pytest.mark.parametrize("name", [name for name in REPAIRS if "super()" in inspect.getsource(REPAIRS[name].bug.part)])
def test_a_call_of_the_reference_is_written_out_and_goes_wrong_alike(name: str, tmp_path: Path) -> None:
    exercise = REPAIRS[name]
    path = tmp_path / "mine.py"
    path.write_text(exercise.start())
    assert "super()" not in path.read_text()
    mine = judge(path, exercise.bug).broken
    assert mine is not None
    theirs = search(mine.law, exercise.bug.target(Bench(dtypes=(torch.float32,))), Effort(examples=mine.asked))
    assert mine.finding is not None
    assert theirs.finding is not None
    assert str(mine.finding.schedule) == str(theirs.finding.schedule)
    assert str(mine.finding.divergence) == str(theirs.finding.divergence)


def test_a_folder_has_every_file_and_says_what_to_do(course: Path) -> None:
    readme = (course / "README.md").read_text()
    for name in FEW:
        assert file_of(name, course).read_text() == REPAIRS[name].start()
        assert f"`{name}`" in readme
    assert json.loads((course / PROGRESS).read_text())["solved"] == {}


def test_a_folder_that_is_not_empty_is_left_alone(course: Path) -> None:
    before = (course / "README.md").read_text()
    with pytest.raises(BadInput, match="not empty"):
        make(course)
    assert (course / "README.md").read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 9}',
        '{"schema": 1, "solved": 3}',
        '{"schema": 1, "solved": []}',
        '{"schema": 1, "skipped": null}',
        '{"schema": 1, "hints": {"positions-1": "x"}}',
        '{"schema": 1, "other": {}}',
        "[" * 100000,
    ],
)
def test_progress_that_cannot_be_read_is_said(course: Path, text: str) -> None:
    (course / PROGRESS).write_text(text)
    with pytest.raises(BadInput, match="cannot be read"):
        Folder(course)


def test_the_next_exercise_is_the_first_that_is_left(course: Path) -> None:
    folder = Folder(course)

    def current() -> str:
        found = Folder(course).current()
        return found.name if found else ""

    assert current() == "why-1"
    folder.solve(REPAIRS["why-1"])
    assert current() == "positions-1"
    folder.skip(REPAIRS["positions-1"])
    assert current() == "masks-2"
    folder.solve(REPAIRS["masks-2"])
    assert current() == "positions-1"
    folder.solve(REPAIRS["positions-1"])
    assert current() == ""


def test_a_reset_keeps_what_was_written(course: Path) -> None:
    folder, path = Folder(course), file_of("why-1", course)
    path.write_text("mine")
    folder.solve(REPAIRS["why-1"])
    kept = folder.reset(REPAIRS["why-1"])
    assert kept is not None
    assert folder.reset(REPAIRS["why-1"]) is None  # what was given is not kept
    path.write_text("mine too")
    assert (kept2 := folder.reset(REPAIRS["why-1"])) is not None
    assert (kept2.name, kept2.read_text()) == ("why_1.py.mine1", "mine too")
    assert (kept.read_text(), path.read_text()) == ("mine", REPAIRS["why-1"].start())
    assert Folder(course).progress == Progress()
    path.unlink()
    with pytest.raises(BadInput, match="kvref learn reset why-1"):
        folder.file(REPAIRS["why-1"])


def test_a_file_that_cannot_be_given_back_is_said(course: Path) -> None:
    path = file_of("why-1", course)
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()
    with pytest.raises(BadInput, match="cannot be written"):
        Folder(course).reset(REPAIRS["why-1"])


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_whatever_is_in_the_place_of_a_file_is_moved_aside(make: Callable[[Path], None], course: Path) -> None:
    path = file_of("why-1", course)
    path.unlink()
    make(path)
    assert (kept := Folder(course).reset(REPAIRS["why-1"])) is not None
    assert os.path.lexists(kept)
    assert path.read_text() == REPAIRS["why-1"].start()


def test_what_another_command_has_noted_meanwhile_is_not_lost(course: Path) -> None:
    mine, other = Folder(course), Folder(course)
    other.solve(REPAIRS["why-1"])
    mine.skip(REPAIRS["positions-1"])
    mine.hint(REPAIRS["masks-2"], ("one", "b", "c"))
    now = Folder(course).progress
    assert (list(now.solved), now.skipped, now.hints) == (["why-1"], ["positions-1"], {"masks-2": 1})


def test_what_was_left_for_later_and_is_solved_is_left_no_more(course: Path) -> None:
    folder = Folder(course)
    folder.skip(REPAIRS["why-1"])
    folder.solve(REPAIRS["why-1"])
    assert Folder(course).progress.skipped == []


def test_a_set_that_was_handed_out_is_all_there_is(course: Path) -> None:
    (course / folders.RELEASE).write_text('{"exercises": {"positions-1": {}}}')
    folder = Folder(course)
    assert list(folder.exercises) == ["positions-1"]
    folder.solve(REPAIRS["positions-1"])
    assert folder.current() is None
    for text in ("{", "[]", '{"exercises": ["masks-99"]}', '{"exercises": []}', "[" * 100000):
        (course / folders.RELEASE).write_text(text)
        with pytest.raises(BadInput, match=r"release\.json (cannot be read|has no exercises)"):
            Folder(course)


def test_another_failure_has_its_hints_anew(course: Path) -> None:
    folder, exercise = Folder(course), REPAIRS["why-1"]
    assert [folder.hint(exercise, ("one", "b", "c"))[0] for _ in range(3)] == [1, 2, 3]
    assert folder.hint(exercise, ("two", "b", "c")) == (1, "two")
    assert Folder(course).hint(exercise, ("two", "b", "c")) == (2, "b")


def test_a_save_is_judged_and_leads_to_the_next(course: Path) -> None:
    said = list[str]()
    folder = Folder(course)
    assert not session.judged(folder, REPAIRS["positions-1"], 60.0, said.append)
    assert "positions-1: not yet; `kvref learn hint positions-1` helps" in said
    for number in (1, 2, 3, 3):
        said.clear()
        assert session.hinted(folder, REPAIRS["positions-1"], 60.0, said.append)
        assert said[0].startswith(f"hint {number} of 3: ")
        assert all(len(line) <= 80 for line in said)
    solve("positions-1", course)
    said.clear()
    assert session.judged(folder, REPAIRS["positions-1"], 60.0, said.append)
    assert "positions-1: solved; `kvref learn solution positions-1` shows ours" in said
    assert Folder(course).progress.solved
    file_of("positions-1", course).write_text("def")
    assert not session.judged(folder, REPAIRS["positions-1"], 60.0, said.append)
    assert not Folder(course).progress.solved
    assert not session.hinted(folder, REPAIRS["positions-1"], 60.0, said.append)


def answered(monkeypatch: pytest.MonkeyPatch, solved: Callable[[str], bool]) -> None:
    """Judge without a process of its own."""

    def judge_apart(name: str, path: Path, seconds: float) -> Any:
        del seconds
        right = solved(path.read_text())
        return type("Result", (), {"answer": Answer(right, (f"{name} looked at",), ("a", "b", "c"))})

    monkeypatch.setattr(session, "judge_apart", judge_apart)


def test_the_loop_judges_what_is_saved_and_obeys(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, lambda text: text == "right")
    said = list[str]()
    loop = watch.Watch(Folder(course), 1.0, said.append)

    def save(name: str, text: str) -> None:
        path = file_of(name, course)
        path.write_text(text)
        os.utime(path, ns=(1, loop.seen[name] + 1))

    def lines() -> Iterator[str | None]:
        yield None
        assert not said
        save("why-1", "wrong")
        yield None
        yield None
        assert "why-1 looked at" in said
        yield "h\n"
        assert "hint 1 of 3: a" in said
        save("why-1", "right")
        yield None
        yield None
        assert "why-1: solved; o shows our solution" in said
        assert loop.current is REPAIRS["positions-1"]
        assert "positions-1 looked at" in said  # what is next is judged at once
        yield "o\n"
        assert said[-1] == REPAIRS["why-1"].solution()
        yield "s\n"
        assert "positions-1 is left for later" in said
        assert loop.current is REPAIRS["masks-2"]
        assert "masks-2 looked at" in said
        said.clear()
        yield "\n"
        assert "masks-2 looked at" in said
        assert "masks-2: not yet; h helps" in said
        save("masks-2", "mine")
        said.clear()
        yield "r\n"
        assert file_of("masks-2", course).read_text() == REPAIRS["masks-2"].start()
        assert "masks-2 looked at" in said
        yield "l\n"
        assert any("[x] why-1" in line for line in said)
        yield "what\n"
        assert said[-1] == watch.KEYS
        file_of("masks-2", course).unlink()
        said.clear()
        yield "\n"
        assert "kvref learn reset masks-2` gives it back" in " ".join(said)
        yield "r\n"
        file_of("why-1", course).unlink()
        yield None
        said.clear()
        save("positions-1", "wrong")
        save("masks-2", "wrong too")
        yield None
        yield None
        yield None
        assert {"positions-1 looked at", "masks-2 looked at"} <= set(said)
        yield watch.END
        raise AssertionError("it went on")

    given = lines()
    watch.run(loop, lambda _: next(given))


def test_commands_are_given_inside_a_folder_of_the_course(kvref: Any) -> None:
    for command in (("list",), ("test", "why-1"), ("hint", "why-1"), ("reset", "why-1"), ("skip", "why-1")):
        code, _, err = kvref("learn", *command)
        assert code == 2
        assert "is no folder of the course" in err
        assert len(err.splitlines()) == 1


def test_without_a_terminal_there_is_nothing_to_watch(kvref: Any) -> None:
    code, _, err = kvref("learn")
    assert code == 2
    assert "kvref learn test NAME" in err
    code, _, err = kvref("learn", "--dir", "x", "list")
    assert (code, "kvref learn list --dir x" in err) == (2, True)


@pytest.mark.parametrize("way", ["<&-", "| head -0", "> /dev/full"])
def test_what_cannot_be_read_or_printed_is_said_in_a_line(way: str, course: Path) -> None:
    main = f"{sys.executable} -c 'from kvref.cli import main; main()'"
    command = f"{main} learn {'' if way == '<&-' else 'list'} {way}; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(["bash", "-c", command], cwd=course, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ("2" if way == "<&-" else "4")
    assert "Traceback" not in found.stderr
    assert len(found.stderr.splitlines()) <= 1


def test_an_exercise_that_there_is_not_is_said(kvref: Any) -> None:
    code, _, err = kvref("learn", "test", "masks-99")
    assert code == 2
    assert "there is no exercise 'masks-99'" in err


def test_the_whole_course_is_written_and_worked_through_by_commands(kvref: Any) -> None:
    code, out, _ = kvref("learn", "init", "course")
    assert code == 0
    assert f"{len(exercises())} exercises in course" in out
    os.chdir("course")
    code, out, _ = kvref("learn", "test", "why-1")
    assert code == 1
    assert "->" in out
    code, out, _ = kvref("learn", "solution", "why-1")
    assert (code, "class Mine" in out) == (1, False)
    solve("why-1", Path())
    code, out, _ = kvref("learn", "test", "why-1")
    assert code == 0, out
    code, out, _ = kvref("learn", "solution", "why-1")
    assert (code, "class Mine" in out) == (0, True)
    assert kvref("learn", "skip", "why-2")[0] == 0
    code, out, _ = kvref("learn", "list")
    assert code == 0
    assert "[x] why-1" in out
    assert "> [ ] why-3" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert kvref("learn", "reset", "why-1")[0] == 0
    assert kvref("learn", "hint", "1_why/why_1.py")[0] == 0
    Path("1_why/why_1.py").unlink()
    code, _, err = kvref("learn", "test", "why-1")
    assert (code, "is gone" in err) == (2, True)


def test_the_kinds_of_exercise_are_all_there() -> None:
    kinds = [each.kind for each in exercises().values()]
    assert kinds.count("repair") >= 20
    assert kinds.count("write") >= 6
    assert kinds.count("explain") >= 4
    assert isinstance(REPAIRS["why-1"], Repair)
