"""What was measured, kept: a line of JSON for each sample as it comes, and one file with the environment in the end."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from kvref.errors import BadInput
from kvref.measure.samples import Sample

LINES, WHOLE = "measure.jsonl", "measure.json"
"""The files."""


class Kept:
    """A folder with `measure.jsonl`, which has every sample even of a run that is killed, and `measure.json`.

    Raises `BadInput` where they cannot be written, before anything is measured.
    """

    def __init__(self, folder: Path, head: Mapping[str, Any]) -> None:
        self.folder, self.head = folder, dict(head)
        self.samples = list[Sample]()
        self.lines: TextIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in (LINES, WHOLE):
                (folder / name).open("a").close()  # what is there stays until there is something new
        except OSError as error:
            raise BadInput(f"{folder} cannot be written to ({error.strerror or error}); give another --out") from None

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        if self.lines is None:
            self.lines = (self.folder / LINES).open("w", encoding="utf-8")
            self.write(self.head)
        self.samples.append(sample)
        self.write(asdict(sample))

    def write(self, data: Mapping[str, Any]) -> None:
        """One line, in the file when this returns."""
        if self.lines is not None:
            self.lines.write(json.dumps(data) + "\n")
            self.lines.flush()

    def close(self, lines: Sequence[str], *, stopped: bool) -> Path | None:
        """Write environment, settings, what was said and every sample in one file; nothing where there is no sample."""
        if self.lines is None:
            return None
        self.lines.close()
        path = self.folder / WHOLE
        data = {**self.head, "stopped": stopped, "said": list(lines), "samples": [asdict(one) for one in self.samples]}
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        return path
