"""Targets by a name of one's own: `[tool.kvref.targets.NAME]` in pyproject.toml, or an entry point of a package."""

from dataclasses import dataclass
from importlib.metadata import entry_points
from os.path import relpath
from pathlib import Path
from typing import Any, cast

from kvref.errors import TargetError, one_line
from kvref.project import project_file, setting

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
    table = setting("targets", name)
    if table is None:
        return None
    options = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    texts = all(isinstance(value, str) for value in options.values())
    if "target" not in options or not texts or options.keys() - set(OPTIONS):
        raise TargetError(f"[tool.kvref.targets.{name}] must have a target, and may have cache and attn, all texts")
    return Named(**options | {"target": from_here(options["target"])})


def from_here(target: str) -> str:
    """A target of the project, with its path as it is from the current folder."""
    head, colon, tail = target.partition(":")
    path = tail if head == "hf" and tail.startswith(".") else head if head.endswith(".py") else ""
    file = project_file()
    if not path or file is None or Path(path).is_absolute():
        return target
    near = relpath(file.parent / path)
    return f"hf:{near if near.startswith('.') else f'./{near}'}" if head == "hf" else f"{near}{colon}{tail}"


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
