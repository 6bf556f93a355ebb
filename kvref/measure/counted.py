"""The bill of a KV cache by counting: the real code runs, and modes of torch count what it does.

Nothing here knows a formula of `kvref.measure.formulas`; that both give the same numbers is what the bill shows. What
only needs shapes runs on the `meta` device, where a tensor has no memory, so that the largest shapes can be counted.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from typing_extensions import override

from kvref.cache import Cache, GrowingCache, NewRows, Rows, StaticCache
from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.generate import SeededSampler, generate_cached, generate_naive
from kvref.gpt2 import GPT
from kvref.measure.formulas import Flops, Uses
from kvref.targets.reference import GrowingDecoder
from kvref.weights import empty_model, loud

KINDS = ("growing", "static")
"""Kinds of cache that are counted."""


class Reads(TorchDispatchMode):
    """Adds up the bytes that operators read of some storages: in all, and of each storage the most by one operator.

    A view reads nothing. An argument that an operator writes to is not read, as its schema says. A lookup in a table
    reads one row for each index. With `follow`, what an operator makes of them is watched too: a copy of a copy counts.
    """

    def __init__(self, watched: Sequence[Tensor], *, follow: bool = False) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - torch leaves it untyped
        self.kept = list(watched)
        """Keeps them alive: the storage of a tensor that is gone could come back under another."""
        self.most = {storage(tensor): 0 for tensor in watched}
        self.follow, self.bytes = follow, 0

    def watch(self, tensor: Tensor) -> None:
        """Count what is read of one more storage, from now on."""
        self.kept.append(tensor)
        self.most.setdefault(storage(tensor), 0)

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        read = [] if is_view(func) else [pair for pair in reads_of(func, args, kwargs) if storage(pair[0]) in self.most]
        for tensor, size in read:
            self.bytes += size
            self.most[storage(tensor)] = max(self.most[storage(tensor)], size)
        given = func(*args, **kwargs)
        for tensor in tree_leaves(given) if read and self.follow else []:
            self.watch(tensor)
        return given


def storage(tensor: Tensor) -> int:
    """What tensors share that share memory. It is an address, but not of the memory, for `meta` tensors have none."""
    reference: Any = StorageWeakRef(tensor.untyped_storage())
    return reference.cdata


def is_view(func: Any) -> bool:
    """Whether an operator only gives its argument in another shape."""
    return any(given.alias_info is not None and not given.alias_info.is_write for given in func._schema.returns)


def reads_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Tensor, int]]:
    """Tensors that an operator reads, and how many bytes of each."""
    if func is torch.ops.aten.embedding.default:
        table, indices = args[:2]
        rows = min(indices.numel(), table.size(0))  # the same row of many is one row
        return [(table, rows * table.size(1) * table.itemsize)]
    found: list[tuple[Tensor, int]] = []
    for place, argument in enumerate(func._schema.arguments):
        given = kwargs.get(argument.name) if place >= len(args) else args[place]
        if argument.alias_info is None or not argument.alias_info.is_write:
            found += [(leaf, leaf.numel() * leaf.itemsize) for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    return found


def new_cache(kind: str, config: GPTConfig, batch: int, capacity: int, dtype: torch.dtype) -> Cache:
    """An empty cache of a kind, for a shape, on the CPU."""
    if kind == "growing":
        return GrowingCache()
    return StaticCache(config.n_layer, batch, config.kv_heads, capacity, config.head_dim, dtype)


def fill(cache: Cache, config: GPTConfig, new: int, dtype: torch.dtype, batch: int) -> int:
    """Give a cache the rows of `new` tokens in every layer, as a pass does, and say how many bytes of the past it read.

    Nothing may be read of a past that there is not, which is all that is true of a first pass.
    """
    counted = 0
    for layer in range(config.n_layer):
        keys, values = torch.randn(2, batch, config.kv_heads, new, config.head_dim).to(dtype)
        with Reads(cache.tensors() if cache.length else [], follow=True) as reads:
            cache.append(layer, keys, values)
        counted += reads.bytes
    cache.commit(new)
    return counted


def copied_bytes(
    kind: str, config: GPTConfig, tokens: int, dtype: torch.dtype, batch: int = 1, prompt: int = 0
) -> list[int]:
    """Bytes of the past that a cache has read when 1, 2, ... `tokens` came one by one, behind a prompt in one pass."""
    cache = new_cache(kind, config, batch, prompt + tokens, dtype)
    counted = [fill(cache, config, prompt, dtype, batch) if prompt else 0]
    for _ in range(tokens):
        counted.append(counted[-1] + fill(cache, config, 1, dtype, batch))
    return counted[1:]


def cache_bytes(kind: str, config: GPTConfig, tokens: int, dtype: torch.dtype, batch: int = 1) -> int:
    """Bytes of the storages of a cache that holds so many tokens, and has no slot besides."""
    cache = new_cache(kind, config, batch, tokens, dtype)
    fill(cache, config, tokens, dtype, batch)
    return cache.bytes


class Looks(TorchFunctionMode):
    """Counts, in the first layer, how often each position is computed and read, through the calls of the model."""

    def __init__(self, model: GPT, tokens: int) -> None:
        super().__init__()
        self.first = next(module for module in model.modules() if isinstance(module, nn.Linear)).weight
        self.computed, self.query, self.key, self.value = ([0] * tokens for _ in range(4))
        self.fresh = 0
        """Tokens whose q, k and v the first layer has just computed; 0 in other layers."""

    @override
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and args[1] is self.first:
            self.fresh = args[0].size(1)
        elif func is F.scaled_dot_product_attention and self.fresh:
            self.attend(args[0], args[1], args[2], kwargs["attn_mask"])
            self.fresh = 0
        return func(*args, **kwargs)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
        """Count one call of attention of a single row, whose last query and key are of its last token."""
        new, total = q.size(2), k.size(2)
        seen = torch.ones(new, total, dtype=torch.bool) if mask is None else mask.expand(new, total)
        for position in range(total - self.fresh, total):
            self.computed[position] += 1
        for row, position in enumerate(range(total - new, total)):
            self.query[position] += bool(seen[row].any())
        for position, readers in enumerate(seen.sum(dim=0)):
            self.key[position] += int(readers)
            self.value[position] += int(readers) if position < v.size(2) else 0


SMALL = GPTConfig(block_size=512, vocab_size=7, n_layer=2, n_head=4, n_embd=8, n_kv_head=2)
"""The shape in which tokens are generated, where what is counted is the same for every shape."""


def generated(tokens: int, prompt: int, *, cached: bool, shape: GPTConfig = SMALL) -> tuple[int, list[Uses]]:
    """Token passes that generate so many tokens behind a prompt, and the uses of each position that was run."""
    model = loud(shape)
    decoder = Decoder(GrowingDecoder(model))
    generate = generate_cached if cached else generate_naive
    with torch.inference_mode(), Looks(model, prompt + tokens - 1) as looks:
        generate(decoder, torch.zeros(1, prompt, dtype=torch.long), tokens, SeededSampler())
    counts = zip(looks.computed, looks.query, looks.key, looks.value, strict=True)
    return decoder.meter.tokens, [Uses(*one) for one in counts]


def passes(tokens: int, prompt: int = 1, *, cached: bool) -> int:
    """Token passes that generate so many tokens behind a prompt."""
    return generated(tokens, prompt, cached=cached)[0]


def parameters(config: GPTConfig) -> int:
    """Numbers in the model that is built."""
    return sum(parameter.numel() for parameter in empty_model(config, torch.float32, "meta").parameters())


def past_of(config: GPTConfig, tokens: int, dtype: torch.dtype, batch: int, kind: type[GrowingCache]) -> GrowingCache:
    """A cache on the `meta` device that holds so many tokens."""
    cache = kind()
    if tokens:
        rows = torch.empty(batch, config.kv_heads, tokens, config.head_dim, dtype=dtype, device="meta")
        cache.load({f"{name}.{i}": rows.clone() for i in range(config.n_layer) for name in ("keys", "values")})
    return cache


class Handing(GrowingCache):
    """Has the rows watched that it hands to attention."""

    reads: Reads

    @override
    def append(self, layer: int, keys: NewRows, values: NewRows) -> tuple[Rows, Rows]:
        rows = super().append(layer, keys, values)
        for tensor in rows:
            self.reads.watch(tensor)
        return rows


def read_bytes(config: GPTConfig, past: int, dtype: torch.dtype, batch: int = 1) -> int:
    """Bytes of parameters, and of keys and values handed to attention, that one decode step reads; none of them twice.

    Of a storage that several operators read, as `wte` by the lookup and by the head, the most that one of them reads.
    """
    model = empty_model(config, dtype, "meta")
    cache = past_of(config, past, dtype, batch, Handing)
    assert isinstance(cache, Handing)
    with torch.inference_mode(), Reads(list(model.parameters())) as cache.reads:
        model(torch.zeros(batch, 1, dtype=torch.long, device="meta"), cache)
    return sum(cache.reads.most.values())


def flops_of(model: GPT, new: int, cache: GrowingCache | None = None, batch: int = 1) -> Flops:
    """FLOPs of one pass of a `meta` model, split by the module in which they are counted."""
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(batch, new, dtype=torch.long, device="meta"), cache)
    counts = {name: sum(by_operator.values()) for name, by_operator in counter.get_flop_counts().items()}
    root, layers = type(model).__name__, range(model.config.n_layer)
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    linear = sum(counts[f"{root}.{name}"] for name, module in modules if isinstance(module, nn.Linear))
    blocks = sum(counts[f"{root}.transformer.h.{i}"] for i in layers)
    return Flops(linear, blocks - linear, counter.get_total_flops() - blocks)


def flops(config: GPTConfig, new: int, past: int = 0, batch: int = 1) -> Flops:
    """FLOPs of one pass of `new` tokens onto `past` cached ones."""
    model = empty_model(config, torch.float32, "meta")
    return flops_of(model, new, past_of(config, past, torch.float32, batch, GrowingCache), batch)


def flops_generated(config: GPTConfig, tokens: int, prompt: int = 1, *, cached: bool) -> list[Flops]:
    """FLOPs of generating 1, 2, ... `tokens` tokens of one row behind a prompt: the sum of the passes until then."""
    model, cache = empty_model(config, torch.float32, "meta"), GrowingCache()
    counted: list[Flops] = [Flops(0, 0, 0)]
    for i in range(tokens):
        one = flops_of(model, prompt if not i else 1, cache) if cached else flops_of(model, prompt + i)
        counted.append(counted[-1] + one)
    return counted[1:]
