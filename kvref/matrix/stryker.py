"""The matrix as a mutation testing report, schema 2, for the viewers that there are: each bug is a mutant.

A mutant stands in the file of the reference, at the method that the bug overrides, and a law is a test.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kvref
from kvref.bug import Bug, overridden
from kvref.law import Law, laws
from kvref.matrix.cells import Mark, Matrix

ROOT = Path(kvref.__path__[0]).resolve().parent

THRESHOLDS = {"high": 100, "low": 90}
"""Shares of bugs killed, in percent, for a green and a yellow report: every bug has to be killed."""


def to_stryker(matrix: Matrix, bugs: Mapping[str, Bug]) -> str:
    """The report as JSON."""
    files = dict[str, dict[str, Any]]()
    for name in matrix.bugs:
        original = overridden_by(bugs[name])
        file = files.setdefault(path_of(original), {**source_of(original), "language": "python", "mutants": []})
        file["mutants"].append(mutant(matrix, name, bugs[name]))
    tests = dict[str, dict[str, Any]]()
    for name in matrix.laws:
        check = laws()[name].check
        tests.setdefault(path_of(check), {**source_of(check), "tests": []})["tests"].append(test(laws()[name]))
    report = {
        "schemaVersion": "2",
        "thresholds": THRESHOLDS,
        "projectRoot": str(ROOT),
        "files": files,
        "testFiles": tests,
        "framework": {"name": "kvref", "version": matrix.version},
        "config": {"examples": matrix.examples, "seed": matrix.seed, "gate": matrix.gate},
    }
    return json.dumps(report, indent=1) + "\n"


def mutant(matrix: Matrix, name: str, bug: Bug) -> dict[str, Any]:
    """One bug."""
    row = matrix.row(name)
    tried = [cell for cell in row if cell.mark not in (Mark.SKIPPED, Mark.UNREACHED)]
    (method,) = overridden(bug.part)
    told = next((f"{cell.law}: {cell.diverges or cell.reason}" for cell in row if cell.mark is Mark.KILLED), "")
    return {
        "id": name,
        "mutatorName": bug.family,
        "description": bug.wrong,
        "replacement": inspect.getsource(getattr(bug.part, method)).strip(),
        "location": location(overridden_by(bug)),
        "status": status(matrix, name),
        "statusReason": told or "; ".join(f"{cell.law}: {cell.reason}" for cell in tried if cell.reason),
        "coveredBy": [cell.law for cell in tried],
        "killedBy": matrix.killers(name),
        "testsCompleted": len(tried),
        "duration": round(1000 * sum(cell.seconds for cell in row)),
    }


def status(matrix: Matrix, bug: str) -> str:
    """What came of a bug, in the words of the schema."""
    marks = {cell.mark for cell in matrix.row(bug)}
    for mark, word in STATUSES.items():
        if mark in marks:
            return word if word == "Killed" or bug not in matrix.unfinished() else "Pending"
    return "Pending"


STATUSES = {
    Mark.KILLED: "Killed",
    Mark.SURVIVED: "Survived",
    Mark.TIMEOUT: "Timeout",
    Mark.ERROR: "RuntimeError",
    Mark.UNREACHED: "NoCoverage",
    Mark.SKIPPED: "NoCoverage",
}
"""A bug's status by its marks, the most telling first. Stryker counts a timeout as detected; here it kills nothing."""


def test(law: Law) -> dict[str, Any]:
    """One law."""
    return {"id": law.name, "name": law.sentence, "location": location(law.check)}


def overridden_by(bug: Bug) -> Callable[..., object]:
    """The method of the reference that a bug replaces."""
    (name,) = overridden(bug.part)
    return getattr(bug.part.__base__, name)


def path_of(function: Callable[..., object]) -> str:
    """File of a function, from the root of the project where it is in there."""
    path = file_of(function)
    return (path.relative_to(ROOT) if path.is_relative_to(ROOT) else path).as_posix()


def source_of(function: Callable[..., object]) -> dict[str, Any]:
    """Text of a function's file."""
    return {"source": file_of(function).read_text(encoding="utf-8")}


def file_of(function: Callable[..., object]) -> Path:
    """File of a function, not of what it may be wrapped in, as tests wrap it to check shapes."""
    return Path(inspect.getfile(inspect.unwrap(function))).resolve()


def location(function: Callable[..., object]) -> dict[str, Any]:
    """Where a function stands: lines and columns count from 1, and the end is behind it."""
    lines, first = inspect.getsourcelines(function)
    indented = len(lines[0]) - len(lines[0].lstrip())
    end = {"line": first + len(lines) - 1, "column": len(lines[-1].rstrip("\n")) + 1}
    return {"start": {"line": first, "column": indented + 1}, "end": end}
