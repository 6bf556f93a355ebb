"""The kill matrix as data: which law kills which bug, and how soon. Nothing here imports torch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, cast

from kvref.errors import MatrixError, ScheduleError
from kvref.schedule import Schedule

SCHEMA = 1


class Mark(StrEnum):
    """What came of a bug under a law.

    An error is a decoder that raised, or a process that died: it kills nothing. A bug is unreached by a law whose
    schedules never call the method that it replaces.
    """

    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "unreached"
    ERROR = "error"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Cell:
    """One law tried on one bug, or on the reference.

    `examples` were tried; the first that failed was number `killed_after`, `killed_seconds` into the search.
    `schedule` is that one, or the smallest where it was shrunk; `diverges` says where it shows on it, and `origin`
    which keys or values are the first wrong ones. `forward_seconds` is the part of `seconds` spent in the decoder.
    `called` are the methods of the reference that its own cells reached, of those that bugs replace.
    """

    subject: str
    law: str
    mark: Mark
    reason: str = ""
    examples: int = 0
    killed_after: int | None = None
    killed_seconds: float | None = None
    seconds: float = 0.0
    forward_seconds: float = 0.0
    schedule: Schedule | None = None
    diverges: str = ""
    origin: str = ""
    called: tuple[str, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """Bugs by laws, with the reference's own cells.

    With `gate` a bug has cells up to the first that kills it. When `stopped`, cells are missing.
    """

    bugs: tuple[str, ...]
    laws: tuple[str, ...]
    cells: tuple[Cell, ...]
    reference: tuple[Cell, ...] = ()
    examples: int = 0
    seed: int = 0
    gate: bool = False
    stopped: bool = False
    seconds: float = 0.0
    version: str = ""

    @cached_property
    def by_place(self) -> dict[tuple[str, str], Cell]:
        """Cells by bug and law."""
        return {(cell.subject, cell.law): cell for cell in self.cells}

    def row(self, bug: str) -> list[Cell]:
        """Cells of a bug, in the order of the laws."""
        return [self.by_place[bug, law] for law in self.laws if (bug, law) in self.by_place]

    def killers(self, bug: str) -> list[str]:
        """Laws that kill a bug."""
        return [cell.law for cell in self.row(bug) if cell.mark is Mark.KILLED]

    def survivors(self) -> list[str]:
        """Bugs that no law kills."""
        return [bug for bug in self.bugs if not self.killers(bug)]

    def unfinished(self) -> list[str]:
        """Bugs that were neither killed by a gate nor tried on every law."""
        return [bug for bug in self.bugs if not (self.gate and self.killers(bug)) and len(self.row(bug)) < self.width]

    def unhealthy(self) -> list[Cell]:
        """Cells in which the reference did not hold."""
        return [cell for cell in self.reference if not healthy(cell)]

    @property
    def width(self) -> int:
        """How many laws there are."""
        return len(self.laws)

    def to_json(self) -> str:
        """The matrix as JSON, a cell a line."""
        head = {"schema": SCHEMA, **{name: getattr(self, name) for name in HEAD}}
        lines = [f'"{name}": {json.dumps(value)}' for name, value in head.items()]
        for name in ("reference", "cells"):
            cells = ",\n".join(f"  {json.dumps(written(cell))}" for cell in getattr(self, name))
            lines.append(f'"{name}": [\n{cells}\n]' if cells else f'"{name}": []')
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Matrix":
        """Read what `to_json` wrote; raise `MatrixError` with what is wrong with it if it is something else."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MatrixError(f"not a kill matrix: no JSON ({error})") from None
        data = mapping(data, "a kill matrix")
        if type(data.get("schema")) is not int or data["schema"] != SCHEMA:
            raise MatrixError(f"schema {data.get('schema')} of a kill matrix is unknown; this kvref reads {SCHEMA}")
        head: dict[str, Any] = {name: typed(data, name, kinds, "the matrix") for name, kinds in HEAD.items()}
        head.update({name: strings(head[name], name) for name in ("bugs", "laws")})
        reference, cells = (
            tuple(
                read_cell(cell, f"{name}[{number}]")
                for number, cell in enumerate(typed(data, name, LIST, "the matrix"))
            )
            for name in ("reference", "cells")
        )
        matrix = cls(cells=cells, reference=reference, **head)
        require_places(matrix)
        return matrix


