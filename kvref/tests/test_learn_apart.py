"""A student's file judged in a process apart: what is right, what is wrong, and every cheat that came to mind."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from hmac import digest
from multiprocessing import active_children
from pathlib import Path
from time import perf_counter, sleep

import pytest
import torch

from kvref.errors import BadInput
from kvref.finding import Divergence, LawBroken
from kvref.learn.apart import FORGED, Judged, believed, judge_apart
from kvref.learn.course import CHAPTERS, Chapter
from kvref.learn.exercises import Answer, Kind
from kvref.learn.repairs import repair_exercises
from kvref.targets.resolve import load_file

pytestmark = pytest.mark.late

REPAIRS = {each.name: each for each in repair_exercises()}


@dataclass(frozen=True)
class Sum:
    """An exercise that is soon judged: `total` is to give the sum of a tensor, and asks no less than a law does."""

    name: str = "sum"
    kind: Kind = "repair"
    chapter: Chapter = CHAPTERS[0]

    def start(self) -> str:
        return "def total(x):\n    return x[:1].sum()\n"

    def solution(self) -> str:
        return "def total(x):\n    return x.sum()\n"

    def judge(self, path: Path) -> Answer:
        total = load_file(path).total
        try:
            for number in range(1, 4):
                compare(total(torch.arange(number)), torch.arange(number).sum())
        except LawBroken:
            return Answer(False, ("wrong",), ("a", "b", "c"))
        return Answer(True, ("right",), score=1.0)


def compare(got: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.equal(got, expected):
        raise LawBroken(Divergence("differs"))


def judged(text: str, tmp_path: Path, seconds: float = 20.0) -> Judged:
    path = tmp_path / "mine_sum.py"
    path.write_text(text)
    return judge_apart(Sum(), path, seconds)


START, RIGHT = Sum().start(), Sum().solution()


def test_a_right_file_is_solved_and_its_hash_is_told(tmp_path: Path) -> None:
    found = judged(RIGHT, tmp_path)
    assert (found.solved, found.score, found.reason) == (True, 1.0, "")
    assert found.answer == Answer(True, ("right",), score=1.0)
    assert found.path == str(tmp_path / "mine_sum.py")
    assert found.sha256 == sha256(RIGHT.encode()).hexdigest()


def test_a_wrong_file_comes_back_with_its_hints(tmp_path: Path) -> None:
    found = judged(START, tmp_path)
    assert found.answer == Answer(False, ("wrong",), ("a", "b", "c"))
    assert (found.reason, found.score) == ("", 0.0)


def test_a_repair_is_judged_as_it_is_here(tmp_path: Path) -> None:
    exercise = REPAIRS["positions-1"]
    path = tmp_path / "positions_1.py"
    path.write_text(exercise.start())
    found = judge_apart(exercise, path, 60.0)
    assert (found.solved, found.reason) == (False, "")
    assert found.answer == exercise.judge(path)


PATCHES = {
    "torch.equal": "import torch\ntorch.equal = lambda *_: True\n",
    "Tensor.__eq__": "import torch\ntorch.Tensor.__eq__ = lambda *_: True\n",
    "all": "import builtins\nbuiltins.all = lambda *_: True\n",
    "hidden": "import kvref.search\nkvref.search.isinstance = lambda *_: True\n",
    "search": "import kvref.search\nkvref.search.search = None\n",
    "code": "import kvref.search as s\ndef f(*a): return None\ns.first_kill.__code__ = f.__code__\n",
    "defaults": "import kvref.search as s\ns.search.__defaults__ = (1, 2)\n",
    "constant": "import kvref.search\nkvref.search.FAULTS = frozenset()\n",
    "effort": "import kvref.learn.judge\nkvref.learn.judge.FEW = 0\n",
    "class": "from kvref.watch import Watch\nWatch.broken = lambda self: None\n",
    "laws": "from kvref.law import laws\nlaws().clear()\n",
    "law": "from kvref.law import laws\nobject.__setattr__(list(laws().values())[0], 'check', print)\n",
    "given": "import hypothesis\nhypothesis.given = lambda *_: lambda f: f\n",
    "engine": "from hypothesis.internal.conjecture.engine import ConjectureRunner as C\nC.run = lambda s: None\n",
    "module": "import sys, types\nsys.modules['kvref.search'] = types.ModuleType('kvref.search')\n",
    "judge": "import kvref.tests.test_learn_apart as t\nt.Sum.judge = None\n",
    "frozen": "import kvref.learn.exercises as e\ne.Answer.__init__ = lambda self, *a, **k: None\n",
    "trace": "import threading, sys\nthreading.settrace(print)\nt = lambda *_: None\nsys.settrace(t)\n",
    "mode": "from torch.overrides import TorchFunctionMode as T\nclass M(T):\n"
    "    def __torch_function__(self, f, t, a=(), k=None):\n"
    "        return True if f.__name__ == 'equal' else f(*a, **(k or {}))\nM().__enter__()\n",
    "verifier": "import kvref.learn.tamper as t\nt.Snapshot.changed = lambda self: ''\nt.difference = lambda *_: ''\n",
    "signer": "import hmac\nhmac.digest = lambda *_: b''\n",
    "believer": "import kvref.learn.apart as a\na.verdict_of = lambda *_: {}\n",
}


def test_what_is_not_its_own_is_not_to_be_changed(tmp_path: Path) -> None:
    def tried(name: str) -> Judged:
        (tmp_path / name).mkdir()
        return judged(PATCHES[name] + RIGHT, tmp_path / name)

    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(PATCHES, pool.map(tried, PATCHES), strict=True))
    for name, each in found.items():
        assert (each.answer, each.score) == (None, 0.0), name
        changes = each.reason.startswith("the file changes what is not its own: ")
        assert changes or (name == "trace" and "reaches into" in each.reason), (name, each.reason)


WITHIN = {
    "while judged": "import torch\ndef total(x):\n    torch.equal = lambda *_: True\n    return x[:1].sum()\n",
    "and put back": "import torch\nreal = torch.equal\ndef lie(*a):\n    torch.equal = real\n    return True\n"
    "torch.equal = lie\ndef total(x):\n    return x[:1].sum()\n",
}


@pytest.mark.parametrize("text", WITHIN.values(), ids=WITHIN)
def test_a_change_while_it_is_judged_is_seen_and_one_that_undoes_itself(text: str, tmp_path: Path) -> None:
    assert judged(text, tmp_path).reason == "the file changes what is not its own: torch.equal was replaced"


REACHES = {
    "garbage": "import gc\ngc.get_objects()\n",
    "frames": "import sys\nsys._getframe(1)\n",
    "inspected frames": "import inspect\ninspect.currentframe()\n",
    "a walk": "import traceback\nlist(traceback.walk_stack(None))\n",
    "a stack": "import inspect\ninspect.stack()\n",
    "a logger": "import logging\nlogging.currentframe()\n",
    "traceback": "try:\n    raise ValueError\nexcept ValueError as e:\n    e.__traceback__.tb_frame\n",
    "memory": "import ctypes\nctypes.c_int.from_address(id(1))\n",
    "fork": "import os\nif os.fork() == 0:\n    import time\n    time.sleep(60)\n",
    "shell": "import os\nos.system('true')\n",
    "generator": "def walk():\n    yield me.gi_frame\nme = walk()\nnext(me)\n",
    "exec": "exec('import sys; sys._getframe(1)')\n",
    "compile": "compile('1', 'elsewhere', 'eval')\n",
    "another file": "from pathlib import Path\n"
    "Path(__file__).with_name('helps.py').write_text('import sys; sys._getframe(1)')\nimport helps\n",
}


@pytest.mark.parametrize("text", REACHES.values(), ids=REACHES)
def test_a_file_does_not_reach_into_the_process(text: str, tmp_path: Path) -> None:
    found = judged(text + RIGHT, tmp_path)
    assert found.answer is None
    assert found.reason.startswith("the file reaches into the process that judges it, by ")


def test_a_text_of_a_traceback_is_no_reach(tmp_path: Path) -> None:
    text = "import traceback, collections, logging\nlogging.getLogger(__name__).warning('here')\n"
    text += "try:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
    assert judged(f"{text}collections.namedtuple('Pair', 'a b')\n{RIGHT}", tmp_path).solved


OTHERS = {
    "import sys\nsys.exit(0)\n": "the file ends the process (SystemExit: 0)",
    "import os\nos._exit(0)\n": "the process ended before the file was judged: exit code 0",
    "import os\ndef total(x):\n    os._exit(0)\n": "the process ended before the file was judged: exit code 0",
    "import os, signal\nsignal.raise_signal(9)\n": "the process ended before the file was judged: killed by SIGKILL",
    "import atexit\natexit.register(print)\n" + RIGHT: "the file leaves something to be done at the end of the process",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    + RIGHT: "the file changes what is not its own: the number of threads is another than before",
    "def total(:\n": "it cannot be tried (SyntaxError: invalid syntax (mine_sum.py, line 1))",
    "": "it cannot be tried (AttributeError: module 'mine_sum' has no attribute 'total')",
    "import torch\nclass Yes(torch.Tensor):\n    pass\n" + RIGHT: "the file makes a kind of tensor of its own, Yes",
    "raise KeyboardInterrupt\n": "it cannot be tried (KeyboardInterrupt:)",
    "kept = []\nwhile True:\n    kept.append(bytes(1 << 28))\n": "it cannot be tried (MemoryError:)",
}


@pytest.mark.parametrize(("text", "reason"), OTHERS.items(), ids=range(len(OTHERS)))
def test_whatever_a_file_does_a_reason_comes_back(text: str, reason: str, tmp_path: Path) -> None:
    found = judged(text, tmp_path)
    assert (found.answer, found.reason) == (None, reason)


def test_a_file_does_not_get_what_it_reaches_for(tmp_path: Path) -> None:
    # It might send a verdict with it, and end before anybody asks what it did.
    text = "import os, sys\ntry:\n    sys._getframe(1)\n    os._exit(3)\nexcept BaseException:\n    pass\n"
    found = judged(text + RIGHT, tmp_path)
    assert found.reason == "the file reaches into the process that judges it, by sys._getframe"


def test_an_endless_loop_is_ended_in_time_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    text = (
        "import multiprocessing, time\nfrom pathlib import Path\n"
        "child = multiprocessing.get_context('spawn').Process(target=time.sleep, args=(99,))\nchild.start()\n"
        f"Path({str(mark)!r}).write_text(str(child.pid))\nwhile True: pass\n"
    )
    begun = perf_counter()
    found = judged(text, tmp_path, 1.0)
    assert found.reason == "it hangs: not done after 1 s"
    assert perf_counter() - begun < 15
    stat = Path(f"/proc/{int(mark.read_text())}/stat")
    assert not stat.exists() or stat.read_text().split()[2] in "ZX"


def test_a_verdict_on_another_file_than_was_handed_in_is_not_believed() -> None:
    verdict = {"answer": {"solved": True, "lines": [], "hints": [], "score": 1.0}, "reason": "", "sha256": "other"}
    body, key = json.dumps(verdict).encode(), b"k" * 32
    said = digest(key, body, "sha256") + body
    assert believed(said, key, "other")[0] is not None
    assert believed(said, key, "mine") == (None, "the file that was judged is not the one that was handed in")


def test_a_verdict_that_is_printed_or_written_to_every_pipe_is_not_believed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verdict = '{"answer": {"solved": true, "lines": [], "hints": [], "score": 1.0}, "reason": "", "sha256": ""}'
    assert not judged(f"print({verdict!r})\n{START}", tmp_path).solved
    write = f"import os, struct\nsaid = bytes(32) + {verdict!r}.encode()\nsaid = struct.pack('!i', len(said)) + said\n"
    write += "for fd in range(3, 64):\n    try: os.write(fd, said)\n    except OSError: pass\n"
    found = judged(write + START, tmp_path)
    assert (found.answer, found.reason) == (None, FORGED)
    assert capfd.readouterr() == ("", "")


def test_a_verdict_counts_only_with_the_key(tmp_path: Path) -> None:
    del tmp_path
    assert believed(b"", b"k" * 32, "hash") == (None, FORGED)
    assert believed(bytes(40), b"k" * 32, "hash") == (None, FORGED)


def test_to_look_at_the_solution_is_not_punished(tmp_path: Path) -> None:
    text = "import kvref.bug, kvref.cache\nopen(kvref.cache.__file__).read(), kvref.bug.catalogue()\n"
    assert judged(text + RIGHT, tmp_path).solved


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        judge_apart(Sum(), tmp_path / "none.py", 1.0)


def test_who_waits_no_longer_leaves_nothing_running(tmp_path: Path) -> None:
    path, pid = tmp_path / "mine_sum.py", tmp_path / "pid"
    path.write_text(
        f"import os\nfrom pathlib import Path\nPath({str(pid)!r}).write_text(str(os.getpid()))\nwhile True: pass\n"
    )
    waits = (
        "from pathlib import Path\nfrom kvref.learn.apart import judge_apart\n"
        f"if __name__ == '__main__': judge_apart('why-1', Path({str(path)!r}), 99)\n"
    )
    (tmp_path / "waits.py").write_text(waits)
    process = subprocess.Popen([sys.executable, str(tmp_path / "waits.py")])
    while not pid.exists() or not pid.read_text():
        sleep(0.1)
    process.kill()
    process.wait()
    stat = Path(f"/proc/{pid.read_text()}/stat")
    for _ in range(100):
        if not stat.exists() or stat.read_text().split()[2] in "ZX":
            return
        sleep(0.1)
    raise AssertionError("it runs on")


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    judged(RIGHT, tmp_path)
    before = len(active_children())
    judged("import time\ntime.sleep(99)\n", tmp_path, 0.1)
    assert len(active_children()) == before
