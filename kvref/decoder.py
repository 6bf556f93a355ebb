"""What is tested: a decoder, tokens to logits, with and without a cache.

Any object with the two sizes and three methods of `Implementation` can be tested; nothing of kvref need be imported.
What else its cache can do is a *capability*: one more method, of the name and form given in `Capability`. A law that
needs a capability which the decoder lacks is skipped, visibly.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from kvref.cache import Rows
from kvref.errors import TargetError
from kvref.generate import Session, generate_cached
from kvref.protocol import Conversation, Implementation, Logits, Sampler, Tokens
from kvref.verdict import NATIVE, Lens


class Capability(StrEnum):
    """What a decoder may offer beyond `Implementation`: a method of this name, in the form that `Decoder` shows."""

    LENGTH = "length"
    KEYS_VALUES = "keys_values"
    BYTES = "bytes"
    TENSORS = "tensors"
    LAYERS = "layers"
    CROP = "crop"
    FORK = "fork"
    REORDER = "reorder"
    RESET = "reset"
    POISON = "poison"
    GENERATE = "generate"
    SESSION = "session"
    WITHOUT_MASK = "without_mask"


class DecoderRaised(Exception):
    """The decoder under test raised where it should have answered. The cause is its own exception."""

    def __init__(self, call: str, error: Exception) -> None:
        super().__init__(f"{call} raised {type(error).__name__}: {error}")
        self.call = call
        self.error = error
        self.step: int | None = None


class Decoder:
    """The decoder under test, as every law sees it.

    It forwards each call to the implementation under the numerics of `lens`, adds up the time spent there in
    `seconds`, and marks an exception from there as `DecoderRaised`, so that a crash is never mistaken for a broken law,
    nor for a fault of kvref.
    """

    def __init__(self, implementation: Implementation, name: str = "decoder", lens: Lens = NATIVE) -> None:
        for needed in ("vocab_size", "block_size", "full", "start", "step"):
            if not hasattr(implementation, needed):
                raise TargetError(
                    f"{name} has no `{needed}`; a decoder needs vocab_size, block_size, full, start, step"
                )
        self.implementation = implementation
        self.name = name
        self.lens = lens
        self.vocab_size = implementation.vocab_size
        self.block_size = implementation.block_size
        self.capabilities = frozenset(c for c in Capability if callable(getattr(implementation, c, None)))
        self.seconds = 0.0

    def __repr__(self) -> str:
        return self.name

    @property
    def device(self) -> torch.device:
        """Where tokens have to be."""
        return torch.device(getattr(self.implementation, "device", "cpu"))

    def full(self, tokens: Tokens) -> Logits:
        """Logits of one uncached pass over whole sequences."""
        return self._logits("full", tokens, self._call("full", tokens))

    def start(self, batch: int, capacity: int | None = None) -> Any:
        """Handle of an empty cache."""
        return self._call("start", batch, capacity)

    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Any]:
        """Logits of every new token, and the handle of the cache with these tokens in it."""
        logits, cache = self._call("step", cache, tokens)
        return self._logits("step", tokens, logits), cache

    def length(self, cache: Any) -> int:
        """Tokens in the cache."""
        return self._call("length", cache)

    def keys_values(self, cache: Any, layer: int) -> tuple[Rows, Rows]:
        """Keys and values of the cached tokens in one layer; `n_layer` says how many layers there are."""
        return self._call("keys_values", cache, layer)

    def bytes(self, cache: Any) -> int:
        """Memory that the cache holds. `n_kv_head`, `head_dim` and `dtype` say what it has to be."""
        return self._call("bytes", cache)

    def tensors(self, cache: Any) -> list[Tensor]:
        """Every tensor that the cache keeps alive."""
        return self._call("tensors", cache)

    def layers(self) -> list[nn.Module]:
        """The modules that each token passes once, whose first argument is `batch new ...`."""
        return self._call("layers")

    def crop(self, cache: Any, length: int) -> Any:
        """Keep the first `length` tokens."""
        return self._call("crop", cache, length)

    def fork(self, cache: Any) -> Any:
        """Handle of an independent copy."""
        return self._call("fork", cache)

    def reorder(self, cache: Any, rows: Sequence[int]) -> Any:
        """Make the batch of these rows; a row may repeat or be left out."""
        return self._call("reorder", cache, rows)

    def reset(self, cache: Any) -> Any:
        """Forget everything, for a second request of as many rows."""
        return self._call("reset", cache)

    def poison(self, cache: Any, value: float) -> Any:
        """Fill every free slot."""
        return self._call("poison", cache, value)

    def generate(self, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """Tokens that cached generation adds to the prompt, for each row: its own loop, or else kvref's."""
        if Capability.GENERATE in self.capabilities:
            return self._call("generate", prompt, max_new_tokens, sampler)
        return generate_cached(self, prompt, max_new_tokens, sampler)

    def session(self) -> Conversation:
        """Open a conversation of one row: its own, or else kvref's over its cache."""
        return self._call("session") if Capability.SESSION in self.capabilities else Session(self)

    def without_mask(self) -> "Decoder":
        """Give the same weights with every token seeing every other, as a control."""
        return Decoder(self._call("without_mask"), f"{self.name} without its mask", self.lens)

    def size(self, name: str) -> Any:
        """Read a size that a capability needs declared: n_layer, n_kv_head, head_dim, dtype or preallocates."""
        try:
            return getattr(self.implementation, name)
        except AttributeError:
            raise TargetError(f"{self.name} does not declare `{name}`, which one of its capabilities needs") from None

    def _call(self, name: str, *args: Any) -> Any:
        with self._clock(), torch.no_grad(), self.lens.numerics():
            try:
                return getattr(self.implementation, name)(*args)
            except Exception as error:
                raise DecoderRaised(name, error) from error

    def _logits(self, call: str, tokens: Tokens, logits: object) -> Logits:
        want = (*tokens.shape, self.vocab_size)
        if not isinstance(logits, Tensor) or logits.shape != want:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise DecoderRaised(call, TypeError(f"logits must be a tensor of shape {want}, not {got}"))
        return logits

    @contextmanager
    def _clock(self) -> Generator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.seconds += perf_counter() - start
