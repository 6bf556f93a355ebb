"""The notebook, made from a script: cells begin at `# %%`, those of text at `# %% [markdown]`."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("build_break_measure.py")
"""What the notebook is made from: a script that also runs as it is."""

MARK, TEXT = "# %%", "# %% [markdown]"


@dataclass(frozen=True)
class Cell:
    """One cell: Markdown, or code."""

    text: bool
    source: str


def cells(script: str) -> list[Cell]:
    """The cells of a script in percent format, as Jupytext and editors write it; what is before the first is none."""
    parts = list[tuple[bool, list[str]]]()
    for line in script.splitlines():
        if line.startswith(MARK):
            parts.append((line.rstrip() == TEXT, []))
        elif parts:
            parts[-1][1].append(line)
    return [Cell(text, source(lines, text)) for text, lines in parts]


def source(lines: list[str], text: bool) -> str:
    """What is in a cell; text stands in comments."""
    plain = [line.removeprefix("#").removeprefix(" ") for line in lines] if text else lines
    return "\n".join(plain).strip()


def to_notebook(script: str) -> dict[str, Any]:
    """A notebook of nbformat 4.5, whose cells have ids that stay the same while their text does."""
    return {
        "cells": [as_json(number, cell) for number, cell in enumerate(cells(script))],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def as_json(number: int, cell: Cell) -> dict[str, Any]:
    """A cell as nbformat has it."""
    common: dict[str, Any] = {
        "id": sha256(f"{number} {cell.source}".encode()).hexdigest()[:8],
        "metadata": {},
        "source": cell.source.splitlines(keepends=True),
    }
    if cell.text:
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **common}


def write(path: Path) -> None:
    """Write the notebook. Raises `OSError` where that cannot be."""
    text = json.dumps(to_notebook(SCRIPT.read_text(encoding="utf-8")), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