Kinds = tuple[type, ...]
LIST: Kinds = (list,)
HEAD: dict[str, Kinds] = {
    "version": (str,),
    "bugs": LIST,
    "laws": LIST,
    "examples": (int,),
    "seed": (int,),
    "gate": (bool,),
    "stopped": (bool,),
    "seconds": (int, float),
}
CELL: dict[str, Kinds] = {
    "subject": (str,),
    "law": (str,),
    "mark": (str,),
    "reason": (str,),
    "examples": (int,),
    "killed_after": (int, NoneType),
    "killed_seconds": (int, float, NoneType),
    "seconds": (int, float),
    "forward_seconds": (int, float),
    "schedule": (dict, NoneType),
    "diverges": (str,),
    "origin": (str,),
    "called": LIST,
}
"""Types that JSON has for what stands in a matrix and in a cell."""


def healthy(cell: Cell) -> bool:
    """Whether a cell of the reference is as it has to be."""
    return cell.mark in (Mark.SURVIVED, Mark.SKIPPED)


def written(cell: Cell) -> dict[str, Any]:
    """A cell as JSON has it."""
    data = {field.name: getattr(cell, field.name) for field in fields(cell)}
    return {**data, "schedule": cell.schedule and json.loads(cell.schedule.to_json())}


def read_cell(data: object, where: str) -> Cell:
    """A cell from its JSON form."""
    data = mapping(data, where)
    values: dict[str, Any] = {name: typed(data, name, kinds, where) for name, kinds in CELL.items()}
    if values["mark"] not in list(Mark):
        raise MatrixError(f"{where}: there is no mark {values['mark']!r}; there are {', '.join(Mark)}")
    try:
        schedule = values["schedule"] and Schedule.from_json(json.dumps(values["schedule"]))
    except ScheduleError as error:
        raise MatrixError(f"{where}: {error}") from None
    values.update(mark=Mark(values["mark"]), schedule=schedule, called=strings(values["called"], "called"))
    return Cell(**values)


def mapping(data: object, where: str) -> dict[str, object]:
    """What must be a JSON object."""
    if not isinstance(data, dict):
        raise MatrixError(f"not a kill matrix: {where} is no JSON object")
    return cast("dict[str, object]", data)


def typed(data: dict[str, object], name: str, kinds: Kinds, where: str) -> Any:
    """A value that must be there and have one of some types."""
    if name not in data:
        raise MatrixError(f"not a kill matrix: {where} has no {name!r}")
    value = data[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise MatrixError(f"not a kill matrix: {name!r} of {where} is {value!r:.60}")
    return value


def strings(values: Sequence[object], name: str) -> tuple[str, ...]:
    """Names that must be strings."""
    if not all(isinstance(value, str) for value in values):
        raise MatrixError(f"not a kill matrix: {name!r} has something that is no name")
    return tuple(cast("Sequence[str]", values))


def require_places(matrix: Matrix) -> None:
    """Raise `MatrixError` unless every cell is about a bug and a law of the matrix, and no two about the same.

    Bugs and laws are there, each once, and a cell that is marked as killed says after how many examples.
    """
    for names in (matrix.bugs, matrix.laws):
        if not names or len(set(names)) < len(names):
            raise MatrixError("a kill matrix lists bugs and laws, each once")
    listed, known = set(matrix.bugs), set(matrix.laws)
    for cell in (*matrix.cells, *matrix.reference):
        if cell.law not in known or not (cell.subject in listed or cell in matrix.reference):
            raise MatrixError(f"a cell is about {cell.subject} and {cell.law}, which the matrix does not list")
        counted = cell.killed_after is not None and cell.killed_after >= 1
        if counted != (cell.mark is Mark.KILLED) or cell.examples < 0:
            raise MatrixError(f"{cell.subject} is {cell.mark} under {cell.law}, after an impossible number of examples")
    if len(matrix.by_place) < len(matrix.cells):
        raise MatrixError("two cells are about the same bug and law")


def read_matrix(path: Path) -> Matrix:
    """A matrix from a file; raises `MatrixError` with the file's name."""
    try:
        return Matrix.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MatrixError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a MatrixError, or bytes that are no UTF-8
        raise MatrixError(f"{path}: {error}") from None
