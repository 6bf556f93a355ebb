"""The kill matrix: every bug under every law. It says what the laws are good for, and which of them a bug needs.

Nothing of torch is imported here, so that the command line can show its help without it.
"""

from typing import TYPE_CHECKING

from kvref.matrix.cells import Cell, Mark, Matrix, read_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvref.bug import Bug
    from kvref.matrix.gate import Strength
    from kvref.search import Effort
    from kvref.targets import Bench

__all__ = ["Cell", "Mark", "Matrix", "read_matrix", "strength"]


def strength(
    laws: "Sequence[str]",
    effort: "Effort",
    bench: "Bench",
    bugs: "Mapping[str, Bug] | None" = None,
    workers: int | None = None,
) -> "Strength":
    """How many of the catalogued bugs, or of those given, some laws kill with an effort; `str` says it in a sentence.

    The reference has to hold these laws: a law that fails on it kills everything.
    """
    from kvref.matrix.gate import strength_of

    return strength_of(laws, effort, bench, bugs, workers)
