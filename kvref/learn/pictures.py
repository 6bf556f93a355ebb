"""Small pictures for a terminal: at which positions the wrong step stood and what it saw, beside what it should have.

They are taken from what the model really does: the ids that go into `wpe`, and what its first attention may read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder
from kvref.finding import Finding, LawBroken, expect_keys_values
from kvref.gpt2 import GPT
from kvref.lens import Lens
from kvref.operations import Extend, Prefill
from kvref.schedule import Schedule
from kvref.trace import FirstLayers, Layers, Step, play, prefilled, tokens_of

SEES, HIDDEN = "#", "."
"""How a key is drawn that a new token sees, and one that it does not."""

RIGHT, WRONG = "=", "x"
"""How a cached token is drawn whose keys and values are those of a prefill, and one whose are not."""


UNIT = 1.0
"""A bound under which nothing differs, for a pass that is watched and not compared."""


class Seen(TorchFunctionMode):
    """Notes what the first attention of the last pass was given to read: shape (batch, new, keys), True where seen."""

    def __init__(self) -> None:
        super().__init__()
        self.visible: Tensor | None = None

    @override
    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        given: dict[str, Any] = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and self.visible is None:
            queries, keys, mask = args[0], args[1], given.get("attn_mask")
            shape = queries.size(0), queries.size(2), keys.size(2)
            every = torch.ones(shape, dtype=torch.bool)
            self.visible = every if mask is None else looks(mask).expand(shape[0], 1, *shape[1:])[:, 0]
        return func(*args, **given)


def looks(mask: Tensor) -> Tensor:
    """A mask as truth values: what is added to scores hides where it is very low."""
    return (mask if mask.dtype == torch.bool else mask > -1e4).detach().clone()


@dataclass(frozen=True)
class Scene:
    """What one step did: the ids of its positions, and what its tokens saw, each as `batch new ...`."""

    step: Step
    positions: Tensor | None
    visible: Tensor | None


def drawn(decoder: Decoder, finding: Finding) -> list[str]:
    """Pictures of the step at which a schedule goes wrong, where it is one that runs tokens; else nothing."""
    index, row = finding.divergence.step, finding.divergence.row or 0
    if index is None or not isinstance(finding.schedule.ops[index], Extend | Prefill):
        return []
    # An exact lens takes attention apart before it can be watched; what is seen is the same under ordinary kernels.
    scene = watched(decoder.under(Lens("native", decoder.lens.dtype, UNIT)), finding.schedule, index)
    if scene is None or row >= len(scene.step.content.rows):
        return []
    return [
        *positions_of(scene, row),
        *visible_of(scene, row),
        *cached_of(played(decoder, finding.schedule, index), row),
    ]


def played(decoder: Decoder, schedule: Schedule, index: int) -> Step | None:
    """A step of a schedule, with all before it; None where it cannot be played so far."""
    try:
        return next(islice(play(decoder, schedule), index, None), None)
    except DecoderRaised:
        return None


def watched(decoder: Decoder, schedule: Schedule, index: int) -> Scene | None:
    """Play a schedule up to a step, and watch that one; None where it cannot be played so far."""
    model = getattr(decoder.given, "model", None)
    if not isinstance(model, GPT):
        return None
    ids, seen, steps = list[Tensor](), Seen(), play(decoder, schedule)

    def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        ids.append(given[0].detach().clone())

    try:
        for _ in islice(steps, index):
            pass
        hook = model.transformer.wpe.register_forward_pre_hook(note)
        try:
            with seen:
                step = next(steps)
        finally:
            hook.remove()
    except (DecoderRaised, StopIteration):
        return None
    return Scene(step, ids[0] if ids else None, seen.visible)


def positions_of(scene: Scene, row: int) -> list[str]:
    """Position ids of the new tokens of a row, where they are not those that follow its past."""
    step, ids = scene.step, scene.positions
    if ids is None:
        return []
    last = len(step.content.rows[row])
    new = min(step.new, last)
    want = list(range(last - new, last))
    got = [int(number) for number in (ids if ids.ndim == 1 else ids[min(row, len(ids) - 1)])][-new:]
    if got == want:
        return []
    width = max(len(str(number)) for number in (*want, *got))
    return [
        f"position ids   {name:9}{spaced(numbers, width)}" for name, numbers in (("expected", want), ("yours", got))
    ]


def spaced(numbers: Sequence[int], width: int) -> str:
    """Numbers in columns."""
    return " ".join(f"{number:{width}}" for number in numbers)


def visible_of(scene: Scene, row: int) -> list[str]:
    """Which keys each new token of a row sees, where that is not its own past and itself."""
    step, visible = scene.step, scene.visible
    if visible is None:
        return []
    last, width = len(step.content.rows[row]), step.content.width
    new = min(step.new, last)
    want = [[width - last <= column <= width - new + token for column in range(width)] for token in range(new)]
    got = [[bool(sees) for sees in line] for line in visible[min(row, len(visible) - 1)][-new:]]
    if got == want:
        return []
    left, right = [grid_line(line) for line in want], [grid_line(line) for line in got]
    column = max(len("expected"), width) + 3
    legend = f"   ({SEES} seen, {HIDDEN} not)"
    title = f"{'expected':{column}}{'yours':{max(len('yours'), width)}}{legend}"
    lines = [title, *(f"{a:{column}}{b}" for a, b in zip(left, right, strict=False))]
    names = ["keys seen", *(f"token {step.content.width - new + number}" for number in range(new))]
    return [f"{name:15}{line}" for name, line in zip(names, lines, strict=False)]


def grid_line(line: Sequence[bool]) -> str:
    """One new token's keys."""
    return "".join(SEES if sees else HIDDEN for sees in line)


def cached_of(step: Step | None, row: int) -> list[str]:
    """Which cached tokens of a row have the keys and values of one prefill, where some do not."""
    try:
        layers = step.keys_values() if step else None
        if not step or not layers or step.content.ragged or not step.content.rows[row]:
            return []
        tokens = step.content.rows[row]
        want = prefilled(step.decoder, [tokens])
        got = tokens_of(layers, row, len(tokens))
        marks = [RIGHT if same_at(step, got, want, place) else WRONG for place in range(len(tokens))]
    except DecoderRaised:
        return []
    legend = f"{RIGHT} keys and values of one prefill, {WRONG} others"
    return [f"{'cached tokens':15}{''.join(marks)}   {legend}"] if WRONG in marks else []


def same_at(step: Step, got: FirstLayers, want: Layers, place: int) -> bool:
    """Whether the keys and values of a row's token are those of a prefill of the row."""
    at = slice(place, place + 1)
    mine, theirs = ([(keys[:, :, at], values[:, :, at]) for keys, values in layers] for layers in (got, want))
    try:
        expect_keys_values(step, mine, theirs, "of one prefill", step.decoder.lens)
    except LawBroken:
        return False
    return True
