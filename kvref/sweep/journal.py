"""The journal of a sweep: a line of JSON for each target, written as it is done, so that a sweep can go on later."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from kvref.errors import BadInput
from kvref.sweep.row import Row

SCHEMA = 1


class Journal:
    """A file with a first line that says what is swept and how, and a line for each target that is done.

    Raises `BadInput` for a file that was begun with other options or versions, or that cannot be read or written.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path, self.head = path, {"schema": SCHEMA, **asked}
        self.done: dict[str, list[Row]] = {}
        if path.exists() and not fresh:
            self.read()
        else:
            self.write(json.dumps(self.head) + "\n", "w")

    def read(self) -> None:
        """Take over what was done before. A last line that was cut off in the writing is as none."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
            if json.loads(lines[0] if lines else "null") != json.loads(json.dumps(self.head)):
                raise BadInput(f"{self.path} was begun with other options or versions; give another --out, or --fresh")
            whole = [line for line in lines if line.endswith("\n")]
            for line in whole[1:]:
                data: Any = json.loads(line)
                self.done[str(data["target"])] = [Row.read(row) for row in cast("list[Any]", data["rows"])]
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read ({error.strerror or error})") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(f"{self.path} is no journal of a sweep; give another --out, or --fresh") from error
        if len(whole) < len(lines):
            self.write("".join(whole), "w")

    def add(self, target: str, rows: Sequence[Row]) -> None:
        """Write what came of a target."""
        self.done[target] = list(rows)
        self.write(json.dumps({"target": target, "rows": [asdict(row) for row in rows]}) + "\n", "a")

    def write(self, text: str, mode: str) -> None:
        """Write to the file, and its folder where there is none."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise BadInput(f"{self.path} cannot be written ({error.strerror or error})") from error

    def report(self, path: Path, targets: Sequence[str], exit_code: int) -> None:
        """Write the whole as one JSON file: what was swept, how, every row, and which targets are left."""
        rows = [row for target in targets for row in self.done.get(target, [])]
        counts = {word: sum(row.came == word for row in rows) for word in dict.fromkeys(row.came for row in rows)}
        left = [target for target in targets if target not in self.done]
        data = {
            **self.head,
            "exit_code": exit_code,
            "counts": counts,
            "rows": [asdict(row) for row in rows],
            "left": left,
        }
        try:
            path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{path} cannot be written ({error.strerror or error})") from error
