"""Weights that were made ready once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What a weight was when it was prepared, and what was made of it."""

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
        self.entries: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __getitem__(self, weight: Tensor) -> T:
        if weight.is_inference():
            return self.prepare(weight)  # torch does not count its changes
        entry: Entry[T] | None = self.entries.get(weight)
        if entry is None or (entry.version, entry.pointer) != (weight._version, weight.data_ptr()):
            entry = Entry(weight._version, weight.data_ptr(), self.prepare(weight.detach()))
            self.entries[weight] = entry
        return entry.made
