"""Targets from other packages: each has a file of its own, and is imported when it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from shlex import quote
from typing import Any, Protocol, cast

import torch

from kvref.decoder import Decoder
from kvref.errors import TargetError, one_line
from kvref.protocol import Implementation
from kvref.targets.base import Bench, OneDecoder, Target

PACKAGES: Mapping[str, str] = {
    "x-transformers": "x_transformers",
    "litgpt": "litgpt",
    "mlx-lm": "mlx_lm",
    "transformer-lens": "transformer_lens",
    "keras-hub": "keras_hub",
    "onnxruntime-genai": "onnxruntime_genai",
}
"""What a target begins with, which is also the extra to install, and the module of this package that knows it."""


class Unfit(TargetError):
    """A kind of cache that a model of a package cannot have; another kind may fit it."""


class Adapter(Protocol):
    """What a module of an adapter has.

    `KINDS` are its kinds of cache, none where there is one kind. `make` gives a decoder of what a target names behind
    its colon, tiny and with random weights; it raises `TargetError` for what it cannot make. `names` gives what is
    worth trying all of, in the same form.
    """

    KINDS: Sequence[str]

    def make(self, asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> Implementation:
        """A decoder."""
        ...

    def names(self) -> Iterator[str]:
        """What there is to try."""
        ...


def adapter(package: str) -> Adapter:
    """The module that knows a package; the package itself need not be installed for it."""
    return cast("Adapter", import_module(f"kvref.targets.{PACKAGES[package]}"))


def worth_trying(package: str) -> Iterator[str]:
    """Targets that together try what a package offers. Raises `TargetError` where it is not installed."""
    for name in adapter(package).names():
        yield f"{package}:{name}" if name else package


def from_package(package: str, asked: str, called: str, bench: Bench, kinds: str | None) -> list[Target]:
    """What a target of a package means: one decoder for each kind of cache that is asked for, else for every kind."""
    if len(bench.dtypes) > 1:
        raise TargetError(f"{called} is one decoder; give one --dtype, or none for float32")
    dtype = bench.dtypes[0] if bench.dtypes else torch.float32
    module = adapter(package)
    known = module.KINDS or ("",)
    named = [] if kinds is None else list(dict.fromkeys(kind.strip() for kind in kinds.split(",")))
    if unknown := [kind for kind in named if kind not in module.KINDS]:
        has = f"give {', '.join(module.KINDS)}" if module.KINDS else "leave out --cache, there is one kind"
        raise TargetError(f"models of {package} have no {unknown[0]!r} cache; {has}")
    found: list[Target] = []
    for number, kind in enumerate(named or known):
        name = f"{called} ({kind} cache)" if kind else called
        try:
            implementation = built(module, asked, kind, bench.device, dtype, called)
        except Unfit:
            if named or not number:
                raise
            continue  # the first kind fits everything, and nobody asked for this one
        decoder = Decoder(implementation, name, bench.lens_for(dtype))
        bench.sources(decoder)  # raises now for a prompt or text that does not fit
        command = quote(called) + (f" --cache {kind}" if kind else "") + bench.flags
        found.append(OneDecoder(name, command, decoder, bench))
    return found


def built(
    module: Adapter, asked: str, kind: str, device: torch.device, dtype: torch.dtype, called: str
) -> Implementation:
    """A decoder of an adapter; whatever its package raises is said in one line."""
    try:
        with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
            torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
            return module.make(asked, kind, device, dtype)
    except TargetError:
        raise
    except Exception as error:
        raise TargetError(f"{called} cannot be built ({one_line(error)})") from error


def imported(name: str, extra: str) -> Any:
    """A module of a package that is not always there. Raises `TargetError` with what to install."""
    try:
        return import_module(name)
    except Exception as error:
        raise TargetError(
            f"{name} cannot be imported ({one_line(error)}); install it with `pip install 'kvref[{extra}]'`"
        ) from error
