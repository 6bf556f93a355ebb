"""A student's file judged in a process apart, with a time limit; nothing is believed of it that cannot be proved.

The file is imported into the process that judges it, so whoever is determined enough can cheat. What is done is this. A
verdict counts only with a code by a key that came before the file was imported and that is in no module, only in a
local name of the function that judges; it is plain JSON, so nothing in it is run where it is read. All of kvref, and
the code of hypothesis, torch and the standard library that judging rests on, is compared with what it was: when the
file has been imported, and when it has been judged, by functions that have names and builtins of their own. The same is
asked of hooks, modes, threads and of subclasses of tensors. If the file, or another that is no library, reads frames,
looks through the garbage collector, writes memory, runs code out of a text or starts processes, Python's audit stops
it. What is compiled is what the hash is of. No exit handler runs, and what goes on is killed, with all of its session.

What an exercise is about has rules of its own, by the names in a file (`kvref.learn.rules`).

What is still possible: to replace something while the laws are tried and to put it back before they are done; to put a
name together out of pieces, and so to inherit what was to be written; to reach for frames or memory through a function
of another module, which is not seen by the audit; to remember something in a file between two imports of a law, and to
guess which of them is of a bug; to patch what is not looked at (kernels by `torch.library`, modules of the standard
library that are not listed); to leave a process behind in a session of its own; to change files on this disk, or to use
the net, with the rights of who grades. Read a file whose score surprises you, and grade in a container what may be
malicious.
"""

import gc
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from hmac import compare_digest, digest
from multiprocessing import current_process, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from secrets import token_bytes
from signal import SIG_IGN, SIGINT, SIGKILL, signal
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from kvref.errors import BadInput, one_line
from kvref.forks import CONTEXT
from kvref.isolation.apart import queued
from kvref.learn.exercises import Answer, Exercise
from kvref.learn.preload import warm_up
from kvref.matrix.pool import DYING, STARTING, how_ended

if TYPE_CHECKING:
    from kvref.learn.tamper import Snapshot

LONGEST = 1 << 22
"""Bytes of a verdict, at most."""

LARGEST = 1 << 20
"""Bytes of a student's file, at most."""

MEMORY = 4 << 30
"""Bytes that a file may take."""

READY = b"ready"
CODE = 32


@dataclass(frozen=True)
class Judged:
    """What came of a file: an answer, or the reason why there is none. `path` and `sha256` say which file it was.

    There is an answer only where the file that was imported had this hash.
    """

    answer: Answer | None
    reason: str
    path: str
    sha256: str
    seconds: float = 0.0

    @property
    def solved(self) -> bool:
        """Whether it is right."""
        return self.answer is not None and self.answer.solved

    @property
    def score(self) -> float:
        """From 0 to 1; 0 where there is no answer."""
        return self.answer.score if self.answer else 0.0


class Tampered(BaseException):
    """The file changed what is not its own; the text says what. Nothing that catches an `Exception` catches it."""


def judge_apart(exercise: str | Exercise, path: Path, seconds: float) -> Judged:
    """Judge a file in a process of its own, which has so many seconds from when the file is about to be imported.

    An exercise is given by its name. Raises `BadInput` for a file that cannot be read; whatever is in the file, a
    reason comes back.
    """
    path = path.resolve()
    text = read(path)
    warm_up()
    key, (pipe, theirs) = token_bytes(CODE), CONTEXT.Pipe()
    process = CONTEXT.Process(target=serve, args=(theirs, exercise, str(path)))
    process.start()
    theirs.close()
    begun = perf_counter()
    answer, reason, found = None, "", sha256(text).hexdigest()
    try:
        pipe.send_bytes(key)
        if not pipe.poll(STARTING) or pipe.recv_bytes(len(READY)) != READY:
            raise TimeoutError
        begun = perf_counter()
        said = heard(pipe, process.pid, seconds)
        answer, reason = believed(said, key, found)
    except TimeoutError:
        reason = f"it hangs: not done after {seconds:g} s"
    except (EOFError, ConnectionError):
        process.join(DYING)
        reason = f"the process ended before the file was judged: {how_ended(process.exitcode)}"
    except OSError:
        reason = FORGED
    finally:
        end(process)
        pipe.close()
    return Judged(answer, reason, str(path), found, perf_counter() - begun)


