"""Weights that were made ready once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

T = TypeVar("T")

SAMPLE = 1024
"""Numbers of a weight that are looked at to see whether it has changed."""

Place = tuple[int, tuple[int, ...], tuple[int, ...], object]


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """What a weight was when it was prepared, and what was made of it."""

    weight: "ref[Tensor]"
    version: int
    place: Place
    sample: Tensor
    as_it_was: Tensor
    made: T


class Prepared(Generic[T]):
    """Prepares each weight once, and again when it has changed; a weight that is gone is forgotten.

    What is prepared must not keep the weight itself alive, and gets it detached. Torch counts changes, but not those
    through `weight.data`, as adapters are merged by; so numbers are looked at too, all of a small weight, and about a
    thousand all over a large one. A change through `data` of a few numbers of a large weight is not seen.
    """

    def __init__(self, prepare: Callable[[Tensor], T]) -> None:
        self.prepare = prepare
        self.entries: dict[int, Entry[T]] = {}

    def __getitem__(self, weight: Tensor) -> T:
        entry = self.entries.get(id(weight))
        if entry is None or entry.weight() is not weight:
            return self.anew(weight)
        if entry.version != weight._version or entry.place != place(weight) or not entry.sample.equal(entry.as_it_was):
            return self.anew(weight)
        return entry.made

    def anew(self, weight: Tensor) -> T:
        """Prepare a weight, and keep it unless torch does not count its changes or it has gaps in memory."""
        made = self.prepare(weight.detach())
        if not weight.is_inference() and (weight.is_contiguous() or weight.t().is_contiguous()):
            key, entries = id(weight), self.entries
            gone = ref(weight, lambda _: entries.pop(key, None))
            some = sample(weight)
            entries[key] = Entry(gone, weight._version, place(weight), some, some.clone(), made)
        return made


def place(weight: Tensor) -> Place:
    """Where a weight is in memory, and how it lies there."""
    return weight.data_ptr(), weight.shape, weight.stride(), weight.dtype


def sample(weight: Tensor) -> Tensor:
    """Some numbers all over a weight that has no gaps in memory."""
    step = -(-weight.numel() // SAMPLE) or 1
    return weight.detach().as_strided((-(-weight.numel() // step),), (step,))
