"""The plot of a finding: how wrong the logits of each position are, on a logarithmic scale, as inline SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

import torch

from kvref.finding import Finding
from kvref.markup import Markup, joined, tag
from kvref.operations import count
from kvref.positions import Error

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 96, 16, 22, 46
"""Margins around the points."""

ROUNDING_ROOM = 2
"""Decades that are shown below the rounding of the dtype, so that its line is inside."""

MOST_TICKS = 16


@dataclass(frozen=True)
class Scale:
    """Where a position and an error are drawn. Errors of 0 have a line at the bottom, endless ones at the top."""

    last: int
    rows: int
    low: int
    high: int

    def x(self, position: float) -> float:
        """Pixels from the left."""
        return LEFT + (position + 0.5) * (WIDTH - LEFT - RIGHT) / (self.last + 1)

    def y(self, gap: float) -> float:
        """Pixels from the top."""
        if not isfinite(gap):
            return TOP
        # The lowest decade is above the line of 0 by one step, as is the highest below that of endless errors.
        level = 0.0 if gap <= 0 else 1 + min(max(log10(gap), self.low), self.high) - self.low
        return HEIGHT - BOTTOM - level * (HEIGHT - TOP - BOTTOM) / (self.high - self.low + 2)

    def place(self, error: Error) -> tuple[float, float]:
        """Where an error is drawn: rows beside each other, within the room of a position."""
        return self.x(error.position + 0.7 * ((error.row + 0.5) / self.rows - 0.5)), self.y(error.gap)


def plot(finding: Finding) -> Markup:
    """The figure with its caption; nothing where no logits came back."""
    errors = finding.errors
    if not errors:
        return Markup()
    wrong = [error for error in errors if error.gap > finding.lens.bound]
    eps = float(torch.finfo(finding.lens.dtype).eps)
    scale = scale_for(errors, eps)
    label = caption(errors, wrong)
    drawing = tag(
        "svg",
        tag("title", label),
        axes(scale, eps, str(finding.lens.dtype).removeprefix("torch.")),
        *(point(error, scale, finding.lens.bound) for error in errors),
        *([pointer(wrong[0], scale)] if wrong else []),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )
    return tag("figure", drawing, tag("figcaption", label))


def caption(errors: Sequence[Error], wrong: Sequence[Error]) -> str:
    """What the plot shows, in words."""
    all_of = count(len(errors), "position")
    if not wrong:
        return f"All logits that came back, of {all_of}, are those of one uncached pass: what is wrong is not in them."
    first = wrong[0]
    return (
        f"Logits against those of one uncached pass: {len(wrong)} of {all_of} are wrong, first in step {first.step}, "
        f"row {first.row}, position {first.position}."
    )


def scale_for(errors: Sequence[Error], eps: float) -> Scale:
    """A scale on which all errors have a place, and the rounding of the dtype too."""
    sizes = [error.gap for error in errors if isfinite(error.gap) and error.gap > 0]
    low = floor(log10(min([*sizes, eps * 10**-ROUNDING_ROOM])))
    high = ceil(log10(max([*sizes, 1.0])))
    return Scale(max(error.position for error in errors), 1 + max(error.row for error in errors), low, high)


def axes(scale: Scale, eps: float, dtype: str) -> Markup:
    """Lines and labels."""
    every = max(1, ceil((scale.high - scale.low) / 5))
    sizes = [(10.0**n, f"1e{n:+03d}" if n else "1") for n in range(scale.high, scale.low - 1, -every)]
    rows = [(0.0, "equal"), *sizes, *([(float("inf"), "not finite")])]
    lines = [level(scale.y(gap), said, "grid") for gap, said in rows]
    lines.append(level(scale.y(eps), "", "floor"))
    lines.append(tag("text", f"rounding of {dtype}", x=WIDTH - RIGHT, y=scale.y(eps) - 4, text_anchor="end"))
    step = max(1, ceil((scale.last + 1) / MOST_TICKS))
    bottom = HEIGHT - BOTTOM + 18
    lines += [tag("text", n, x=scale.x(n), y=bottom, text_anchor="middle") for n in range(0, scale.last + 1, step)]
    lines.append(tag("text", "position", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle"))
    return joined(*lines)


def level(y: float, said: str, kind: str) -> Markup:
    """A line across the plot, and what it stands for."""
    line = tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", class_=kind)
    return joined(line, tag("text", said, x=LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end") if said else "")


def point(error: Error, scale: Scale, bound: float) -> Markup:
    """A full disc for logits that are wrong, a ring for those that are right."""
    x, y = scale.place(error)
    said = f"step {error.step}, row {error.row}, position {error.position}: off by {error.gap:.2g}"
    kind = "wrong" if error.gap > bound else "right"
    return tag("circle", tag("title", said), cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_=kind)


def pointer(first: Error, scale: Scale) -> Markup:
    """A line up to the first wrong logits, and the step that gave them."""
    x, y = scale.place(first)
    left = x > (LEFT + WIDTH) / 2
    aside, anchor = (x - 8, "end") if left else (x + 8, None)
    stem = tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=HEIGHT - BOTTOM, y2=f"{y + 4:.1f}", class_="first")
    said = f"first wrong: step {first.step}"
    return joined(stem, tag("text", said, x=f"{aside:.1f}", y=f"{y + 4:.1f}", text_anchor=anchor, class_="first"))
