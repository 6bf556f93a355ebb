"""A case: a finding as a file of JSON that can be read, changed by hand, kept, and played again.

It holds a command, names, numbers and a schedule, and nothing that is run: no code and no pickle.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import torch

import kvref
from kvref.errors import CaseError
from kvref.exactness import MODES
from kvref.finding import Finding
from kvref.lens import DTYPES, LIFTED, Lens
from kvref.schedule import Schedule

SCHEMA = 1
FOUND = Path(".kvref/cases")
"""Where a check puts the cases that it finds, below the folder that it runs in."""

KEPT = Path("kvref-cases")
"""Where cases are that somebody wants to keep."""

LENSES = (*MODES, *LIFTED, "native")
"""Lenses that a case may be played under."""


@dataclass(frozen=True)
class Place:
    """Where a law showed itself broken, with what was seen there: `step` counts from 1, as in a printed schedule."""

    step: int | None = None
    row: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class Case:
    """A law, a schedule, and a decoder on which the law fails.

    `check` are the arguments of `kvref check` that lead to the target, `decoder` the name of one of its decoders, and
    `lens` what it fails under. The rest is what was seen: where, what, and what was made of it.
    """

    check: str
    law: str
    decoder: str
    lens: Lens
    schedule: Schedule
    place: Place = Place()
    diverges: str = ""
    raised: bool = False
    verdict: str = ""
    versions: str = ""

    @classmethod
    def of(cls, finding: Finding) -> "Case":
        """The case of a finding."""
        divergence, verdict = finding.divergence, finding.verdict
        return cls(
            finding.command,
            finding.law,
            finding.decoder,
            finding.lens,
            finding.schedule,
            Place(**dict(divergence.places())),
            divergence.message,
            finding.raised,
            f"{verdict.kind}: {verdict.because}" if verdict else "",
            f"kvref {kvref.__version__}, torch {torch.__version__}",
        )

    @property
    def id(self) -> str:
        """Eight hexadecimal digits, of what it asks and not of what was seen."""
        asked = [self.check, self.law, self.decoder, str(self.lens), self.schedule.to_json()]
        return sha256(json.dumps(asked).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        """The case in words."""
        wrong = None if self.place.step is None else self.place.step - 1
        steps = [f"{'->' if n == wrong else '  '} {step}" for n, step in enumerate(str(self.schedule).splitlines())]
        where = ", ".join(f"{name} {value}" for name, value in vars(self.place).items() if value is not None)
        lines = [
            f"{self.law} {'met an error' if self.raised else 'is broken'}",
            f"  check     {self.check}",
            f"  decoder   {self.decoder}, lens {self.lens}",
            "  schedule",
            *(f"      {step}" for step in steps),
            f"  {'raised  ' if self.raised else 'diverges'}  {f'{where}: ' if where else ''}{self.diverges}",
            *([f"  verdict   {self.verdict}"] if self.verdict else []),
            f"  seen      with {self.versions or 'nothing yet: written by hand'}",
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The case as JSON, an operation a line."""
        lens = {"name": self.lens.name, "dtype": str(self.lens.dtype).removeprefix("torch."), "bound": self.lens.bound}
        head = {"schema": SCHEMA, "check": self.check, "law": self.law, "decoder": self.decoder, "lens": lens}
        seen = {**vars(self.place), "diverges": self.diverges, "raised": self.raised, "verdict": self.verdict}
        ops = ",\n".join(f"   {json.dumps(op)}" for op in json.loads(self.schedule.to_json())["ops"])
        parts = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
        parts += [f' "schedule": {{"schema": {json.loads(self.schedule.to_json())["schema"]}, "ops": [\n{ops}\n  ]}}']
        parts += [f' "seen": {json.dumps(seen | {"versions": self.versions})}']
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> "Case":
        """Read what `to_json` wrote, or someone by hand. Raises `CaseError`, or `ScheduleError` for its schedule."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CaseError(f"no JSON ({error})") from None
        if not isinstance(data, dict) or "schedule" not in data:
            raise CaseError('it must be {"schema": 1, "check": ..., "law": ..., "schedule": ...}')
        found = cast("dict[str, Any]", data)
        if type(found.get("schema")) is not int or found["schema"] != SCHEMA:
            raise CaseError(f"schema {found.get('schema')!r} is unknown; this kvref reads {SCHEMA}")
        return cls(
            text_of(found, "check"),
            text_of(found, "law"),
            text_of(found, "decoder"),
            lens_of(found.get("lens")),
            Schedule.from_json(json.dumps(found["schedule"])),
            **seen_of(found.get("seen")),
        )


def text_of(data: Mapping[str, Any], name: str) -> str:
    """A text that a case must have."""
    if not isinstance(value := data.get(name), str) or not value or not value.isprintable():
        raise CaseError(f"{name!r} is {value!a:.40}; it must be a text of one line")
    return value


def lens_of(data: Any) -> Lens:
    """The lens that a case is played under."""
    lens = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    name, dtype, bound = lens.get("name"), lens.get("dtype"), lens.get("bound", 0.0)
    number = type(bound) in (int, float) and 0 <= bound <= 1
    if name not in LENSES or not isinstance(dtype, str) or dtype not in DTYPES or not number:
        raise CaseError(
            f"'lens' is {data!r:.80}; it must have a name ({', '.join(LENSES)}), a dtype ({', '.join(DTYPES)}) "
            "and a bound between 0 and 1"
        )
    return Lens(name, DTYPES[dtype], float(bound))


def seen_of(data: Any) -> dict[str, Any]:
    """What was seen; a case that was written by hand says nothing of it."""
    seen = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    numbers = {name: seen.get(name) for name in Place.__dataclass_fields__}
    for name, value in numbers.items():
        if value is not None and type(value) is not int:
            raise CaseError(f"{name!r} is {value!r:.40}; it must be a whole number or null")
    texts = {name: text for name in ("diverges", "verdict", "versions") if (text := printable(seen.get(name)))}
    return {"place": Place(**numbers), "raised": seen.get("raised") is True, **texts}


def printable(value: object) -> str:
    """A text that can be shown in a line; nothing of what is no text."""
    return " ".join(value.split()).encode(errors="replace").decode() if isinstance(value, str) else ""


def read_case(path: Path) -> Case:
    """Read a case from a file. Raises `CaseError` with the name of the file."""
    try:
        return Case.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise CaseError(f"{path} cannot be read ({error.__class__.__name__})") from error
    except ValueError as error:
        raise CaseError(f"{path} is no case: {error}") from error


def save_case(case: Case, folder: Path) -> Path:
    """Write a case below its number, and give the path. Raises `CaseError` where that cannot be written."""
    path = folder / f"{case.id}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(case.to_json(), encoding="utf-8")
    except OSError as error:
        raise CaseError(f"{path} cannot be written ({error.strerror or error})") from error
    return path


def cases_called(digits: str) -> list[Path]:
    """Cases whose number begins so, the kept ones first."""
    every = [path for folder in (KEPT, FOUND) for path in sorted(folder.glob("*.json"))]
    return [path for path in every if digits and path.stem.startswith(digits)]


def find_case(name: str) -> Path:
    """The file that a path or a number names, looked for among the cases that were found and kept."""
    try:
        if (given := Path(name)).is_file():
            return given
    except (OSError, ValueError) as error:
        raise CaseError(f"{name!a:.60} is no name of a case ({type(error).__name__})") from error
    near = cases_called(name)
    if not near:
        raise CaseError(f"there is no case {name!r}, neither as a file nor in {FOUND} or {KEPT}")
    if len({path.stem for path in near}) > 1:
        raise CaseError(f"{name!r} may be {', '.join(sorted({path.stem for path in near}))}; give more digits")
    return near[0]
