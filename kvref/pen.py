"""What a decoder is asked, written down as lines of Python that ask the same, while it is asked.

Each pen stands in for an implementation. A line is written before its call is made, so that a call that raises is there
too.
"""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

from kvref.errors import CaseError
from kvref.targets.causal_lm import CausalLM, Filled
from kvref.targets.module import ModuleDecoder

PAIRS = ("step", "prefill", "refill")
"""Calls that give logits and a cache."""

LOGITS = ("full", "peek")
"""Calls that give logits alone."""

CACHES = ("start", "crop", "crop_rows", "fork", "reorder", "reset")
"""Calls that give a cache alone."""

LITERAL = (type(None), bool, int, float, str)


class Pen:
    """Lines of Python, and the names in them of what came of earlier ones."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.logits = ""
        """An expression for the logits that came last."""
        self._names: dict[int, str] = {}
        self._kept: list[object] = []
        self._calls = 0

    def number(self) -> int:
        """The number of the next call."""
        self._calls += 1
        return self._calls

    def write(self, line: str) -> None:
        """Add a line."""
        self.lines.append(line)

    def name(self, thing: object, name: str) -> None:
        """Call something by a name from now on; what is written as it is needs none."""
        if not isinstance(thing, LITERAL):
            self._kept.append(thing)  # so that its number is not another's
            self._names[id(thing)] = name

    def knows(self, thing: object) -> bool:
        """Whether something has a name."""
        return id(thing) in self._names

    def spell(self, thing: object) -> str:
        """Something as Python. Raises `CaseError` for what has no name and is nothing plain."""
        if name := self._names.get(id(thing)):
            return name
        if isinstance(thing, Tensor) and not thing.dtype.is_floating_point:
            device = "" if thing.device.type == "cpu" else f', device="{thing.device}"'
            untyped: Any = thing
            return f"torch.tensor({untyped.tolist()}{device})"
        if isinstance(thing, LITERAL):
            return repr(thing)
        if isinstance(thing, list | tuple):
            parts = [self.spell(part) for part in cast("Sequence[object]", thing)]
            return f"[{', '.join(parts)}]"
        raise CaseError(f"a {type(thing).__name__} is handed on here, which cannot be written down")


class WrittenMethods:
    """An object with the protocol's methods, each call of which is written down."""

    def __init__(self, implementation: object, pen: Pen) -> None:
        self._implementation, self._pen = implementation, pen

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._implementation, name)
        if name not in PAIRS + LOGITS + CACHES or not callable(found):
            return found
        return partial(self._call, name, found)

    def _call(self, name: str, method: Callable[..., Any], *args: object) -> Any:
        pen, number = self._pen, self._pen.number()
        logits, cache = f"logits_{number}", f"cache_{number}"
        got = f"{logits}, {cache}" if name in PAIRS else logits if name in LOGITS else cache
        pen.write(f"{got} = decoder.{name}({', '.join(map(pen.spell, args))})")
        answer = method(*args)
        if name in PAIRS + LOGITS:
            pen.logits = logits
        if name not in LOGITS:
            pen.name(answer[1] if name in PAIRS else answer, cache)
        return answer


class WrittenModule(ModuleDecoder):
    """A module of the form `(tokens, cache=None) -> (logits, cache)`, each call of which is written down."""

    def __init__(self, decoder: ModuleDecoder, pen: Pen) -> None:
        vars(self).update(vars(decoder))
        module = self.module

        def call(*args: object) -> Any:
            number = pen.number()
            pen.write(f"logits_{number}, cache_{number} = model({', '.join(map(pen.spell, args))})")
            answer = module(*args)
            pen.logits = f"logits_{number}"
            pen.name(answer[1], f"cache_{number}")
            return answer

        self.module: Any = call


class WrittenLM(CausalLM):
    """A model of transformers: each call of it is written down, and what is done to its cache."""

    def __init__(self, model: Any, cache: Any, pen: Pen) -> None:
        super().__init__(model, cache)
        self.pen = pen

    @override
    def run(self, **given: Any) -> Any:
        number, pen = self.pen.number(), self.pen
        arguments = ", ".join(f"{name}={pen.spell(value)}" for name, value in given.items())
        pen.write(f"output_{number} = model({arguments})")
        output = super().run(**given)
        pen.logits = f"output_{number}.logits"
        held = output.get(self.name)
        if held is not None and not pen.knows(held):
            pen.name(held, f"output_{number}.{self.name}")
        return output

    @override
    def empty(self, slots: int) -> Any:
        made = super().empty(slots)
        if made is not None:
            name = f"cache_{self.pen.number()}"
            room = f", max_cache_len={slots}" if self.preallocates else ""
            self.pen.write(f"{name} = {type(made).__name__}(config=model.config{room})")
            if self.records:
                self.pen.write(f"{name}.activate_past_recording()")
            self.pen.name(made, name)
        return made

    @override
    def shorten(self, held: Any, removed: int) -> None:
        self.pen.write(f"{self.pen.spell(held)}.crop({-removed})")
        super().shorten(held, removed)

    @override
    def fork(self, cache: Filled) -> Filled:
        forked = super().fork(cache)
        name = f"cache_{self.pen.number()}"
        self.pen.write(f"{name} = deepcopy({self.pen.spell(cache.held)})")
        self.pen.name(forked.held, name)
        return forked

    @override
    def reorder(self, cache: Filled, rows: Sequence[int]) -> Filled:
        if cache.width:
            self.pen.write(f"{self.pen.spell(cache.held)}.reorder_cache(torch.tensor({list(rows)}))")
        return super().reorder(cache, rows)

    @override
    def reset(self, cache: Filled) -> Filled:
        if cache.held is not None:
            self.pen.write(f"{self.pen.spell(cache.held)}.reset()")
        return super().reset(cache)


def written(implementation: object, pen: Pen, *, double: bool) -> object:
    """An implementation with a pen, in float64 where that is asked for and can be had; the one that is given stays."""
    match implementation:
        case ModuleDecoder():
            other = copy(implementation)
            if double:
                other.module = _double(implementation.module)
            return WrittenModule(other, pen)
        case CausalLM():
            model: Any = _double(implementation.model) if double else implementation.model
            twin = WrittenLM(model, implementation.kind, pen)
            twin.block_size, twin.refuses = implementation.block_size, implementation.refuses
            return twin
        case _:
            return WrittenMethods(implementation, pen)


def _double(module: Any) -> Any:
    """A copy of a module in float64."""
    return deepcopy(module).to(torch.float64)
