"""Any causal language model of transformers as a decoder, with its dynamic or its static cache.

What changes from release to release of transformers is met here, and nowhere else: what a model calls its cache, how a
cache is cropped, what has to be said to it before.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from kvref.errors import CacheFull, NoCache
from kvref.protocol import Logits, Tokens
from kvref.targets.generation import WAYS, Generation
from kvref.targets.padding import padding_changes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CacheKind = Literal["dynamic", "recorded", "claimed", "static", "fp8", "quanto", "hqq"]
"""Kinds of cache. A recorded one is dynamic, and keeps what leaves a window until the next pass, so that the last one
can be taken back, as assisted generation does. A claimed one is recorded, and cropped whenever it says that it can be:
the others are asked for no more than what is documented. The last three are quantised, and named by what does it."""

QUANTISED = ("fp8", "quanto", "hqq")
"""Kinds of cache that keep keys and values rounded."""

METHODS = {"reorder": "reorder_cache", "reset": "reset", "keys_values": "layers"}
"""What kinds of transformers have for these capabilities."""

RESIDUAL = 4
"""Tokens that a cache which is quantised in groups keeps as they are."""

CACHES = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""What a model may call its cache, the newest name first. Its argument and the field of its output are named alike."""

CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "context_length", "model_max_length")
"""What a config may call the longest sequence."""

UNLIMITED = 64
"""Longest sequence to test where the config names none, as under relative positions."""

HANDS_NONE_BACK = ("recurrent_gemma", "xlm")
"""Model types that fill a cache which they are given, and neither make one nor hand it back."""

