"""What every judging process needs, imported once by the server that they are forked from. Nothing here imports it."""

from collections.abc import Iterator
from pathlib import Path

from kvref.forks import warm

MODULES = ("exercises", "healthy", "judge", "judge_write", "repairs", "tamper", "write", "explain")


def needed() -> Iterator[str]:
    """The modules of the course, every bug and every law."""
    yield "kvref.matrix.record"
    yield from (f"kvref.learn.{name}" for name in MODULES)
    for package in ("bugs", "properties"):
        files = (Path(__file__).parents[1] / package).glob("*.py")
        yield from (
            f"kvref.{package}.{file.stem}" for file in sorted(files) if file.stem not in ("__init__", "conftest")
        )


def warm_up() -> None:
    """Start the server, if it does not run yet."""
    warm(list(needed()))