FORGED = "something else than a verdict came where only a verdict comes"


def read(path: Path) -> bytes:
    """The bytes of a student's file. Raises `BadInput` where there are none, or far too many."""
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path} has more than {LARGEST} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror or error})") from None


def heard(pipe: Connection, pid: int | None, seconds: float) -> bytes:
    """What the process says first; time in which it waited for a processor is not counted.

    Raises `TimeoutError` when it says nothing in time.
    """
    begun = perf_counter() - queued(pid)
    while (left := seconds - (perf_counter() - queued(pid) - begun)) > 0:
        if pipe.poll(left):
            return pipe.recv_bytes(LONGEST)
    raise TimeoutError


def believed(said: bytes, key: bytes, handed: str) -> tuple[Answer | None, str]:
    """The answer, or the reason why there is none, in a verdict on the file with this hash, if it is one."""
    code, body = said[:CODE], said[CODE:]
    if not compare_digest(code, digest(key, body, "sha256")):
        return None, FORGED
    verdict: dict[str, Any] = json.loads(body)
    reason, found, told = verdict["reason"], verdict["sha256"], verdict["answer"]
    if not reason and found != handed:
        reason = "the file that was judged is not the one that was handed in"
    if reason or not told:
        return None, reason or "there is no verdict"
    return Answer(told["solved"], tuple(told["lines"]), tuple(told["hints"]), told["score"]), ""


def end(process: Any) -> None:
    """End a process with all that it started, as far as that stayed with it."""
    with suppress(OSError):
        os.killpg(process.pid, SIGKILL)
    process.kill()
    process.join()


def serve(pipe: Connection, exercise: str | Exercise, path: str) -> None:
    """Judge a file, and send the verdict. The file finds neither pipe nor key by looking at modules."""
    vars(current_process()).update(_args=(), _kwargs={})
    os.setsid()
    Thread(target=leave_with_parent, args=(os.killpg, os.getpgrp()), daemon=True).start()
    signal(SIGINT, SIG_IGN)  # who started this process ends it
    quiet()
    key = pipe.recv_bytes(CODE)
    judge = prepared(exercise, Path(path))
    send, dumps, sign = pipe.send_bytes, json.dumps, digest
    send(READY)
    verdict = judge()
    body = dumps(verdict).encode()
    send(sign(key, body, "sha256") + body)
    pipe.close()
    os._exit(0)  # what the file left to be done at the end is not


def leave_with_parent(kill: Callable[[int, int], None], group: int) -> None:
    """End this process with its group, even if it hangs, when the one that waits for its verdict has ended."""
    if parent := parent_process():
        wait([parent.sentinel])
        kill(group, SIGKILL)


def quiet() -> None:
    """Let nothing be read or printed, and little memory be had; if it runs out, let this process be ended for it."""
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123 a device, not a path
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError, ValueError, ImportError):
        from resource import RLIMIT_DATA, getpagesize, setrlimit

        used = int(Path("/proc/self/statm").read_text().split()[5]) * getpagesize()
        setrlimit(RLIMIT_DATA, (used + MEMORY, used + MEMORY))


def prepared(exercise: str | Exercise, path: Path) -> Callable[[], dict[str, Any]]:
    """What judges the file, once everything is imported and looked at that it might change."""
    import torch
    from torch import Tensor

    from kvref.bug import catalogue
    from kvref.law import laws
    from kvref.learn import tamper
    from kvref.learn.exercises import exercises
    from kvref.matrix.record import record

    torch.set_num_threads(1)
    ours = tamper.private(tamper)
    task = exercises()[exercise] if isinstance(exercise, str) else exercise
    gc.freeze()  # what is imported stays, and Hypothesis collects garbage often
    roots = {"laws": laws(), "bugs": catalogue(), "record": record(), "exercise": task}
    imported = Imported(path)
    imported.install()
    snapshot: Snapshot = ours["Snapshot"](roots, states())
    imported.changed, imported.reached = snapshot.changed, ours["reaching"](path)
    known = set(ours["subclasses"](Tensor))

    def own() -> str:
        kinds = [kind for kind in ours["subclasses"](Tensor) if kind not in known]
        strange = next((kind for kind in kinds if not kind.__module__.startswith("torch")), None)
        return f"the file makes a kind of tensor of its own, {strange.__name__}" if strange else ""

    imported.own = own
    return lambda: verdict_of(task, path, imported)


