"""Weights that were made ready once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """What a weight was when it was prepared, and what was made of it."""

    weight: "ref[Tensor]"
    version: int
    pointer: int
    made: T


class Prepared(Generic[T]):
    """Prepares each weight once, and again when it has changed; a weight that is gone is forgotten.

    What is prepared must not keep the weight itself alive, and gets it detached.

    A change through `weight.data` goes past torch's count of changes, and is not seen while the weight stays in place.
    """

    def __init__(self, prepare: Callable[[Tensor], T]) -> None:
        self.prepare = prepare
        self.entries: dict[int, Entry[T]] = {}

    def __getitem__(self, weight: Tensor) -> T:
        entry = self.entries.get(id(weight))
        if entry is None or entry.weight() is not weight:
            return self.anew(weight)
        unchanged = entry.version == weight._version and entry.pointer == weight.data_ptr()
        return entry.made if unchanged else self.anew(weight)

    def anew(self, weight: Tensor) -> T:
        """Prepare a weight, and keep it unless torch does not count its changes."""
        made = self.prepare(weight.detach())
        if not weight.is_inference():
            key, entries = id(weight), self.entries
            entries[key] = Entry(
                ref(weight, lambda _: entries.pop(key, None)), weight._version, weight.data_ptr(), made
            )
        return made
