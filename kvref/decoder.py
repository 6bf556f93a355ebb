"""What is tested: a decoder, tokens to logits, with and without a cache.

Any object with the two sizes and three methods of `Implementation` can be tested; nothing of kvref need be imported.
What else its cache can do is a *capability*: one more method, of the name and form given in `Capability`. A law that
needs a capability which the decoder lacks is skipped, visibly. Two more ways to say no are never taken for a fault: the
attribute `refuses` gives a reason for a capability that is lacking, and such a method may raise `NotImplementedError`
where it cannot do what it is asked for this time.

`generate_batch` may know several ways to generate: `ways` names them, and it is told one behind its other arguments.
Where a way is not greedy decoding, `generate_uncached(prompt, max_new_tokens, end, way)` says what it gives without a
cache, and None where it is. What has these two methods alone, and no step, is tested by the laws of generation.

What does not compute in torch says so by an attribute `outside`, the name of what does. No lens can work on its numbers
then. `in_float64()` may give the same decoder with the same weights, built in float64, for what tells rounding from a
fault; it is called more than once, and had better keep what it gave. What computes in torch is lifted to float64
without it, but for constants that were rounded where it was built.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter
from types import GeneratorType
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kvref import answers
from kvref.answers import DecoderRaised, Meddled, Misshapen, OutOfReach, Refused
from kvref.cache import Rows
from kvref.capability import SIZES, Capability, attribute, offers, refusals
from kvref.errors import NotInterceptable, RangeExceeded, TargetError, one_line
from kvref.generate import BatchGeneration, Session, generate_cached
from kvref.lens import LIFTED, NATIVE, Lens
from kvref.protocol import Conversation, Implementation, Logits, Sampler, Tokens
from kvref.speculate import Propose, Speculation


def named_ways(value: Any) -> bool:
    """Whether something names ways to generate."""
    return isinstance(value, list | tuple) and all(isinstance(way, str) for way in cast("Sequence[Any]", value))


CHANGED = "changed the tokens that it was given"
SEEDED = "seeded torch's global generator, which others draw from"
"""What an implementation may do to what is not its own."""


class GuardedConversation:
    """A conversation of the decoder under test, each call of which is guarded as the decoder's own are."""

    def __init__(self, decoder: "Decoder", conversation: Conversation) -> None:
        self.decoder, self.conversation = decoder, conversation

    def feed(self, tokens: Tokens) -> Float[Tensor, "batch vocab_size"]:
        """Run what is new, and give the logits of its last token."""
        last: Any = self.decoder.guard("feed", lambda: self.conversation.feed(tokens))
        if isinstance(last, Tensor) and last.ndim == 2:
            last = last[:, None]
        return self.decoder.require_logits("feed", tokens[:, :1], last)[:, 0]

    def reply(self, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """Tokens sampled as the answer."""
        said: Any = self.decoder.guard("reply", lambda: self.conversation.reply(max_new_tokens, sampler))
        return answers.tokens("reply", said)


heartbeat: ContextVar[Callable[[], None] | None] = ContextVar("heartbeat", default=None)
"""What is called behind each call of an implementation, as a sign of life; None where nobody waits for one."""


@dataclass
class Meter:
    """What has been asked of an implementation: seconds in it, calls that gave logits, and tokens in them."""

    seconds: float = 0.0
    calls: int = 0
    tokens: int = 0
    meddled: dict[str, str] = field(default_factory=dict[str, str])
    """What the implementation changed that is not its own, in words, and the first call in which it did."""
    told: set[str] = field(default_factory=set[str])
    """What of that was reported, and is not again."""
    visits: list[int] = field(default_factory=list[int])
    """How often each layer is run for a token, once that is found out."""


class Decoder:
    """The decoder under test, as every law sees it.

    It forwards each call to the implementation under the numerics of `lens`, counts in `meter` what it asks of it, and
    marks an exception from there as `DecoderRaised`: a crash is never mistaken for a broken law, nor for a fault of
    kvref.
    """

    device: torch.device
    """Where tokens have to be."""

    def __init__(self, implementation: Implementation, name: str = "decoder", lens: Lens = NATIVE) -> None:
        for needed in ("full", "start", "step"):
            if not callable(getattr(implementation, needed, None)):
                raise TargetError(f"{name} has no `{needed}`; a decoder has vocab_size, block_size, full, start, step")
        self.given = self.implementation = implementation
        self.name = name
        self.lens = lens
        self.logits_dtype: torch.dtype | None = None
        self.outside: str | None = self.option("outside", lambda value: isinstance(value, str))
        self.vocab_size = self.size("vocab_size")
        self.block_size = self.size("block_size")
        try:
            self.device = torch.device(getattr(implementation, "device", "cpu"))
        except (RuntimeError, TypeError) as error:
            raise TargetError(f"{name}: `device` is no device ({one_line(error)})") from error
        self.max_batch: int | None = self.option("max_batch", lambda value: isinstance(value, int) and value >= 1)
        self.preallocates = bool(self.option("preallocates", lambda value: isinstance(value, bool)))
        self.ways: Sequence[str] = self.option("ways", named_ways) or ("",)
        """Ways to generate a batch; one without a name where it does not say."""
        self.refuses = refusals(implementation)
        self.capabilities = frozenset(c for c in Capability if c not in self.refuses and offers(implementation, c))
        for needed in {size for capability in self.capabilities for size in SIZES.get(capability, ())}:
            self.size(needed)
        self.implementation = self.under_lens()
        self.meter = Meter()

    def __repr__(self) -> str:
        return self.name

    def under(self, lens: Lens) -> "Decoder":
        """Give the same decoder under another lens; what is asked of it counts in the same meter."""
        other = copy(self)
        other.lens, other.logits_dtype = lens, None
        other.implementation = other.under_lens()
        return other

    def under_lens(self) -> Implementation:
        """What answers under the lens: the implementation or, in float64, the twin that it may have."""
        twin = attribute(self.given, "in_float64")
        if self.lens.name not in LIFTED or not callable(twin):
            return self.given
        try:
            return cast("Implementation", twin())
        except NotImplementedError:
            return self.given
        except Exception as error:
            raise TargetError(f"{self.name}: `in_float64` raised {one_line(error)}") from error

    def full(self, tokens: Tokens) -> Logits:
        """Logits of one uncached pass over whole sequences."""
        return self.require_logits("full", tokens, self._feed("full", tokens))

    def start(self, batch: int, capacity: int | None = None) -> Any:
        """Handle of an empty cache."""
        return self._call("start", batch, capacity)

    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Any]:
        """Logits of every new token, and the handle of the cache with these tokens in it."""
        logits, cache = answers.pair("step", self._feed("step", tokens, cache))
        return self.require_logits("step", tokens, logits), cache

    def prefill(self, cache: Any, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Any]:
        """Logits of the first tokens, and the handle; the first `padding` columns of each row are padding.

        Logits of padding say nothing, and come out as zeros.
        """
        answer = self._feed("prefill", tokens, cache, behind=(list(padding),))
        logits, cache = answers.pair("prefill", answer)
        columns = torch.arange(tokens.size(1), device=tokens.device)
        hidden = columns < torch.tensor(list(padding), device=tokens.device)[:, None]
        logits = self.require_logits("prefill", tokens, logits)
        return logits.masked_fill(hidden.to(logits.device)[:, :, None], 0.0), cache

    def peek(self, cache: Any, tokens: Tokens) -> Logits:
        """Logits of new tokens that are not kept."""
        return self.require_logits("peek", tokens, self._feed("peek", tokens, cache))

    def length(self, cache: Any) -> int:
        """Tokens in the cache."""
        return answers.number("length", self._call("length", cache))

    def lengths(self, cache: Any) -> list[int]:
        """Tokens in each row of the cache; nothing while it is empty and has no rows yet."""
        lengths = answers.list_of("lengths", self._call("lengths", cache), object)
        return [answers.number("lengths", length) for length in lengths]

    def keys_values(self, cache: Any, layer: int) -> tuple[Rows, Rows]:
        """Keys and values of the cached tokens in one layer; `n_layer` says how many layers there are."""
        return answers.keys_values("keys_values", self._call("keys_values", cache, layer))

    def bytes(self, cache: Any) -> int:
        """Memory that the cache holds. `n_kv_head`, `head_dim` and `dtype` say what it has to be."""
        return answers.number("bytes", self._call("bytes", cache))

    def tensors(self, cache: Any) -> list[Tensor]:
        """Every tensor that the cache keeps alive."""
        return answers.list_of("tensors", self._call("tensors", cache), Tensor)

    def layers(self) -> list[nn.Module]:
        """The modules that every token passes, whose first argument is `batch new ...`."""
        layers = answers.list_of("layers", self._call("layers"), nn.Module)
        if not layers:
            raise Misshapen("layers", TypeError("it must give at least one module"))
        return layers

    def crop(self, cache: Any, length: int) -> Any:
        """Keep the first `length` tokens."""
        return self._call("crop", cache, length)

    def crop_rows(self, cache: Any, lengths: Sequence[int]) -> Any:
        """Keep the first tokens of each row, as many as `lengths` says for it."""
        return self._call("crop_rows", cache, list(lengths))

    def refill(self, cache: Any, row: int, tokens: Tokens) -> tuple[Logits, Any]:
        """Give a row to another request: logits of its first tokens, `1 new vocab_size`, and the handle."""
        logits, cache = answers.pair("refill", self._feed("refill", tokens, cache, row))
        return self.require_logits("refill", tokens, logits), cache

    def save(self, cache: Any, path: Path) -> None:
        """Write the cache to a file."""
        self._call("save", cache, path)

    def restore(self, path: Path) -> Any:
        """Handle of the cache that was written to a file."""
        return self._call("restore", path)

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

    def independent(self, tokens: Tokens) -> Logits:
        """Logits of whole sequences by another implementation of the same weights, the same but for rounding."""
        return answers.logits("independent", self._call("independent", tokens), (*tokens.shape, self.vocab_size), None)

    def generate(self, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """Tokens that cached generation adds to the prompt, for each row: its own loop, or else kvref's."""
        if Capability.GENERATE in self.capabilities:
            return answers.tokens("generate", self._feed("generate", prompt, behind=(max_new_tokens, sampler)))
        return generate_cached(self, prompt, max_new_tokens, sampler)

    def generate_batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, end: int, way: str = ""
    ) -> list[list[int]]:
        """Tokens that generation adds to prompts of different lengths: by a way of its own, or else by kvref's loop."""
        if callable(attribute(self.implementation, Capability.GENERATE_BATCH)):
            given = prompts, max_new_tokens, end, *((way,) if way else ())
            return answers.tokens("generate_batch", self._call("generate_batch", *given))
        return BatchGeneration(self, end).generate(prompts, max_new_tokens)

    def generate_uncached(self, prompt: Sequence[int], max_new_tokens: int, end: int, way: str) -> list[int] | None:
        """Tokens that a way adds to a prompt without a cache; None where they have to be those of greedy decoding."""
        if not callable(attribute(self.implementation, "generate_uncached")):
            return None
        answer = self._call("generate_uncached", prompt, max_new_tokens, end, *((way,) if way else ()))
        return None if answer is None else answers.tokens("generate_uncached", [answer])[0]

    def speculate(self, prompt: Tokens, max_new_tokens: int, propose: Propose) -> list[list[int]]:
        """Tokens that greedy speculative decoding adds to the prompt: by its own loop, or else kvref's."""
        if callable(attribute(self.implementation, Capability.SPECULATE)):
            return answers.tokens("speculate", self._feed("speculate", prompt, behind=(max_new_tokens, propose)))
        return Speculation(self, propose).generate(prompt, max_new_tokens)

    def session(self) -> Conversation:
        """Open a conversation of one row: its own, or else kvref's over its cache."""
        if Capability.SESSION in self.capabilities:
            return GuardedConversation(self, self._call("session"))
        return Session(self)

    def without_mask(self) -> "Decoder":
        """Give the same weights with every token seeing every other, as a control."""
        return self._related("without_mask", "without its mask")

    def with_all_heads(self) -> "Decoder":
        """Give the same model with a head of keys and values for each query head: repeated in its weights."""
        return self._related("with_all_heads", "with repeated heads")

    def _related(self, name: str, described: str) -> "Decoder":
        other = self._call(name)
        try:
            related = Decoder(other, f"{self.name} {described}", self.lens)
        except TargetError as error:
            raise Misshapen(name, error) from error
        related.meter = self.meter
        return related

    @cached_property
    def depth(self) -> int:
        """Number of layers that tokens pass; 1 where the decoder does not say."""
        return len(self.layers()) if Capability.LAYERS in self.capabilities else 1

    def size(self, name: str) -> Any:
        """Read a size that a capability needs declared: n_layer, n_head, n_kv_head, head_dim or dtype."""
        try:
            value = getattr(self.implementation, name)
        except AttributeError:
            raise TargetError(f"{self.name} does not declare `{name}`, which it needs or what it offers") from None
        except Exception as error:
            raise TargetError(f"{self.name}: reading `{name}` raised {one_line(error)}") from error
        kind = torch.dtype if name == "dtype" else int
        if not isinstance(value, kind) or (isinstance(value, int) and value < 1):
            wanted = "a torch.dtype" if name == "dtype" else "a whole number of at least 1"
            raise TargetError(f"{self.name}: `{name}` is {value!r}; it must be {wanted}")
        return self.lens.stored(value) if isinstance(value, torch.dtype) else value

    def option(self, name: str, fits: Callable[[Any], bool]) -> Any:
        """Read what an implementation may declare, if it does; raise `TargetError` for what does not fit."""
        value = attribute(self.implementation, name)
        if value is not None and not fits(value):
            raise TargetError(f"{self.name}: `{name}` is {type(value).__name__} {value!r:.60}, which it cannot be")
        return value

    def guard(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Call something of the implementation: under the lens, on the clock, with its exceptions marked."""
        if self.outside and not (self.lens.name == NATIVE.name or self.implementation is not self.given):
            raise OutOfReach(name, NotInterceptable(f"not interceptable: {self.outside} computes, and not torch"))
        seed = torch.initial_seed()
        with self._clock(), torch.inference_mode():
            try:
                with nullcontext() if self.outside else self.lens.numerics():
                    answer: Any = call(*args)
                    # What a generator still has to do belongs to the call.
                    return list(cast("Any", answer)) if isinstance(answer, GeneratorType) else answer
            except (NotInterceptable, RangeExceeded) as error:
                raise OutOfReach(name, error) from error
            except KeyboardInterrupt:
                raise
            except NotImplementedError as error:
                raise (DecoderRaised if name in ("full", "start", "step") else Refused)(name, error) from error
            except BaseException as error:
                raise DecoderRaised(name, error) from error
            finally:
                if torch.initial_seed() != seed:
                    self.meter.meddled.setdefault(SEEDED, name)

    def require_no_meddling(self) -> None:
        """Raise `Meddled` if the implementation changed what is not its own; each kind of that until it is told."""
        for what, call in self.meter.meddled.items():
            if what not in self.meter.told:
                raise Meddled(call, RuntimeError(what))

    def require_logits(self, call: str, tokens: Tokens, logits: object) -> Logits:
        """Logits of these tokens, always in one dtype; see `answers.logits`."""
        self.meter.calls += 1
        self.meter.tokens += tokens.numel()
        checked = answers.logits(call, logits, (*tokens.shape, self.vocab_size), self.logits_dtype)
        self.logits_dtype = checked.dtype
        return checked

    def _feed(self, name: str, tokens: Tokens, *before: Any, behind: tuple[Any, ...] = ()) -> Any:
        """Call with tokens, after and before other arguments; a copy of them, and whether that was changed is noted."""
        given = tokens.clone()
        answer = self._call(name, *before, given, *behind)
        if not torch.equal(given, tokens):
            self.meter.meddled.setdefault(CHANGED, name)
        return answer

    def _call(self, name: str, *args: Any) -> Any:
        return self.guard(name, getattr(self.implementation, name), *args)

    @contextmanager
    def _clock(self) -> Generator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.meter.seconds += perf_counter() - start
            if beat := heartbeat.get():
                beat()
