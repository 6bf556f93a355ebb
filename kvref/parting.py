"""Where two passes first part: the first module whose output for one token is not the same with the cache and without.

Every module that runs is heard, and of each output one vector is kept, as bits, for the token in question: no tensor of
the decoder is held on to. Names are those under which the decoder's modules know each other.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder
from kvref.finding import Divergence
from kvref.lens import Lens, differs
from kvref.operations import Extend, Peek, Prefill, count
from kvref.schedule import Schedule
from kvref.trace import as_tensor, play

Heard = tuple[str, int]
"""A module, and how often it had run before in the same pass."""


@dataclass
class Listener:
    """Keeps what each module gives for one token of a pass: that of a row, in a column of those that are new."""

    names: dict[nn.Module, str]
    batch: int
    new: int
    row: int
    column: int
    vectors: dict[Heard, Tensor] = field(default_factory=dict[Heard, Tensor])
    runs: Counter[str] = field(default_factory=Counter[str])

    def hear(self, module: nn.Module, args: object, output: object) -> None:
        """Take the output of a module, if it is one vector for each new token."""
        del args
        name = self.names.get(module)
        given = first_tensor(output)
        if name is None or given is None:
            return
        if given.ndim >= 3 and given.shape[:2] == (self.batch, self.new):
            vector = given[self.row, self.column]
        elif given.ndim == 2 and given.shape[0] == self.new:
            vector = given[self.column]  # as positions are, the same for every row
        else:
            return
        self.vectors[name, self.runs[name]] = vector.detach().flatten().clone()
        self.runs[name] += 1


def first_tensor(output: object) -> Tensor | None:
    """The tensor that a module gives, or the first of several things."""
    if isinstance(output, tuple | list) and output:
        output = cast("Sequence[object]", output)[0]
    return output if isinstance(output, Tensor) else None


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """While it is active, every module that runs is heard."""
    hook: Any = register_module_forward_hook(listener.hear)
    try:
        yield
    finally:
        hook.remove()


def named_modules(decoder: Decoder) -> dict[nn.Module, str]:
    """Names of the modules that a decoder is made of, so far as it has them as attributes, or in its model."""
    implementation: Any = decoder.implementation
    found = dict[nn.Module, str]()
    roots = [implementation] if isinstance(implementation, nn.Module) else []
    roots += [part for part in getattr(implementation, "__dict__", {}).values() if isinstance(part, nn.Module)]
    for root in roots:
        named = cast("Iterator[tuple[str, nn.Module]]", root.named_modules())
        for name, module in named:
            found.setdefault(module, name)
    return {module: f"{name} ({type(module).__name__})" for module, name in found.items() if name}


def first_parting(decoder: Decoder, schedule: Schedule, divergence: Divergence) -> str | None:
    """Say which module is the first that gives something else for the token at a divergence than in an uncached pass.

    None where the divergence is at no token of a call, no module is heard, or none of those differs.
    """
    index, row, position = divergence.step, divergence.row, divergence.position
    names = named_modules(decoder)
    if index is None or row is None or position is None or not names:
        return None
    op = schedule.ops[index]
    if not isinstance(op, Extend | Prefill | Peek):
        return None
    new = op.width if isinstance(op, Prefill) else len(op.tokens[0])
    try:
        steps = play(decoder, schedule)
        for _ in range(index):
            next(steps)
        past = schedule.contents[index][op.cache].width - (0 if isinstance(op, Peek) else new)
        cached = Listener(names, len(op.tokens), new, row, position - past)
        with listening(cached):
            tokens = next(steps).answered[row]
        at = len(tokens) - (new - cached.column)
        alone = Listener(names, 1, len(tokens), 0, at)
        if not (0 <= cached.column < new and at >= 0):
            return None
        with listening(alone):
            decoder.full(as_tensor([tokens], decoder))
    except DecoderRaised:
        return None
    return parted(cached.vectors, alone.vectors, decoder.lens)


def parted(cached: dict[Heard, Tensor], alone: dict[Heard, Tensor], lens: Lens) -> str | None:
    """The first module that both passes ran and that gave one of them something else, in words."""
    same = 0
    for heard, got in cached.items():
        want = alone.get(heard)
        if want is None or want.shape != got.shape or want.dtype != got.dtype:
            continue
        if bool(differs(got[None], want[None], lens).any()):
            before = f"; {count(same, 'module')} before it gave the same" if same else ""
            return f"{heard[0]} is the first to give it another output than without a cache{before}"
        same += 1
    return None
