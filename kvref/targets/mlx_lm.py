"""mlx-lm: any of its model types, tiny and with loud weights, on the CPU. It computes in mlx, where no lens reaches."""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kvref.errors import TargetError, one_line
from kvref.protocol import Logits, Sampler, Tokens
from kvref.targets.mlx_sizes import sizes_for
from kvref.targets.packages import Unfit, imported
from kvref.targets.tiny import TINY

KINDS = ("prompt", "batch")
"""Kinds of cache: the one of a prompt, for one row, and the one that several are merged into, for batches."""

BLOCK = 64
"""Longest sequence to test."""

A_MODEL = re.compile(r"^(class Model\b|from .* import .*\bModel\b)", re.MULTILINE)
"""What stands in a module that has a model: its own, or that of another."""


@dataclass
class Held:
    """A cache, one part for each layer, which are changed in place. `width` counts columns, padding included."""

    parts: list[Any]
    capacity: int
    rows: int
    width: int = 0


class MLX:
    """A model of mlx-lm, whose numbers leave mlx as tensors of torch."""

    outside = "mlx"

    def __init__(self, model_type: str, kind: str, dtype: torch.dtype) -> None:
        self.model_type, self.kind, self.dtype = model_type, kind, dtype
        self.mx: Any = imported("mlx.core", "mlx-lm")
        self.caches: Any = imported("mlx_lm.models.cache", "mlx-lm")
        self.mx.set_default_device(self.mx.cpu)
        self.model: Any = loud_model(model_type, self.mx, dtype)
        self.vocab_size, self.block_size = int(TINY["vocab_size"]), BLOCK
        self.max_batch = 1 if kind == "prompt" else None
        parts = self.caches.make_prompt_cache(self.model)
        self.n_layer = len(parts)
        self.refuses = {
            "atomic": "mlx-lm has no limit of its own, and a pass that raises leaves its tokens",
            "crop_rows": "mlx-lm trims as many tokens from every row",
        }
        if any(type(part).__name__ != "KVCache" for part in parts):
            self.refuses["keys_values"] = "not all of its layers keep the keys and values of every token"
        if not any(hasattr(part, "offset") for part in flat(parts)):
            self.refuses["length"] = self.refuses["lengths"] = "none of its layers counts tokens"
        one_row = "the cache of a prompt has one row; see --cache batch"
        if kind == "prompt":
            self.refuses |= dict.fromkeys(("prefill", "reorder", "refill", "generate_batch"), one_row)
        else:
            self.refuses |= dict.fromkeys(("save", "generate"), "it is for the cache of one prompt")
            try:
                self.merged(2)
            except Exception as error:
                raise Unfit(f"mlx-lm merges no caches of {model_type} into a batch ({one_line(error)})") from error

    def in_float64(self) -> "MLX":
        """The same weights in float64."""
        return self.float64

    @cached_property
    def float64(self) -> "MLX":
        """Made once."""
        return MLX(self.model_type, self.kind, torch.float64)

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a cache."""
        return self.logits(self.model(self.mx.array(tokens.numpy())))

    def start(self, batch: int, capacity: int | None) -> Held:
        """Start an empty cache."""
        parts = self.caches.make_prompt_cache(self.model) if self.kind == "prompt" else self.merged(batch)
        return Held(parts, BLOCK if capacity is None else capacity, batch)

    def step(self, cache: Held, tokens: Tokens) -> tuple[Logits, Held]:
        """One pass over the new tokens."""
        logits = self.logits(self.model(self.mx.array(tokens.numpy()), cache=cache.parts))
        cache.width += tokens.shape[1]
        return logits, cache

    def prefill(self, cache: Held, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Held]:
        """One pass over prompts of different lengths, padded on the left, as a batch cache wants them."""
        if not all(part.empty() for part in cache.parts):
            raise NotImplementedError("mlx-lm pads fresh caches alone")
        for part in flat(cache.parts):
            if hasattr(part, "cache"):  # a state of recurrent layers, which `prepare` tells lengths alone
                part.left_padding = self.mx.array(list(padding))
            else:
                part.prepare(left_padding=list(padding))
        return self.step(cache, tokens)

    def lengths(self, cache: Held) -> list[int]:
        """Tokens in each row, as the first layer that counts them has it."""
        offset = next(part.offset for part in flat(cache.parts) if hasattr(part, "offset"))
        return [offset] * cache.rows if isinstance(offset, int) else offset.tolist()

    def length(self, cache: Held) -> int:
        """Tokens in the longest row."""
        return max(self.lengths(cache))

    def keys_values(self, cache: Held, layer: int) -> tuple[Tensor, Tensor]:
        """What a layer keeps of each row, on the right: mlx-lm drops columns of padding that all rows share."""
        lengths = self.lengths(cache)
        keys, values = map(self.tensor, cache.parts[layer].keys_and_values())
        return on_the_right(keys, lengths, cache.width), on_the_right(values, lengths, cache.width)

    def crop(self, cache: Held, length: int) -> Held:
        """Trim what is behind the first tokens, where mlx-lm says that it can."""
        if not self.caches.can_trim_prompt_cache(cache.parts):
            raise NotImplementedError("can_trim_prompt_cache says that it cannot be trimmed")
        lengths = self.lengths(cache)
        if len(set(lengths)) > 1:
            raise NotImplementedError(self.refuses["crop_rows"])
        self.caches.trim_prompt_cache(cache.parts, lengths[0] - length)
        cache.width = length
        return cache

    def reorder(self, cache: Held, rows: Sequence[int]) -> Held:
        """Keep the rows with these numbers."""
        for part in cache.parts:
            part.filter(self.mx.array(list(rows)))
        cache.rows = len(rows)
        return cache

    def refill(self, cache: Held, row: int, tokens: Tokens) -> tuple[Logits, Held]:
        """Let a row go, run a new prompt in a cache of its own, and put that into the batch."""
        alone = Held(self.merged(1), cache.capacity, 1)
        logits, alone = self.step(alone, tokens)
        others = [other for other in range(cache.rows) if other != row]
        if not others:
            return logits, alone
        cache = self.reorder(cache, others)
        cache.width = max(cache.width, alone.width)
        for part, new in zip(cache.parts, alone.parts, strict=True):
            part.extend(new)
        last = len(others)
        return logits, self.reorder(cache, [*range(row), last, *range(row, last)])

    def fork(self, cache: Held) -> Held:
        """Copy a cache, as its store of prompts does."""
        return replace(cache, parts=deepcopy(cache.parts))

    def save(self, cache: Held, path: Path) -> None:
        """Write a cache to a safetensors file."""
        if self.dtype == torch.float64:
            raise NotImplementedError("mlx writes no float64, in which its caches are judged")
        named = {"capacity": str(cache.capacity), "width": str(cache.width)}
        self.caches.save_prompt_cache(str(path.with_suffix(".safetensors")), cache.parts, named)

    def restore(self, path: Path) -> Held:
        """Read a cache from a file."""
        file = str(path.with_suffix(".safetensors"))
        parts, named = self.caches.load_prompt_cache(file, return_metadata=True)
        return Held(parts, int(named["capacity"]), 1, int(named["width"]))

    def generate(self, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """Tokens that its own loop adds to a prompt."""

        def sample(log_probabilities: Any) -> Any:
            return self.mx.array(sampler(self.tensor(log_probabilities)).numpy())

        loop = imported("mlx_lm.generate", "mlx-lm").generate_step
        tokens = self.mx.array(prompt[0].numpy())
        steps = loop(tokens, self.model, max_tokens=max_new_tokens, sampler=sample, prefill_step_size=4)
        return [[int(token) for token, _ in steps]]

    def merged(self, rows: int) -> list[Any]:
        """An empty cache for a batch: those of single prompts, merged."""
        alone = [self.caches.make_prompt_cache(self.model) for _ in range(rows)]
        return [parts[0].merge(list(parts)) for parts in zip(*alone, strict=True)]

    def logits(self, array: Any) -> Logits:
        """Logits for torch, in the dtype of the weights."""
        return self.tensor(array).to(self.dtype)

    def tensor(self, array: Any) -> Tensor:
        """The numbers of an array; what numpy has no dtype for goes through float32, which holds it."""
        wide = array if array.dtype == self.mx.float64 else array.astype(self.mx.float32)
        return torch.from_numpy(np.array(wide))  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped


def on_the_right(kept: Tensor, lengths: Sequence[int], width: int) -> Tensor:
    """The last columns of each row, as many as it has tokens, behind zeros."""
    columns = torch.arange(width)
    padding = width - torch.tensor(list(lengths))
    wide = torch.cat([kept.new_zeros(*kept.shape[:2], max(width - kept.shape[2], 0), kept.shape[3]), kept], dim=2)
    return wide[:, :, wide.shape[2] - width :].masked_fill((columns < padding[:, None])[:, None, :, None], 0.0)


def flat(parts: Sequence[Any]) -> list[Any]:
    """The parts of a cache, and those of its parts that are lists."""
    return [inner for part in parts for inner in (flat(part.caches) if hasattr(part, "caches") else [part])]


def make(asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> MLX:
    """A model of a type that mlx-lm has."""
    del device  # mlx has devices of its own, and float64 on the CPU alone
    known = modules()
    if asked not in known:
        near = get_close_matches(asked, known, 1)
        raise TargetError(f"mlx-lm has no model {asked!r}; did you mean {near[0] if near else 'llama'}?")
    model = MLX(asked, kind, dtype)
    # What cannot run at all, as it has kernels for another device alone, raises now.
    model.full(torch.zeros(1, 2, dtype=torch.long))
    return model


def modules() -> list[str]:
    """Modules of mlx-lm's models, and the types that it finds in another's."""
    return sorted({*own_modules(), *remapped()})


def own_modules() -> list[str]:
    """Modules of mlx-lm's models, and of what these share."""
    return [module.name for module in iter_modules(imported("mlx_lm.models", "mlx-lm").__path__)]