AFTER_PADDING = (
    "camembert",
    "data2vec-text",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
"""Model types that count positions from the padding token on, and leave out tokens that are padding. Told where a token
stands, they treat padding as any other."""

FORGETS_POSITIONS = ("bamba",)
"""Model types that count every call from position 0, unless told where its tokens stand."""

MASKS_ALL_SLOTS = ("bloom",)
"""Model types whose bias is as long as the mask, which their own generation makes as long as a static cache."""

SEEDS_THE_GENERATOR = ("reformer",)
"""Model types that set torch's global generator to the `hash_seed` of their config, so that their hashes repeat."""

WHOLE_SEQUENCE = ("xlm",)
"""Model types that want past tokens together with the new ones, and leave out themselves what is cached."""


@dataclass(frozen=True)
class Filled:
    """A cache with these tokens in it, padding included. `held` is None until the model has made it.

    `padding` counts the columns of each row that are none of its own, from the left; `last` those of the last pass,
    while it can be taken back out of a window.
    """

    held: Any
    tokens: Tokens
    capacity: int
    padding: tuple[int, ...]
    last: int = 0

    @property
    def width(self) -> int:
        """Columns in the cache."""
        return self.tokens.shape[1]

    def of_rows(self, rows: Sequence[int]) -> "Filled":
        """The same columns for these rows; the cache itself is not touched."""
        return replace(self, tokens=self.tokens[list(rows)], padding=tuple(self.padding[row] for row in rows))


class CausalLM:
    """A model of transformers, told no more than it needs. It makes its own dynamic cache in the first step.

    `declares_static` is whether its class says that a static cache fits; others may refuse one, or be wrong with it.
    Raises `NoCache` for a model without one.
    """

    def __init__(self, model: "PreTrainedModel", cache: CacheKind = "dynamic", max_batch: int | None = None) -> None:
        self.model: Any = model
        self.kind: CacheKind = cache
        self.preallocates = cache == "static"
        self.records = cache in ("recorded", "claimed")
        self.declares_static = bool(getattr(model, "_can_compile_fullgraph", False))
        self.max_batch = max_batch
        self.model_type: str = self.model.config.model_type
        self.config: Any = self.model.config.get_text_config(decoder=True)
        self.vocab_size = int(self.config.vocab_size)
        self.first_position = int(self.config.pad_token_id) + 1 if self.model_type in AFTER_PADDING else 0
        named = [size for name in CONTEXTS if (size := getattr(self.config, name, None) or 0) > 0]
        self.block_size = int(named[0] if named else UNLIMITED) - self.first_position
        self.device: torch.device = self.model.device
        self.dtype: torch.dtype = self.model.dtype
        self.arguments = inspect.signature(inspect.unwrap(type(model).forward)).parameters
        self.name = next((name for name in CACHES if name in self.arguments), "")
        if not self.name:
            raise NoCache(f"{type(model).__name__} has no cache")
        self.n_layer = int(self.config.num_hidden_layers)
        self.generation = Generation(model, static=self.preallocates)
        self.ways = tuple(WAYS)
        self.in_float64: Callable[[], CausalLM] | None = None
        self.refuses = self.refusals()

    def refusals(self) -> dict[str, str]:
        """What cannot be asked of transformers, or of this model, and why."""
        why = {
            **({} if self.model.can_generate() else {"generate_batch": "its class does not generate"}),
            "atomic": "a pass of transformers that raises leaves its tokens in the layers that they had passed",
            "crop_rows": "transformers removes as many tokens from every row",
        }
        if len(self.blocks) != self.n_layer:
            why["layers"] = f"no list of {self.n_layer} layers was found that text passes"
        if self.name not in CACHES[:3]:
            none = f"its {self.name} are no cache of transformers' own kinds"
            return why | dict.fromkeys(("prefill", "crop", "fork", "reorder", "reset", "keys_values"), none)
        if self.kind in QUANTISED:
            rounded = "a quantised cache rounds them"
            why |= dict.fromkeys(("lossless", "keys_values"), rounded)
            if self.kind == "quanto":
                why["fork"] = "tensors of optimum-quanto cannot be copied"
            why["generate_batch"] = "generation without a cache, which it is compared with, rounds nothing"
        if any(type(layer).__name__ != "DynamicLayer" for layer in self.layer_caches()):
            why["keys_values"] = "not all of its layers keep the keys and values of every token"
        return why

    def layer_caches(self) -> list[Any]:
        """What an empty cache has for each layer; nothing where layers that keep every token are made as they come."""
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config).layers

    @cached_property
    def window(self) -> int | None:
        """Tokens that the narrowest window holds; None where no layer forgets any."""
        return min(
            (layer.sliding_window for layer in self.layer_caches() if hasattr(layer, "sliding_window")), default=None
        )

    @cached_property
    def has_states(self) -> bool:
        """Whether a layer keeps a state of the last tokens, as convolutions do, and not keys of its own for each."""
        return any(hasattr(layer, "conv_states") for layer in self.layer_caches())

    def filled(self) -> Filled | None:
        """A cache with a token in it; None where the model raises."""
        try:
            return self.step(self.start(1, None), torch.zeros(1, 1, dtype=torch.long, device=self.device))[1]
        except Exception:
            return None

    def lacking(self) -> dict[str, str]:
        """What a cache of a class of the model's own lacks, of what transformers' kinds have."""
        held = (cache := self.filled()) and getattr(cache.held, "self_attention_cache", cache.held)
        return {
            capability: f"{type(held).__name__} has no {name}"
            for capability, name in METHODS.items()
            if held is not None and not hasattr(held, name)
        }

    def padding_refused(self) -> str:
        """Why padding cannot be asked of the model; nothing where an uncached pass over it is that over the tokens.

        Where it is not, as under learned positions that nobody can give, padding is wrong before there is a cache.
        """

        def padded(tokens: Tokens, padding: Sequence[int]) -> Logits:
            nothing = replace(self.start(1, None), held=None, padding=tuple(padding))
            told = self.padded(nothing, tokens)
            return self.run(input_ids=tokens, use_cache=False, **told).logits

        return padding_changes(self.full, padded, self.device)

    def run(self, **given: Any) -> Any:
        """One call of the model, which leaves torch's global generator alone."""
        if self.model_type not in SEEDS_THE_GENERATOR:
            return self.model(**given)
        with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped
            return self.model(**given)

    def full(self, tokens: Tokens) -> Logits:
        """One pass without a cache."""
        return self.run(input_ids=tokens, use_cache=False, **self.positions(0, tokens)).logits

    def independent(self, tokens: Tokens) -> Logits:
        """One pass without a cache in float64, through the attention that is written out in transformers."""
        other: Any = deepcopy(self.model).double()
        other.set_attn_implementation("eager")
        return other(input_ids=tokens, use_cache=False, **self.positions(0, tokens)).logits

    def start(self, batch: int, capacity: int | None) -> Filled:
        """Start an empty cache."""
        slots = self.block_size if capacity is None else min(capacity, self.block_size)
        nothing = torch.empty(batch, 0, dtype=torch.long, device=self.device)
        return Filled(self.empty(slots), nothing, slots, (0,) * batch)

    def step(self, cache: Filled, tokens: Tokens) -> tuple[Logits, Filled]:
        """One pass over the new tokens."""
        everything = torch.cat([cache.tokens, tokens], dim=1)
        # A growing cache has room for any padding; a preallocated one does not.
        taken = everything.shape[1] - (0 if self.preallocates else min(cache.padding))
        if taken > cache.capacity:
            raise CacheFull(f"{taken} tokens do not fit into a cache for {cache.capacity}")
        given = everything if self.model_type in WHOLE_SEQUENCE else tokens
        told = self.padded(cache, tokens) if any(cache.padding) else self.positions(cache.width, tokens)
        if self.records and cache.last:
            self.shorten(cache.held, 0)  # the last pass is not taken back
        output = self.run(input_ids=given, use_cache=True, **{self.name: cache.held}, **told)
        held = output.get(self.name, cache.held)
        return output.logits, replace(cache, held=held, tokens=everything, last=tokens.shape[1])

    def prefill(self, cache: Filled, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Filled]:
        """One pass over prompts of different lengths, padded on the left."""
        return self.step(replace(cache, padding=tuple(padding)), tokens)

    def generate_batch(self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str) -> list[list[int]]:
        """Tokens that transformers' own `generate` adds."""
        return self.generation.batch(prompts, new, end, way)

    def generate_uncached(self, prompt: Sequence[int], new: int, end: int, way: str) -> list[int] | None:
        """What a way adds without a cache, where that is not greedy decoding."""
        return self.generation.uncached(prompt, new, end, way)

    def length(self, cache: Filled) -> int:
        """Tokens in the longest row."""
        return cache.width - min(cache.padding)

    def lengths(self, cache: Filled) -> list[int]:
        """Tokens in each row."""
        return [cache.width - columns for columns in cache.padding]

    def keys_values(self, cache: Filled, layer: int) -> tuple[Tensor, Tensor]:
        """What a layer keeps of all that has passed; a layer with a window keeps less, and so refuses."""
        held = own(getattr(cache.held, "self_attention_cache", cache.held), "layers")[layer]
        if held.keys is None:
            raise NotImplementedError(f"layer {layer} was passed over")
        return held.keys[:, :, : cache.width], held.values[:, :, : cache.width]

    def layers(self) -> list[nn.Module]:
        """The blocks of the model."""
        return self.blocks

    @cached_property
    def blocks(self) -> list[nn.Module]:
        """Its blocks, and not those of an encoder of images beside them, which text does not pass.

        None where text passes no list of them as `batch new ...`: some models stack several views of it.
        """
        return next(
            (blocks for blocks in lists_of_blocks(self.model) if blocks and self.passes(blocks[0])), list[nn.Module]()
        )

    def passes(self, block: nn.Module) -> bool:
        """Whether text passes a block; yes, where the model raises, which laws will show."""
        shapes: list[torch.Size] = []

        def note(_: nn.Module, given: tuple[Any, ...]) -> None:
            shapes.extend(first.shape[:2] for first in given[:1] if isinstance(first, Tensor))

        hook = block.register_forward_pre_hook(note)
        try:
            self.model(input_ids=torch.zeros(1, 3, dtype=torch.long, device=self.device), use_cache=False)
        except Exception:
            return True
        finally:
            hook.remove()
        return set(shapes) == {torch.Size((1, 3))}

    def crop(self, cache: Filled, length: int) -> Filled:
        """Keep the first tokens, where all rows have as many and the cache says that it can go back."""
        padding = cache.padding if length else (0,) * len(cache.padding)
        if len(set(padding)) > 1:
            raise NotImplementedError(self.refuses["crop_rows"])
        if self.preallocates and any(padding):
            raise NotImplementedError("transformers keeps the columns of padding, and so takes fewer tokens")
        if not getattr(cache.held, "is_croppable", False):
            raise NotImplementedError("its cache does not say that it is croppable")
        columns = length + padding[0]
        removed = cache.width - columns
        if not removed:
            return cache
        beyond = self.window is not None and cache.width >= self.window and not self.preallocates
        if (beyond or self.has_states) and self.kind != "claimed":
            where = "beyond a window" if beyond else "where a layer keeps a state of the last tokens"
            # The first is documented; of the second it says nothing, and leaves too few keys.
            if not self.records:
                raise NotImplementedError(f"{where} only a recorded cache can be cropped")
            if removed > cache.last:
                raise NotImplementedError(f"{where} a recorded cache takes back its last pass, and no more")
        self.shorten(cache.held, removed)
        return replace(cache, tokens=cache.tokens[:, :columns], padding=padding, last=0)

    def shorten(self, held: Any, removed: int) -> None:
        """Take so many columns off the end of what is held."""
        held.crop(-removed)

    def fork(self, cache: Filled) -> Filled:
        """Copy the cache, as transformers' own examples for shared prefixes do."""
        return replace(cache, held=deepcopy(cache.held))

    def reorder(self, cache: Filled, rows: Sequence[int]) -> Filled:
        """Make the batch of these rows, as beam search does."""
        if cache.width:
            own(cache.held, "reorder_cache")(torch.tensor(list(rows), device=self.device))
            return cache.of_rows(rows)
        # A cache without tokens belongs to no rows yet, or would keep those that it was made for.
        return replace(cache.of_rows(rows), held=self.empty(cache.capacity))

    def reset(self, cache: Filled) -> Filled:
        """Forget everything."""
        if cache.held is not None:
            own(cache.held, "reset")()
        return replace(cache, tokens=cache.tokens[:, :0], padding=(0,) * len(cache.padding), last=0)

    def empty(self, slots: int) -> Any:
        """An empty cache; None where the model makes it."""
        from transformers import DynamicCache, QuantizedCache, StaticCache

        if self.kind in QUANTISED:
            return QuantizedCache(self.kind, self.model.config, **self.groups())
        if self.preallocates:
            return StaticCache(config=self.model.config, max_cache_len=slots)
        if self.records:
            cache = DynamicCache(config=self.model.config)
            cache.activate_past_recording()
            return cache
        return DynamicCache(config=self.model.config) if self.model_type in HANDS_NONE_BACK else None

    def groups(self) -> dict[str, int]:
        """Options of a cache that is quantised in groups: rounded every few tokens, and not first after 128."""
        if self.kind == "fp8":
            return {}
        head_dim = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
        return {"residual_length": RESIDUAL, "q_group_size": min(64, int(head_dim))}

    def positions(self, past: int, tokens: Tokens) -> Mapping[str, Any]:
        """The positions of new tokens, where a model does not find them by itself."""
        if self.model_type not in AFTER_PADDING + FORGETS_POSITIONS:
            return {}
        first = self.first_position + past
        return {"position_ids": torch.arange(first, first + tokens.shape[1], device=tokens.device).expand_as(tokens)}

    def padded(self, cache: Filled, tokens: Tokens) -> Mapping[str, Any]:
        """What transformers' generation says of rows with padding: which columns are tokens, and their positions."""
        columns = torch.arange(cache.width + tokens.shape[1], device=self.device)
        padding = torch.tensor(cache.padding, device=self.device)[:, None]
        mask = (columns >= padding).long()
        if self.preallocates and cache.held is not None and self.model_type in MASKS_ALL_SLOTS:
            mask = nn.functional.pad(mask, (0, cache.capacity - mask.shape[1]))
        told = {"attention_mask": mask}
        if "position_ids" in self.arguments:
            told["position_ids"] = (columns - padding).clamp_min(0)[:, cache.width :] + self.first_position
        return told


def own(held: Any, name: str) -> Any:
    """What a cache has by this name; a class of a model's own need not have all that transformers' kinds have."""
    if not hasattr(held, name):
        raise NotImplementedError(f"{type(held).__name__} has no {name}")
    return getattr(held, name)


def lists_of_blocks(model: nn.Module) -> list[list[nn.Module]]:
    """What the layers of a model may be: its longest lists of modules, the outermost first; there is always one."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    longest = max(map(len, lists), default=0)
    return [each for each in lists if len(each) == longest] or [[]]
