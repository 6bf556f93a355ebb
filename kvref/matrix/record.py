"""The kills that were measured last: what kvref ships, so that nobody has to measure them again to know of them.

`kvref bugs run --record FILE` writes it. A test holds it to the catalogue and to the laws that there are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvref.matrix.cells import Mark, Matrix


@dataclass(frozen=True)
class Record:
    """Which laws kill which bug, and at which example, of so many with a seed."""

    versions: str
    examples: int
    seed: int
    kills: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, matrix: Matrix, versions: str) -> "Record":
        """The kills of a whole matrix."""
        kills = {
            bug: {cell.law: cell.killed_after or 0 for cell in matrix.row(bug) if cell.mark is Mark.KILLED}
            for bug in matrix.bugs
        }
        return cls(versions, matrix.examples, matrix.seed, kills)

    def killers(self, bug: str) -> list[str]:
        """Laws that kill a bug, the soonest first."""
        return sorted(self.kills.get(bug, {}), key=self.kills.get(bug, {}).__getitem__)

    def alive(self, examples: Mapping[str, int]) -> list[str]:
        """Bugs that survive laws, each tried with so many examples."""
        return [
            bug
            for bug, kills in self.kills.items()
            if not any(law in examples and after <= examples[law] for law, after in kills.items())
        ]

    def to_json(self) -> str:
        """The record as JSON, a bug a line."""
        head = {"versions": self.versions, "examples": self.examples, "seed": self.seed}
        rows = ",\n".join(f"  {json.dumps(bug)}: {json.dumps(dict(kills))}" for bug, kills in self.kills.items())
        return json.dumps(head)[:-1] + ',\n "kills": {\n' + rows + "\n}}\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read what `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        return cls(**data)


@cache
def record() -> Record:
    """The record that comes with kvref."""
    return Record.from_json(files("kvref.matrix").joinpath("record.json").read_text(encoding="utf-8"))
