"""What a project says in its pyproject.toml under `[tool.kvref]`."""

import tomllib
from pathlib import Path
from typing import Any, cast

from kvref.errors import BadInput, one_line


def project_file() -> Path | None:
    """The pyproject.toml of the project around the current folder."""
    here = Path.cwd()
    return next((path for folder in (here, *here.parents) if (path := folder / "pyproject.toml").is_file()), None)


def project() -> dict[str, Any]:
    """The pyproject.toml of the project around the current folder; empty where there is none.

    Raises `BadInput` for one that cannot be read.
    """
    file = project_file()
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{file.name} cannot be read ({one_line(error)})") from error


def setting(*keys: str) -> Any:
    """What the project around the current folder says under some keys; None where it says nothing.

    Raises `BadInput` for a pyproject.toml that cannot be read.
    """
    found: Any = project()
    for key in ("tool", "kvref", *keys):
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return found
