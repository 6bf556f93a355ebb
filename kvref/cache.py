"""The KV cache, twice: one that grows by `torch.cat`, and one that is allocated once.

Both hold, for each layer, the keys and values of the past tokens, and both follow one protocol in a forward pass:
`reserve` refuses before anything is written, `append` takes each layer's new rows, and `commit` makes them part of
the past. Since `commit` comes last, a pass that dies half-way leaves the past as it was.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kvref.errors import CacheFull

Rows = Float[Tensor, "batch n_kv_head seq head_dim"]
NewRows = Float[Tensor, "batch n_kv_head new head_dim"]
Padding = Int[Tensor, " batch"]


KINDS = ("keys", "values")
"""What a cache holds of each token, in the order in which it gives them."""


class Cache(ABC):
    """Keys and values of the past tokens of a batch, in columns.

    `length` counts the columns. Rows that have fewer tokens have them at the right, so that all rows go on in the same
    column; `padding` counts the columns before them, for each row, and is None where no row has any. It is set before
    the first tokens come.
    """

    length: int
    padding: Padding | None = None

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
        """Keep the first `length` tokens of every row, as if the others had never been there."""

    @abstractmethod
    def realign(self, padding: Padding, length: int) -> None:
        """Move the tokens of each row behind so much padding, in `length` columns; what does not fit is dropped."""

    def crop_rows(self, lengths: Sequence[int]) -> None:
        """Keep the first tokens of each row, as many as `lengths` says for it.

        In batched speculative decoding each row accepts another number of tokens. The rows move, so that they still
        end in one column.
        """
        self.require_lengths(lengths)
        kept = torch.tensor(list(lengths), device=self.tensors()[0].device)
        self.realign(max(lengths) - kept, max(lengths))

    @abstractmethod
    def put(self, row: int, source: "Cache") -> None:
        """Write the only row of `source`, which has no more columns than this cache, over a row, at the right."""

    def insert(self, row: int, source: "Cache") -> None:
        """Give a row to another request, whose cache of one row is `source` (continuous batching).

        Nothing of the row's last occupant may be seen again; the other rows move to the right if the new one is longer.
        """
        length = max(self.length, source.length)
        self.reserve(length - self.length)
        padding = self.padded() + (length - self.length)
        self.realign(padding, length)
        self.put(row, source)
        padding[row] = length - source.length
        self.padding = padding

    @abstractmethod
    def fork(self) -> "Cache":
        """Copy into an independent cache: what happens to one never shows in the other."""

    @abstractmethod
    def reorder(self, rows: Sequence[int]) -> None:
        """Make the batch of these rows of the present one; a row may repeat or be left out (beam search).

        It must move keys, values and padding, in all layers.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: the next request must find the cache as new."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Every tensor of keys or values that this cache keeps alive."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What has to be saved, by name: the written rows, and all that is needed to go on from them."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""

    @property
    def bytes(self) -> int:
        """Memory that keys and values take, in bytes, measured from the storage of their tensors."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in self.tensors()}
        return sum(storages.values())

    @property
    def lengths(self) -> list[int]:
        """Tokens in each row; none are known before the first tokens, which bring the batch."""
        known = self.length or self.padding is not None
        return [self.length - int(columns) for columns in self.padded()] if known else []

    def padded(self) -> Padding:
        """Padding of each row, zeros included."""
        if self.padding is not None:
            return self.padding
        keys, _ = self.keys_values(0)
        return torch.zeros(keys.size(0), dtype=torch.long, device=keys.device)

    def sources(self, padding: Padding, length: int) -> Int[Tensor, "batch {length}"]:
        """Which column each of `length` columns is taken from, when a row's tokens move behind so much padding."""
        columns = torch.arange(length, device=padding.device)
        return (columns + (self.padded() - padding)[:, None]).clamp(0, self.length - 1)

    def require_length(self, length: int) -> None:
        """Refuse a crop that would have to invent tokens, or that counts from the wrong end."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot keep {length} tokens of {self.length}; crop takes the length to keep")

    def require_lengths(self, lengths: Sequence[int]) -> None:
        """Refuse a crop of rows that would have to invent tokens, or that leaves rows out."""
        if len(lengths) != len(self.lengths) or not all(
            0 <= n <= m for n, m in zip(lengths, self.lengths, strict=True)
        ):
            raise ValueError(
                f"cannot keep {list(lengths)} tokens of {self.lengths}; give the length to keep of each row"
            )


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
        if self.padding is not None:
            self.crop_rows([length] * len(self.padding))
        else:
            self.length = length
            self.layers = {
                layer: (keys[:, :, :length].clone(), values[:, :, :length].clone())
                for layer, (keys, values) in self.layers.items()
            }

    def realign(self, padding: Padding, length: int) -> None:
        """Move the tokens of each row behind so much padding."""
        index = self.sources(padding, length)[:, None, :, None]
        self.layers = {
            layer: (keys.take_along_dim(index, dim=2), values.take_along_dim(index, dim=2))
            for layer, (keys, values) in self.layers.items()
        }
        self.length, self.padding = length, padding

    def put(self, row: int, source: Cache) -> None:
        """Write the only row of `source` over a row."""
        for layer, rows in self.layers.items():
            for mine, new in zip(rows, source.keys_values(layer), strict=True):
                mine[row, :, self.length - source.length :] = new[0]

    def fork(self) -> "GrowingCache":
        """Copy into an independent cache."""
        copy = type(self)()
        copy.length, copy.padding = self.length, self.padding
        copy.layers = {layer: (keys.clone(), values.clone()) for layer, (keys, values) in self.layers.items()}
        return copy

    def reorder(self, rows: Sequence[int]) -> None:
        """Make the batch of these rows of the present one."""
        index = list(rows)
        self.layers = {layer: (keys[index], values[index]) for layer, (keys, values) in self.layers.items()}
        self.padding = None if self.padding is None else self.padding[index]

    def reset(self) -> None:
        """Forget everything."""
        self.length, self.padding = 0, None
        self.layers, self.grown = {}, {}

    def state(self) -> dict[str, Tensor]:
        """The rows of every layer, and the padding."""
        rows = {
            f"{name}.{layer}": part
            for layer, pair in self.layers.items()
            for name, part in zip(KINDS, pair, strict=True)
        }
        return rows if self.padding is None else {**rows, "padding": self.padding}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from saved rows."""
        layers = range(sum(name.startswith("keys.") for name in state))
        self.layers = {layer: (state[f"keys.{layer}"], state[f"values.{layer}"]) for layer in layers}
        self.length = self.layers[0][0].size(2) if self.layers else 0
        self.padding = state.get("padding")

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
        if self.padding is not None:
            self.crop_rows([length] * len(self.padding))
        self.length = length

    def realign(self, padding: Padding, length: int) -> None:
        """Move the tokens of each row behind so much padding."""
        index = self.sources(padding, length)[None, :, None, :, None]
        for slots in (self.keys, self.values):
            slots[:, :, :, :length] = slots.take_along_dim(index, dim=3)
        self.length, self.padding = length, padding

    def put(self, row: int, source: Cache) -> None:
        """Write the only row of `source` over a row."""
        for layer in range(self.keys.size(0)):
            for mine, new in zip((self.keys, self.values), source.keys_values(layer), strict=True):
                mine[layer, row, :, self.length - source.length : self.length] = new[0]

    def fork(self) -> "StaticCache":
        """Copy into an independent cache: the buffers too, since appending writes in place."""
        n_layer, batch, n_kv_head, capacity, head_dim = self.keys.shape
        copy = type(self)(n_layer, batch, n_kv_head, capacity, head_dim, self.keys.dtype, self.keys.device)
        copy.length, copy.padding = self.length, self.padding
        copy.keys, copy.values = self.keys.clone(), self.values.clone()
        return copy

    def reorder(self, rows: Sequence[int]) -> None:
        """Make the batch of these rows of the present one."""
        index = list(rows)
        self.keys, self.values = self.keys[:, index], self.values[:, index]
        self.padding = None if self.padding is None else self.padding[index]

    def reset(self) -> None:
        """Forget everything. The slots may keep their contents, since nothing reads behind `length`."""
        self.length, self.padding = 0, None

    def state(self) -> dict[str, Tensor]:
        """The written slots, and the padding. What is in the free ones does not matter, so it is not kept."""
        rows = {
            "keys": self.keys[:, :, :, : self.length],
            "values": self.values[:, :, :, : self.length],
            "capacity": torch.tensor(self.capacity),
        }
        return rows if self.padding is None else {**rows, "padding": self.padding}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from saved slots; the others stay free."""
        self.length, self.padding = state["keys"].size(3), state.get("padding")
        for slots, saved in ((self.keys, state["keys"]), (self.values, state["values"])):
            slots[:, :, :, : self.length] = saved

    def poison(self, value: float) -> None:
        """Fill every slot that must not matter, free ones and padding, to show whether anything sees it.

        Padding is hidden by a weight of zero, so what is there has to be a number: NaN goes into free slots alone.
        """
        for slots in (self.keys, self.values):
            slots[:, :, :, self.length :] = value
            for row, columns in enumerate([] if self.padding is None or value != value else self.padding):
                slots[:, row, :, :columns] = value

    def tensors(self) -> list[Tensor]:
        """Every tensor of keys or values that this cache keeps alive."""
        return [self.keys, self.values]
