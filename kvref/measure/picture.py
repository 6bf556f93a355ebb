"""The plot: time per token against position, without a cache a rising line and with one a flat one.

PNG and SVG are drawn by matplotlib, the plot for a terminal by uniplot; both come with the extra `plot`, and are
imported only here.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from kvref.errors import BadInput
from kvref.measure.curves import Curves
from kvref.measure.samples import NAIVE

INSTALL = "pip install 'kvref[plot]'"

KINDS = (".png", ".svg")
"""Endings of the files that can be drawn."""

COLOURS = ("#d1495b", "#00798c", "#edae49", "#66a182", "#2e4057")
"""Told apart by those who cannot see colours too, since each line has its own mark."""

MARKS = "osD^v"


def require_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before anything is measured. Raises `BadInput`."""
    if path.suffix.lower() not in KINDS:
        raise BadInput(f"{path} is no picture that can be drawn; give a name that ends in {' or '.join(KINDS)}")
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no directory; make it first, or draw elsewhere")
    try:
        import_module("matplotlib")
    except ImportError:
        raise BadInput(f"pictures are drawn by matplotlib, which is not installed: {INSTALL}") from None


def draw(curves: Sequence[Curves], path: Path, title: str) -> None:
    """Draw a column for each subject and batch: medians as lines, the range of the repeats as a band.

    Below all ways together are the caches alone, which cannot be told apart beside the naive way.
    """
    mpl: Any = import_module("matplotlib")
    mpl.use("agg")
    plot: Any = import_module("matplotlib.pyplot")
    size, heights = (7.2 * len(curves), 6.4), (5, 3)
    figure, axes = plot.subplots(
        2, len(curves), figsize=size, height_ratios=heights, squeeze=False, layout="constrained"
    )
    for column, curve in enumerate(curves):
        panel(axes[0][column], curve, curve.ways, f"{curve.subject}, batch {curve.batch}")
        panel(axes[1][column], curve, curve.ways[1:], "the caches alone")
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=150)
    plot.close(figure)


def panel(axis: Any, curve: Curves, ways: Sequence[str], title: str) -> None:
    """Lines of some ways."""
    for way in ways:
        number = curve.ways.index(way)
        spreads = [curve.at(way, position) for position in curve.positions]
        colour, name = COLOURS[number % len(COLOURS)], "no cache" if way == NAIVE else f"{way} cache"
        middles = [1000 * spread.middle for spread in spreads]
        axis.plot(curve.positions, middles, color=colour, marker=MARKS[number % len(MARKS)], markersize=4, label=name)
        low, high = [1000 * spread.low for spread in spreads], [1000 * spread.high for spread in spreads]
        axis.fill_between(curve.positions, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("tokens in the sequence")
    axis.set_ylabel("ms for the next token")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)


def terminal(curve: Curves, width: int = 60, height: int = 14) -> list[str]:
    """The same as lines of plain characters; where uniplot is missing, one line that says so."""
    try:
        uniplot: Any = import_module("uniplot")
    except ImportError:
        return [f"(the plot is drawn here with uniplot: {INSTALL})"]
    text: str = uniplot.plot_to_string(
        xs=[curve.positions for _ in curve.ways],
        ys=[[1000 * curve.at(way, position).middle for position in curve.positions] for way in curve.ways],
        lines=True,
        legend_labels=curve.ways,
        title="ms for the next token, by tokens in the sequence",
        width=width,
        height=height,
        y_min=0,
        character_set="ascii",
        color=False,
    )
    return text.splitlines()
