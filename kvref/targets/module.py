"""A user's own decoder: an object with the protocol's methods, or a module that takes and returns its cache."""

from typing import Any

import torch
from torch import nn

from kvref.answers import DecoderRaised, Misshapen
from kvref.decoder import Decoder
from kvref.errors import TargetError
from kvref.lens import Lens
from kvref.protocol import Logits, Tokens
from kvref.targets.base import Bench

GENERATION = ("generate_batch", "generate_uncached")
"""Methods of what only generates."""


class ModuleDecoder:
    """An `nn.Module` of the form `(tokens, cache=None) -> (logits, cache)`; its sizes are its own or its config's."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module = module
        self.vocab_size = size_of(module, "vocab_size", name)
        self.block_size = size_of(module, "block_size", name)
        self.device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))

    def full(self, tokens: Tokens) -> Logits:
        """One call without a cache."""
        return self.module(tokens)[0]

    def start(self, batch: int, capacity: int | None) -> None:
        """Start with no cache: the first call makes it."""

    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Any]:
        """One call with the cache that came back last."""
        return self.module(tokens, cache) if cache is not None else self.module(tokens)


class GeneratesOnly:
    """What generates, and shows no step: its methods and sizes are as they are."""

    generates_only = True
    vocab_size: int
    block_size: int

    def __init__(self, made: object) -> None:
        self.made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["made"], name)

    def full(self, tokens: Tokens) -> Logits:
        """Refuse a pass."""
        raise NotImplementedError("it only generates")

    def start(self, batch: int, capacity: int | None) -> None:
        """Refuse a cache."""
        raise NotImplementedError("it only generates")

    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Any]:
        """Refuse a pass."""
        raise NotImplementedError("it only generates")


def size_of(module: nn.Module, size: str, name: str) -> int:
    """A size that a module declares as attribute, or its `config` does."""
    for owner in (module, getattr(module, "config", None)):
        value = getattr(owner, size, None)
        if isinstance(value, int):
            return value
    raise TargetError(f"{name} gives a module without `{size}`; set it on the module or on its `config`")


def decoder_of(made: object, name: str, bench: Bench) -> Decoder:
    """Put what a user's factory made under test, in the dtype that it has or that was asked for."""
    if len(bench.dtypes) > 1:
        raise TargetError(f"{name} is one decoder; give one --dtype, or none for the dtype that it has")
    if isinstance(made, nn.Module) and not hasattr(made, "step"):
        module = made.to(bench.device, bench.dtypes[0] if bench.dtypes else None).eval().requires_grad_(False)
        lens = bench.lens_for(bench.dtypes[0] if bench.dtypes else dtype_of(module))
        return Decoder(ModuleDecoder(module, name), name, lens)
    implementation: Any = made
    modules = [part for part in vars(made).values() if isinstance(part, nn.Module)] if hasattr(made, "__dict__") else []
    # A declared `dtype` is what the cache stores, which may be coarser than what the decoder computes in.
    dtype = dtype_of(modules[0]) if modules else None
    if not hasattr(made, "step") and all(callable(getattr(made, needed, None)) for needed in GENERATION):
        return Decoder(GeneratesOnly(made), name, bench.lens_for(dtype or torch.float32))
    decoder = Decoder(implementation, name, Lens("native", dtype or torch.float32))
    try:
        logits = decoder.full(torch.zeros(1, 1, dtype=torch.long, device=decoder.device))
    except Misshapen as error:
        raise TargetError(f"{name} cannot be compared: {error.call} gives what it should not: {error.error}") from None
    except DecoderRaised:
        return decoder.under(bench.lens_for(dtype or torch.float32))  # that is a finding, with its schedule
    return decoder.under(bench.lens_for(dtype or logits.dtype))


def dtype_of(module: nn.Module) -> torch.dtype:
    """Dtype of a module's first floating-point parameter."""
    return next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), torch.float32)