def states() -> dict[str, Callable[[], object]]:
    """What decides and is in no module: hooks, modes and threads."""
    import _thread

    import torch
    from hypothesis import settings

    core: Any = vars(torch)["_C"]
    begun: Callable[[], object] = vars(_thread)["_count"]
    return {
        "the trace function": sys.gettrace,
        "the profile function": sys.getprofile,
        "the number of torch's function modes": core._len_torch_function_stack,
        "the number of torch's dispatch modes": core._len_torch_dispatch_stack,
        "torch's default dtype": torch.get_default_dtype,
        "the list of import hooks": lambda: [*sys.meta_path, *sys.path_hooks],
        "the settings of hypothesis": lambda: settings.default,
        "the number of threads": begun,
    }


def profile() -> Callable[[], None]:
    """Give the profile of hypothesis that there is now back, when called."""
    from hypothesis import settings

    load, register, name, before = settings.load_profile, settings.register_profile, "kvref-learn", settings.default
    assert before is not None

    def restore() -> None:
        register(name, before)
        load(name)

    restore()  # so that its name is the same before and after
    return restore


class Imported:
    """The import of a student's file: what is compiled is hashed, and what it changed is seen at once."""

    def __init__(self, path: Path) -> None:
        self.path, self.sha256, self.atexit, self.seen = str(path), "", "", ""
        self.changed: Callable[[], str] = str
        self.reached: Callable[[], str] = str
        self.own: Callable[[], str] = str

    def install(self) -> None:
        """Stand where Python runs the code of a file, and where exit handlers are registered."""
        import atexit
        from importlib.machinery import SourceFileLoader

        loader: Any = SourceFileLoader
        restore = profile()
        usual, register, frame = loader.exec_module, atexit.register, vars(sys)["_getframe"]

        def exec_module(this: Any, module: Any) -> None:
            if Path(this.path).resolve() != Path(self.path):
                usual(this, module)
                return
            text = Path(self.path).read_bytes()
            first, found = not self.sha256, sha256(text).hexdigest()
            if not first and found != self.sha256:
                self.seen = "the file changes itself while it is judged"
                raise Tampered(self.seen)
            self.sha256 = found
            exec(compile(text, self.path, "exec", dont_inherit=True), cast("dict[str, Any]", vars(module)))
            # Its profile is for its own runs: a judge says itself how many examples there are, and which.
            restore()
            if first:  # it may be imported for each decoder; what it does later is looked at when all is done
                self.check()

        def noted(function: Any, *args: Any, **kwargs: Any) -> Any:
            if frame(1).f_code.co_filename == self.path:
                self.atexit = "the file leaves something to be done at the end of the process"
            return register(function, *args, **kwargs)

        loader.exec_module, atexit.register = exec_module, noted

    def tampering(self) -> str:
        """What the file did that it may not, in words; what was seen once stays said."""
        if self.seen:
            return self.seen
        if reached := self.reached():
            return f"the file reaches into the process that judges it, by {reached}"
        if changed := self.changed():
            return f"the file changes what is not its own: {changed}"
        return self.own() or self.atexit

    def check(self) -> None:
        """Raise `Tampered` if the file did what it may not."""
        self.seen = self.tampering()
        if self.seen:
            raise Tampered(self.seen)


def verdict_of(exercise: Exercise, path: Path, imported: Imported) -> dict[str, Any]:
    """Judge, and say what came of it as plain data."""
    answer, reason = None, ""
    try:
        answer = exercise.judge(path)
    except Tampered as error:
        reason = str(error)
    except BadInput as error:
        reason = str(error)
    except SystemExit as error:
        reason = f"the file ends the process ({one_line(error)})"
    except BaseException as error:
        reason = f"it cannot be tried ({one_line(error)})"
    # A judge may have put what was raised at import into words of its own, or a law may have caught it.
    reason = imported.tampering() or reason
    told = asdict(answer) if answer and not reason else None
    # A judge may read a file that it need not run.
    found = imported.sha256 or sha256(path.read_bytes()).hexdigest()
    return {"answer": told, "reason": reason, "sha256": found}
