"""The forms that a decoder has to have, for whoever writes one: nothing here does anything."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch new"]
Logits = Float[Tensor, "batch new vocab_size"]
Sampler = Callable[[Float[Tensor, "batch vocab_size"]], Int[Tensor, " batch"]]


@runtime_checkable
class Implementation(Protocol):
    """The least that can be tested.

    The handle is whatever stands for a cache: an object, a tuple of tensors, the number of a slot, or None where the
    state is inside the model. kvref passes on the handle that came back last, and assumes neither that a call
    changes it in place nor that it does not.
    """

    vocab_size: int
    block_size: int

    def full(self, tokens: Tokens) -> Logits:
        """Logits of one uncached pass over whole sequences."""
        ...

    def start(self, batch: int, capacity: int | None) -> Any:
        """Handle of an empty cache for `batch` rows of `capacity` tokens (None: as many as the model takes)."""
        ...

    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Any]:
        """Logits of every new token, and the handle of the cache with these tokens in it.

        Tokens that do not fit must raise, whatever the exception, and leave the cache as it was.
        """
        ...


class Generating(Protocol):
    """The least that can be tested of what generates, and shows no cache: prompts in, tokens out.

    `ways`, where it has several, names ways to generate, and both methods are told one behind their other arguments.
    An end token of -1 is none.
    """

    vocab_size: int
    block_size: int

    def generate_batch(self, prompts: Sequence[Sequence[int]], max_new_tokens: int, end: int) -> list[list[int]]:
        """Tokens added to each prompt with a cache, up to an end token, that included."""
        ...

    def generate_uncached(self, prompt: Sequence[int], max_new_tokens: int, end: int) -> list[int]:
        """Tokens added to one prompt without a cache."""
        ...


class Batched(Implementation, Protocol):
    """What generation needs for prompts of different lengths, and rows that end at different times."""

    device: torch.device

    def prefill(self, cache: Any, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Any]:
        """Logits of the first tokens, and the handle; the first `padding` columns of each row are padding."""
        ...

    def reorder(self, cache: Any, rows: Sequence[int]) -> Any:
        """Make the batch of these rows."""
        ...


class Speculator(Implementation, Protocol):
    """What speculative decoding needs: to take tokens back, in each row as many as were wrong."""

    device: torch.device

    def crop(self, cache: Any, length: int) -> Any:
        """Keep the first `length` tokens."""
        ...

    def crop_rows(self, cache: Any, lengths: Sequence[int]) -> Any:
        """Keep the first tokens of each row, as many as `lengths` says for it."""
        ...

    def reorder(self, cache: Any, rows: Sequence[int]) -> Any:
        """Make the batch of these rows."""
        ...


@runtime_checkable
class Conversation(Protocol):
    """A conversation: `feed` takes the new tokens of a turn and gives the logits of its last token."""

    def feed(self, tokens: Tokens) -> Float[Tensor, "batch vocab_size"]:
        """Run what is new, and only that."""
        ...

    def reply(self, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """Tokens sampled as the answer to what was fed, for each row."""
        ...
