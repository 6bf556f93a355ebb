"""Work in a process of its own, which says what it has to say through a pipe until it is done, dies or falls silent."""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

from kvref.decoder import heartbeat
from kvref.errors import KvrefError
from kvref.forks import CONTEXT
from kvref.matrix.pool import DYING, LONGEST_WAIT, STARTING, how_ended
from kvref.matrix.worker import leave_with_parent

Send = Callable[[object], None]
Work = Callable[..., None]
"""A function of a module, whose first argument is a `Send`: whatever it sends is heard in the process that asked."""


class Lost(Exception):
    """No more comes from the process; the text says why."""


class Died(Lost):
    """The process ended before its work was done."""


class Silent(Lost):
    """Nothing came from the process for too long, and it was ended."""


class Late(Lost):
    """Time was up, and the process was ended in the midst of its work."""


class Broke(Exception):
    """The work raised what no decoder did: kvref broke. The text is the traceback."""


@dataclass(frozen=True)
class Raised:
    """What a process says last where its work raised."""

    error: Exception


DONE, ALIVE = "done", "alive"
"""What a process says last where its work was done, and meanwhile, so that slow work is not taken for none."""

BEAT = 1.0
"""Seconds from one sign of life to the next, at least."""


class Apart:
    """A process that does one piece of work. Raises in the caller's process the errors that kvref raises on purpose."""

    def __init__(self, work: Work, *args: object) -> None:
        self.pipe, theirs = CONTEXT.Pipe(duplex=False)
        # It is no daemon, for what is tested there may start processes too.
        self.process = CONTEXT.Process(target=do, args=(theirs, work, args))
        self.process.start()
        theirs.close()
        self.heard = False

    def hear(self, seconds: float, until: float = inf) -> Any:
        """The next thing said; `DONE` is the last.

        Raises `Died`, `Silent` when there is no sign of life for so many seconds in which the process could run, and
        `Late` at a point in time.
        """
        patience = seconds if self.heard else max(seconds, STARTING)
        begun, left = perf_counter() - queued(self.process.pid), patience
        while (now := perf_counter()) < until:
            try:
                if not self.pipe.poll(min(left, until - now, LONGEST_WAIT)):
                    left = patience - (perf_counter() - queued(self.process.pid) - begun)
                    if left > 0:
                        continue
                    self.end()
                    raise Silent(f"no call came to an end for {patience:.0f} s")
                said, self.heard = self.pipe.recv(), True
            except (EOFError, OSError):
                self.end(DYING)
                raise Died(f"the process ended: {how_ended(self.process.exitcode)}") from None
            if isinstance(said, Raised):
                raise said.error
            if said != ALIVE:
                return said
            begun, left, patience = perf_counter() - queued(self.process.pid), seconds, seconds
        self.end()
        raise Late("it was ended in the midst of its work")

    def said(self, seconds: float, until: float = inf) -> Iterator[Any]:
        """Everything that is said until the work is done; the process is ended with the iteration."""
        try:
            while (said := self.hear(seconds, until)) != DONE:
                yield said
        finally:
            self.end()

    def kill(self) -> None:
        """End the process at once; who hears it hears that it died."""
        self.process.kill()

    def end(self, patience: float = 0.0) -> None:
        """End the process, whatever it is doing, unless it ends by itself in so many seconds."""
        self.pipe.close()
        self.process.join(patience)
        self.process.kill()
        self.process.join()


def queued(pid: int | None) -> float:
    """Seconds that a process waited for a processor, as on a busy machine; 0 where nobody counts them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Heart:
    """Says that a process is alive, not too often."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.last = pipe, perf_counter()

    def beat(self) -> None:
        """Say so, if it was not said just now."""
        if (now := perf_counter()) - self.last >= BEAT:
            self.last = now
            self.pipe.send(ALIVE)


def do(pipe: Connection, work: Work, args: tuple[object, ...]) -> None:
    """Do the work, and say how it ended."""
    Thread(target=leave_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    pipe.send(ALIVE)
    heartbeat.set(Heart(pipe).beat)
    with suppress(BrokenPipeError):  # nobody listens any more
        try:
            work(pipe.send, *args)
            pipe.send(DONE)
        except BrokenPipeError:
            raise
        except KvrefError as error:
            pipe.send(Raised(error))
        except Exception:
            pipe.send(Raised(Broke(f"in a process of its own\n{traceback.format_exc()}")))
