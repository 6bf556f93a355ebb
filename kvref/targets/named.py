"""Targets by a name of one's own: `[tool.kvref.targets.NAME]` in pyproject.toml, or an entry point of a package."""

import tomllib
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

from kvref.errors import TargetError, one_line

GROUP = "kvref.targets"
"""Entry points of this group are factories of decoders, or what else a target may lead to."""

OPTIONS = ("target", "cache", "attn")
"""What a table of pyproject.toml may say."""


@dataclass(frozen=True)
class Named:
    """What a name stands for: a target, and the kinds of cache and attention that are meant."""

    target: str
    cache: str | None = None
    attn: str | None = None


def named_in_project(name: str) -> Named | None:
    """What the project around the current folder calls so. Raises `TargetError` for a table that cannot be meant."""
    here = Path.cwd()
    file = next((path for folder in (here, *here.parents) if (path := folder / "pyproject.toml").is_file()), None)
    if file is None:
        return None
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TargetError(f"{file.name} cannot be read ({one_line(error)})") from error
    table: Any = data
    for key in ("tool", "kvref", "targets", name):
        table = cast("dict[str, Any]", table).get(key) if isinstance(table, dict) else None
    if table is None:
        return None
    options = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    texts = all(isinstance(value, str) for value in options.values())
    if "target" not in options or not texts or options.keys() - set(OPTIONS):
        raise TargetError(f"[tool.kvref.targets.{name}] must have a target, and may have cache and attn, all texts")
    return Named(**options)


def named_by_package(name: str) -> Any:
    """What an installed package calls so, loaded; None where none does. Raises `TargetError` where it cannot be."""
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        return None
    try:
        return found[0].load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise TargetError(f"the entry point {name} ({found[0].value}) cannot be loaded ({one_line(error)})") from error
