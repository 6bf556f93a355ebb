"""The exact lens: numerics under which equal means the same bits, for any decoder that runs in eager PyTorch.

A sum of floating-point numbers depends on its order, and a kernel picks its order by the shape of its operands: one row
alone comes out otherwise than among forty. That is all that keeps a right cache from giving the bits of an uncached
pass. Under the lens every sum is worked out so that neither shape nor neighbours matter, and what still differs is no
rounding of the kernels.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from kvref.errors import BadInput, NotInterceptable, RangeExceeded
from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.fold import Fold
from kvref.exactness.grid import Grid
from kvref.exactness.lens import ExactMode
from kvref.exactness.shortcut import Shortcut
from kvref.exactness.tile import Tile

__all__ = ["MODES", "Arithmetic", "ExactMode", "NotInterceptable", "RangeExceeded", "exact"]

MODES: dict[str, type[Arithmetic]] = {"tile": Tile, "grid": Grid, "fold": Fold}


@contextmanager
def exact(mode: str = "tile") -> Generator[ExactMode]:
    """Context in which torch's operators give the same bits whatever else is computed with them.

    Modes: `tile` runs real matrix kernels at fixed shapes, `grid` rounds operands so that every sum is exact, `fold`
    adds in one fixed tree. Raises `NotInterceptable` for an operator that is neither harmless nor replaced, and
    `RangeExceeded` for numbers beyond the grid; `BadInput` for a mode that there is not.

        with torch.no_grad(), kvref.exact("grid"):
            assert model(tokens)[:, 5:].equal(cached(tokens))
    """
    lens = shared(mode)
    outer, lens.refused = lens.refused, []
    try:
        with lens, shorter_way(mode):
            yield lens
        lens.arithmetic.check()
    except Exception as error:
        # What the decoder made of a refusal does not matter.
        if lens.refused:
            raise NotInterceptable(f"not interceptable: {lens.refused[0]}") from error
        raise
    else:
        if lens.refused:
            raise NotInterceptable(f"not interceptable: {lens.refused[0]}")
    finally:
        lens.refused = outer
        lens.arithmetic.forget()


@cache
def shorter_way(mode: str) -> Shortcut:
    """The shorter way to the lens of a mode."""
    return Shortcut(shared(mode).arithmetic)


@cache
def shared(mode: str) -> ExactMode:
    """The one lens of a mode, which keeps the weights that it has prepared."""
    if mode not in MODES:
        raise BadInput(f"there is no exact mode {mode!r}; there are {', '.join(MODES)}")
    return ExactMode(MODES[mode]())
