"""Processes that do jobs, so that a bug that hangs or takes its process along costs one cell and no more."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from multiprocessing.connection import wait
from time import perf_counter
from typing import Protocol

from kvref.forks import CONTEXT
from kvref.matrix.cells import Cell, Mark
from kvref.matrix.worker import BEGUN, Job, serve

STARTING = 120.0
"""Seconds that a process may take to import everything and read its first job."""

LONGEST_WAIT = 3600.0
"""Seconds to wait at once; the system takes no arbitrarily large number."""

DYING = 2.0
"""Seconds that a process whose pipe has closed may take to end, and so to tell its exit code."""


class Plan(Protocol):
    """Which jobs there are, in which order; the next may depend on what came of those before."""

    def take(self) -> Job | None:
        """The next job; None when there is none, or none before another is done."""
        ...

    def done(self, job: Job, cell: Cell) -> None:
        """Hear what came of a job."""
        ...


def cores() -> int:
    """How many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def work(plan: Plan, workers: int, max_seconds: float) -> Iterator[tuple[Job, Cell]]:
    """Do the jobs of a plan, `workers` at once, and give each with what came of it as it is done.

    A job that takes longer than `max_seconds` is ended, with its process.
    """
    free, busy = list[Worker](), list[Worker]()
    try:
        while True:
            while len(busy) < workers and (job := plan.take()):
                worker = free.pop() if free else Worker()
                worker.give(job)
                busy.append(worker)
            if not busy:
                return
            soonest = max(0.0, min(worker.deadline for worker in busy) - perf_counter())
            wait([worker.pipe for worker in busy], min(soonest, LONGEST_WAIT))
            for worker in list(busy):
                if cell := worker.answer(max_seconds):
                    busy.remove(worker)
                    free.extend([worker] if worker.alive else [])
                    plan.done(worker.job, cell)
                    yield worker.job, cell
    finally:
        for worker in (*free, *busy):
            worker.end()


class Worker:
    """A process, the job it has, and when that must be done."""

    job: Job

    def __init__(self) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.alive, self.deadline, self.given = True, inf, 0.0

    def give(self, job: Job) -> None:
        """Send a job."""
        self.job, self.given = job, perf_counter()
        self.deadline = self.given + STARTING
        with suppress(BrokenPipeError):  # it died since its last job, which the answer will say
            self.pipe.send(job)

    def answer(self, max_seconds: float) -> Cell | None:
        """What came of the job; None while it goes on."""
        try:
            while self.pipe.poll():
                said = self.pipe.recv()
                if said != BEGUN:
                    return said
                self.given = perf_counter()
                self.deadline = self.given + max_seconds
        except (EOFError, OSError):  # it died between two answers, or within one
            self.end(DYING)
            return self.failed(Mark.ERROR, f"the process ended: {how_ended(self.process.exitcode)}")
        if perf_counter() < self.deadline:
            return None
        self.end()
        return self.failed(Mark.TIMEOUT, f"not done after {perf_counter() - self.given:.1f} s")

    def failed(self, mark: Mark, reason: str) -> Cell:
        """A cell for a job that got no answer."""
        return Cell(self.job.subject, self.job.law, mark, reason, seconds=perf_counter() - self.given)

    def end(self, patience: float = 0.0) -> None:
        """End the process, whatever it is doing, unless it ends by itself in time."""
        self.alive = False
        self.pipe.close()
        self.process.join(patience)
        self.process.kill()
        self.process.join()


def how_ended(code: int | None) -> str:
    """An exit code in words: a negative one is the signal that ended the process."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