def remapped() -> Mapping[str, str]:
    """The module of each type that has none of its own name."""
    found: Mapping[str, str] = imported("mlx_lm.utils", "mlx-lm").MODEL_REMAPPING
    return found


def loud_model(model_type: str, mx: Any, dtype: torch.dtype) -> Any:
    """A tiny model: its config is that of transformers where it has one, whose files mlx-lm reads."""
    utils, tree = imported("mlx_lm.utils", "mlx-lm"), imported("mlx.utils", "mlx-lm")
    model_class, arguments = utils._get_classes(config={"model_type": model_type})
    model = model_class(arguments.from_dict(sizes_for(model_type, arguments)))
    generator = torch.Generator().manual_seed(0)
    drawn = [(name, drawn_like(array, generator, mx)) for name, array in tree.tree_flatten(model.parameters())]
    model.update(tree.tree_unflatten(drawn))
    model.set_dtype(getattr(mx, str(dtype).removeprefix("torch.")))
    model.eval()
    return model


def drawn_like(array: Any, generator: torch.Generator, mx: Any) -> Any:
    """Random numbers in place of a parameter: normal, with deviation 1/sqrt(row length); vectors are only moved."""
    noise = torch.randn(tuple(array.shape), generator=generator, dtype=torch.float64)
    if array.ndim > 1:
        return mx.array((noise / array.shape[-1] ** 0.5).float().numpy())
    return array.astype(mx.float32) + 0.2 * mx.array(noise.float().numpy())


def names() -> Iterator[str]:
    """Every model type, also those that turn out not to be built tiny."""
    yield from sorted({*filter(has_a_model, own_modules()), *remapped()})


def has_a_model(module: str) -> bool:
    """Whether a module defines a model, by its text: some cannot be imported, and one ends the process that tries."""
    found = find_spec(f"mlx_lm.models.{module}")
    return bool(found and found.origin and A_MODEL.search(Path(found.origin).read_text(encoding="utf-8")))
