"""What a process of the kill matrix does: try one law on one bug after the other, as it is told."""

import gc
import os
import signal
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from time import perf_counter

import torch

from kvref.bug import Bug
from kvref.law import laws
from kvref.matrix.cells import Cell, Mark
from kvref.matrix.reach import Seam, noting
from kvref.search import Effort, Outcome, Status, first_kill, search
from kvref.targets import Bench, ReferenceTarget, Target

# Torch imports this at the first pass of a module, which takes longer than many a cell. It is imported here, once,
# before processes are forked.
import_module("torch._dynamo")

BEGUN = "begun"
"""What a process says once it has read its job, so that its time counts from then."""


@dataclass(frozen=True)
class Job:
    """A law to try on a bug, or on the reference with one kind of cache where there is no bug.

    While it is tried, the calls of the `watched` methods are noted. Where it is not to be `judged`, it is a known bug,
    and all that is asked is whether the law breaks under its lens.
    """

    subject: str
    law: str
    effort: Effort
    bench: Bench
    bug: Bug | None = None
    watched: frozenset[Seam] = frozenset()
    judged: bool = True

    def target(self) -> Target:
        """What to try the law on."""
        if self.bug:
            return self.bug.target(self.bench)
        return ReferenceTarget(self.subject, self.subject.rpartition(":")[2], self.bench)


def serve(pipe: Connection) -> None:
    """Do one job after the other, until the other end is closed."""
    Thread(target=leave_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    torch.set_num_threads(1)
    gc.freeze()  # what is imported stays, and Hypothesis collects garbage often
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        pipe.send(BEGUN)
        pipe.send(tried(job))


def leave_with_parent() -> None:
    """End this process, even if it hangs, when the one that started it has ended without ending this one."""
    if parent := parent_process():
        wait([parent.sentinel])
        os._exit(1)


def tried(job: Job) -> Cell:
    """Try the law, and say what came of it."""
    try:
        if not job.judged:
            return counted(job)
        with noting(job.watched) as called:
            cell = cell_of(job, search(laws()[job.law], job.target(), job.effort))
        return replace(cell, called=tuple(sorted(called)))
    except Exception as error:
        # The decoder's own exceptions are part of an outcome; this is one of kvref, or of making the decoder.
        return Cell(job.subject, job.law, Mark.ERROR, f"kvref broke: {type(error).__name__}: {error}")


def counted(job: Job) -> Cell:
    """Say whether a known bug is killed."""
    begun = perf_counter()
    after = first_kill(laws()[job.law], known_target(job.bug, job.bench), job.effort) if job.bug else None
    mark = Mark.KILLED if after else Mark.SURVIVED
    return Cell(job.subject, job.law, mark, killed_after=after, seconds=perf_counter() - begun)


@lru_cache(maxsize=1)
def known_target(bug: Bug, bench: Bench) -> Target:
    """A bug to be tried with many seeds, whose decoders are made once."""
    return bug.target(bench)


def cell_of(job: Job, outcome: Outcome) -> Cell:
    """An outcome as a cell. What only leaves a bug alive is an error for the reference, which has to hold."""
    short = outcome.status is Status.CUT_SHORT and job.effort.first is not None
    mark = MARKS.get(outcome.status, Mark.SURVIVED if job.bug or short else Mark.ERROR)
    told = outcome.status not in (Status.HELD, Status.SKIPPED, Status.BROKEN)
    reason = f"{outcome.status}: {outcome.reason}" if told else outcome.reason
    killed, finding = mark is Mark.KILLED, outcome.finding
    return Cell(
        job.subject,
        job.law,
        mark,
        reason,
        outcome.examples,
        outcome.killed_after if killed else None,
        outcome.killed_seconds if killed else None,
        outcome.seconds,
        outcome.forward_seconds,
        finding and finding.schedule,
        str(finding.divergence) if finding else "",
        (finding.origin or "") if finding else "",
    )


MARKS = {
    Status.HELD: Mark.SURVIVED,
    Status.BROKEN: Mark.KILLED,
    Status.RAISED: Mark.ERROR,
    Status.SKIPPED: Mark.SKIPPED,
}
"""What decides a cell; of a search that is undecided or never met its case, only that it kills nothing."""
