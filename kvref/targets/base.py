"""What a target is: a way to get decoders to test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

import torch

from kvref.capability import Capability
from kvref.choices import Sources
from kvref.decoder import Decoder
from kvref.lens import Lens, lens_called
from kvref.operations import Row
from kvref.prompts import BYTE_VOCAB, byte_encoding, encode, encoding_for
from kvref.tokens import AnyTokens, FromPrompt, FromText, drawn_text, require_prompt

DTYPES = (torch.float32, torch.bfloat16)
"""What the reference is tested in where nothing is asked for: one dtype in which little hides, one that is served."""


@dataclass(frozen=True)
class Bench:
    """Where and how decoders are tested: the device, the lens, and the user's text or prompt, if any.

    The reference is built in `dtypes`, or else in those of `DTYPES`; a decoder of the user's own is cast to the first
    of them, or else left as it is.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    lens: str = "tile"
    dtypes: tuple[torch.dtype, ...] = ()
    text: str | None = None
    prompt: str | None = None
    flags: str = ""
    """Command-line flags that set up the same bench."""

    def lens_for(self, dtype: torch.dtype) -> Lens:
        """The lens for decoders of a dtype; raises `BadInput` where there is no such lens."""
        return lens_called(self.lens, dtype)

    def sources(self, decoder: Decoder) -> Sources:
        """Where tokens for a decoder come from: the user's prompt, the user's text, or whatever can be drawn.

        Raises `PromptError` where the prompt or the text does not fit the decoder.
        """
        anything = AnyTokens(decoder.vocab_size)
        if self.prompt is not None:
            tokens = tokens_of(self.prompt, decoder.vocab_size)
            require_prompt(tokens, decoder.block_size)
            return [FromPrompt(tokens, anything)]
        if self.text is not None:
            return [FromText(tokens_of(self.text, decoder.vocab_size))]
        text = [drawn_text(byte_encoding())] if decoder.vocab_size >= BYTE_VOCAB else []
        return [anything, *text]


@lru_cache(maxsize=8)
def tokens_of(text: str, vocab_size: int) -> Row:
    """Tokens of a text in the encoding that goes with a vocabulary."""
    return tuple(encode(text, encoding_for(vocab_size)))


@dataclass(frozen=True)
class OneDecoder:
    """A target that is one decoder: a checkpoint, or what a user's factory made."""

    name: str
    command: str
    decoder: Decoder
    bench: Bench

    def decoders(self) -> Sequence[Decoder]:
        """Just that one."""
        return [self.decoder]

    def capabilities(self) -> frozenset[Capability]:
        """What it offers."""
        return self.decoder.capabilities

    def refusals(self) -> Mapping[Capability, str]:
        """Why it offers no more."""
        return self.decoder.refuses

    def sources(self, decoder: Decoder) -> Sources:
        """The user's text or prompt, or any tokens."""
        return self.bench.sources(decoder)


@dataclass(frozen=True)
class Under:
    """A target whose decoders are seen under another lens than its own."""

    target: "Target"
    lens: str
    bounds: Mapping[str, float] = field(default_factory=dict[str, float])
    """For decoders by name, where the lens has no bound of its own."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.target.name

    @property
    def command(self) -> str:
        """Arguments of `kvref check` that lead to it, under its own lens."""
        return self.target.command

    def decoders(self) -> Sequence[Decoder]:
        """Decoders of this target, each under the lens."""
        return self.seen

    @cached_property
    def seen(self) -> list[Decoder]:
        """One decoder for each of the target's."""
        return [
            decoder.under(Lens(self.lens, decoder.lens.dtype, self.bounds.get(decoder.name, 0.0)))
            for decoder in self.target.decoders()
        ]

    def capabilities(self) -> frozenset[Capability]:
        """What the target offers."""
        return self.target.capabilities()

    def refusals(self) -> Mapping[Capability, str]:
        """Why it offers no more."""
        return self.target.refusals()

    def sources(self, decoder: Decoder) -> Sources:
        """Where the target takes tokens from."""
        return self.target.sources(decoder)


class Named(Protocol):
    """What a report says of a target, wherever its decoders are."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    @property
    def command(self) -> str:
        """Arguments of `kvref check` that lead to it."""
        ...

    def capabilities(self) -> frozenset[Capability]:
        """What any decoder of this target offers."""
        ...

    def refusals(self) -> Mapping[Capability, str]:
        """Why its decoders offer no more, as far as they say."""
        ...


class Target(Named, Protocol):
    """Something that a user can name and that decoders come from."""

    def decoders(self) -> Sequence[Decoder]:
        """Decoders of this target; the first is the simplest."""
        ...

    def sources(self, decoder: Decoder) -> Sources:
        """Where the tokens for one of the decoders come from; the first is the simplest."""
        ...
