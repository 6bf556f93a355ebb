"""The KV cache, twice: one that grows by `torch.cat`, and one that is allocated once.

Both hold, for each layer, the keys and values of the past tokens, and both follow one protocol in a forward pass:
`reserve` refuses before anything is written, `append` takes each layer's new rows, and `commit` makes them part of
the past. Since `commit` comes last, a pass that dies half-way leaves the past as it was.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from kvref.errors import CacheFull

Rows = Float[Tensor, "batch n_kv_head seq head_dim"]
NewRows = Float[Tensor, "batch n_kv_head new head_dim"]


class Cache(ABC):
    """Keys and values of the past tokens of a batch. `length` counts these tokens, the same in every row."""

    length: int

    @abstractmethod
    def reserve(self, new: int) -> None:
        """Make sure that `new` more tokens fit; raise `CacheFull` if not, with nothing written."""

    @abstractmethod
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        """Take the new rows of one layer, and give all that its attention may read: the past, then the new."""

    @abstractmethod
    def commit(self, new: int) -> None:
        """Make the `new` tokens that every layer has appended part of the past."""

    @abstractmethod
    def keys_values(self, layer: int) -> tuple[Rows, Rows]:
        """Keys and values of the past tokens in one layer: written rows alone, never free slots."""

    @abstractmethod
    def crop(self, length: int) -> None:
        """Keep the first `length` tokens, as if the others had never been there."""

    @abstractmethod
    def fork(self) -> "Cache":
        """Copy into an independent cache: what happens to one never shows in the other."""

    @abstractmethod
    def reorder(self, rows: Sequence[int]) -> None:
        """Make the batch of these rows of the present one; a row may repeat or be left out (beam search).

        It must move keys, values and whatever else is kept per row, in all layers.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: the next request must find the cache as new."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every tensor that this cache keeps alive."""

    @property
    def bytes(self) -> int:
        """Memory that the cache holds, in bytes, measured from the storage of its tensors."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.tensors()}
        return sum(storages.values())

    def require_length(self, length: int) -> None:
        """Refuse a crop that would have to invent tokens, or that counts from the wrong end."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot keep {length} tokens of {self.length}; crop takes the length to keep")


class GrowingCache(Cache):
    """A cache that holds exactly the past, and copies all of it to append to it.

    Simple and never full; but appending N tokens one by one copies N(N-1)/2 rows of each layer.
    """

    def __init__(self) -> None:
        self.length = 0
        self.layers: dict[int, tuple[Rows, Rows]] = {}
        self.grown: dict[int, tuple[Rows, Rows]] = {}

    def reserve(self, new: int) -> None:
        """Do nothing: this cache grows as long as there is memory."""

    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        """Put the new rows behind the past ones, in tensors that become the past only at `commit`."""
        if layer in self.layers:
            past_keys, past_values = self.layers[layer]
            keys, values = torch.cat([past_keys, keys], dim=2), torch.cat([past_values, values], dim=2)
        else:
            # They are views into one fused tensor, and a view would keep its queries alive for as long as the cache.
            keys, values = keys.clone(), values.clone()
        self.grown[layer] = keys, values
        return self.grown[layer]

    def commit(self, new: int) -> None:
        """Replace the past by what has grown from it.

        This is the line that is forgotten when a forward pass works on a copy: the logits of that call are right,
        and the next call finds the old past.
        """
        self.layers, self.grown = self.grown, {}
        self.length += new

    def keys_values(self, layer: int) -> tuple[Rows, Rows]:
        """Keys and values of the past tokens in one layer."""
        return self.layers[layer]

    def crop(self, length: int) -> None:
        """Keep the first `length` tokens; the copy lets go of the memory of the others."""
        self.require_length(length)
        self.length = length
        self.layers = {
            layer: (keys[:, :, :length].clone(), values[:, :, :length].clone())
            for layer, (keys, values) in self.layers.items()
        }

    def fork(self) -> "GrowingCache":
        """Copy into an independent cache."""
        copy = type(self)()
        copy.length = self.length
        copy.layers = {layer: (keys.clone(), values.clone()) for layer, (keys, values) in self.layers.items()}
        return copy

    def reorder(self, rows: Sequence[int]) -> None:
        """Make the batch of these rows of the present one."""
        self.layers = {layer: (keys[list(rows)], values[list(rows)]) for layer, (keys, values) in self.layers.items()}

    def reset(self) -> None:
        """Forget everything."""
        self.length = 0
        self.layers, self.grown = {}, {}

    def tensors(self) -> list[Tensor]:
        """Every tensor that this cache keeps alive, in the middle of a pass the unfinished ones too."""
        held = [*self.layers.values(), *self.grown.values()]
        return [tensor for keys_values in held for tensor in keys_values]


class StaticCache(Cache):
    """A cache of `capacity` slots for each row, allocated once: appending copies nothing of the past.

    The slots behind `length` hold zeros, or rows of tokens long forgotten. Nothing may depend on them.
    """

    def __init__(
        self,
        n_layer: int,
        batch: int,
        n_kv_head: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.length = 0
        self.keys = torch.zeros(n_layer, batch, n_kv_head, capacity, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    @property
    def capacity(self) -> int:
        """Tokens that fit into each row."""
        return self.keys.size(3)

    def reserve(self, new: int) -> None:
        """Refuse more tokens than there are free slots, while nothing is written yet.

        Where this is missing, the write clamps to the last slot or is dropped, and the history is frozen.
        """
        if self.length + new > self.capacity:
            raise CacheFull(
                f"{new} new tokens onto {self.length} cached ones, but the cache has {self.capacity} slots: "
                "crop or reset it, or allocate more"
            )

    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        """Write the new rows into the slots behind the past, and give no slot beyond them to read."""
        end = self.length + keys.size(2)
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def commit(self, new: int) -> None:
        """Count the rows that every layer has written."""
        self.length += new

    def keys_values(self, layer: int) -> tuple[Rows, Rows]:
        """Keys and values of the past tokens in one layer."""
        return self.keys[layer, :, :, : self.length], self.values[layer, :, :, : self.length]

    def crop(self, length: int) -> None:
        """Keep the first `length` tokens; the slots of the others become free."""
        self.require_length(length)
        self.length = length

    def fork(self) -> "StaticCache":
        """Copy into an independent cache: the buffers too, since appending writes in place."""
        n_layer, batch, n_kv_head, capacity, head_dim = self.keys.shape
        copy = type(self)(n_layer, batch, n_kv_head, capacity, head_dim, self.keys.dtype, self.keys.device)
        copy.length = self.length
        copy.keys, copy.values = self.keys.clone(), self.values.clone()
        return copy

    def reorder(self, rows: Sequence[int]) -> None:
        """Make the batch of these rows of the present one."""
        self.keys, self.values = self.keys[:, list(rows)], self.values[:, list(rows)]

    def reset(self) -> None:
        """Forget everything. The slots may keep their contents, since nothing reads behind `length`."""
        self.length = 0

    def poison(self, value: float) -> None:
        """Fill every free slot with `value`, to show whether anything reads what was never written."""
        self.keys[:, :, :, self.length :] = value
        self.values[:, :, :, self.length :] = value

    def tensors(self) -> list[Tensor]:
        """Every tensor that this cache keeps alive."""
        return [self.keys, self.values]
