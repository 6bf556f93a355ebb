"""ONNX Runtime GenAI: models of transformers, exported by its own builder, tiny and with loud weights, on the CPU.

All of it runs in C++, in float32 and out of every lens's reach. Of a call it gives the logits of all new tokens by
`get_output`, where `get_logits` gives the last alone. A batch takes tokens once, so that caches here have one row.
"""

from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvref.errors import CacheFull, TargetError
from kvref.protocol import Logits, Tokens
from kvref.targets.packages import imported
from kvref.targets.tiny import redraw, tiny_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS = ()

TYPES = ("gemma", "granite", "llama", "olmo")
"""Model types of text that it runs at tiny sizes, and whose layers keep every token."""

SIZES = {"hidden_size": 64, "head_dim": 16, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
"""Its attention wants heads of a multiple of 16, and its generator the special tokens."""


@dataclass
class Held:
    """A generator, which is changed in place, and the tokens in it, as this package counts them."""

    generator: Any
    capacity: int
    length: int = 0


class GenAI:
    """An exported model. `source` is the model of transformers that it was exported from."""

    outside = "ONNX Runtime"
    preallocates = True
    max_batch = 1

    def __init__(self, package: Any, model: Any, source: "PreTrainedModel") -> None:
        self.package, self.model, self.source = package, model, source
        config: Any = source.config
        self.vocab_size, self.block_size = int(config.vocab_size), int(config.max_position_embeddings)
        self.n_layer = int(config.num_hidden_layers)
        one_row = "a batch of it takes tokens once"
        self.refuses = {
            **dict.fromkeys(("prefill", "reorder", "refill", "generate_batch"), one_row),
            "fork": "a generator cannot be copied",
        }

    @cached_property
    def elsewhere(self) -> "PreTrainedModel":
        """The same weights in torch, in float64."""
        return self.source.double()

    def full(self, tokens: Tokens) -> Logits:
        """One pass over each row, into a generator that nothing was in."""
        return torch.cat([self.step(self.start(1, None), row[None])[0] for row in tokens])

    def independent(self, tokens: Tokens) -> Logits:
        """What transformers computes with these weights in float64."""
        return self.elsewhere(input_ids=tokens, use_cache=False).logits

    def start(self, batch: int, capacity: int | None) -> Held:
        """Make a generator."""
        del batch
        slots = self.block_size if capacity is None else min(capacity, self.block_size)
        options = self.package.GeneratorParams(self.model)
        options.set_search_options(max_length=slots)
        return Held(self.package.Generator(self.model, options), slots)

    def step(self, cache: Held, tokens: Tokens) -> tuple[Logits, Held]:
        """Append tokens, and read the logits of all of them."""
        if cache.length + tokens.shape[1] > cache.capacity:
            # It would say so too, but some releases end the process.
            raise CacheFull(f"{tokens.shape[1]} tokens do not fit onto {cache.length} in {cache.capacity}")
        cache.generator.append_tokens(tokens.to(torch.int32).numpy())
        cache.length += tokens.shape[1]
        return self.read(cache, "logits"), cache

    def length(self, cache: Held) -> int:
        """Tokens in the generator."""
        return int(cache.generator.token_count())

    def keys_values(self, cache: Held, layer: int) -> tuple[Tensor, Tensor]:
        """The slots of a layer that tokens are in."""
        keys, values = (self.read(cache, f"present.{layer}.{what}") for what in ("key", "value"))
        return keys[:, :, : cache.length], values[:, :, : cache.length]

    def crop(self, cache: Held, length: int) -> Held:
        """Rewind the generator."""
        cache.generator.rewind_to(length)
        cache.length = length
        return cache

    def reset(self, cache: Held) -> Held:
        """Rewind it to its beginning."""
        return self.crop(cache, 0)

    def read(self, cache: Held, name: str) -> Tensor:
        """An output of the last call; it is copied, since the next call writes over it."""
        return torch.from_numpy(cache.generator.get_output(name)).clone()  # pyright: ignore[reportUnknownMemberType] torch leaves it untyped


def make(asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> GenAI:
    """A model of a type, exported into a folder that is gone afterwards."""
    del kind, device
    package = imported("onnxruntime_genai", "onnxruntime-genai")
    if asked not in TYPES:
        near = get_close_matches(asked, TYPES, 1)
        hint = f"did you mean {near[0] if near else 'llama'}?"
        raise TargetError(f"no model type {asked!r} is known to be exported for ONNX Runtime; {hint}")
    if dtype != torch.float32:
        raise TargetError("onnxruntime-genai runs in float32 on the CPU; leave out --dtype")
    source = tiny(asked)
    with TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return GenAI(package, package.Model(exported(source, Path(folder))), source)


def exported(source: Any, folder: Path) -> str:
    """Export a model by way of files; returns the folder that ONNX Runtime loads."""
    builder = imported("onnxruntime_genai.models.builder", "onnxruntime-genai")
    given, made, cache = (str(folder / name) for name in ("source", "made", "cache"))
    source.save_pretrained(given)
    tokenizer_of(source.config.get_text_config().vocab_size).save_pretrained(given)
    where: Sequence[str] = ("tiny", given, made, "fp32", "cpu", cache)
    options = builder.parse_extra_options(*where, ["hf_token=false"])
    builder.create_model(*where, **options)
    return made


def tokenizer_of(vocab_size: int) -> Any:
    """The tokenizer that the builder wants to copy; nobody will use it."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"t{token}": token for token in range(vocab_size)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="t0")))


def tiny(model_type: str) -> "PreTrainedModel":
    """A model with loud weights and heads as wide as its attention wants them."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    configs: Any = CONFIG_MAPPING
    classes: Any = AutoModelForCausalLM
    config: Any = tiny_config(configs[model_type])
    for name, value in SIZES.items():
        setattr(config, name, value)
    model: Any = classes.from_config(config, attn_implementation="eager")
    redraw(model, 0)
    return model.eval().requires_grad_(False)


def names() -> Iterator[str]:
    """Every model type."""
    imported("onnxruntime_genai", "onnxruntime-genai")
    yield from TYPES
