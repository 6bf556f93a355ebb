"""Targets from transformers: a model type, tiny and with random weights, or a checkpoint as it is."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast, get_args

import torch

from kvref.decoder import Decoder
from kvref.errors import TargetError, one_line
from kvref.targets.base import Bench, OneDecoder, Target
from kvref.targets.causal_lm import QUANTISED, CacheKind, CausalLM

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KINDS: tuple[CacheKind, ...] = get_args(CacheKind)
ATTENTIONS = ("eager", "sdpa")
LONGEST = 128
"""Tokens of the longest sequence to test: a context may be a thousand times that, and a cache as large."""

Make = Callable[[str | None, torch.dtype | None], "PreTrainedModel"]
"""How to build a model, given the attention that it runs with and a dtype, each where one is asked for."""


def from_config(model_type: str, called: str, bench: Bench, caches: str | None, attentions: str | None) -> list[Target]:
    """A tiny model of a type that transformers knows, with each kind of cache and attention that is asked for."""
    from difflib import get_close_matches

    from kvref.targets.tiny import model_types, tiny_model

    if model_type not in (known := model_types()):
        near = get_close_matches(model_type, known, 1)
        hint = f"did you mean {near[0]}?" if near else "see `kvref measure architectures` for those that there are"
        raise TargetError(f"transformers maps no causal language model to {model_type!r}; {hint}")

    def make(attention: str | None, dtype: torch.dtype | None) -> "PreTrainedModel":
        return tiny_model(model_type, attention=attention, dtype=dtype or torch.float32)

    return targets(make, called, bench, caches, attentions, rebuilds=True)


def add_twin(implementation: CausalLM, make: Make) -> None:
    """Let a model be built in float64, with the weights that it has.

    Constants that it makes of its config, decays or frequencies, are then not rounded to the dtype of its weights: two
    ways to use them that are equal in exact arithmetic differ by that, and float64 would not make it vanish.
    """

    @cache
    def in_float64() -> CausalLM:
        model: Any = make(implementation.model.config._attn_implementation, torch.float64)
        model.to(implementation.device)
        for mine, theirs in zip(model.parameters(), implementation.model.parameters(), strict=True):
            mine.data.copy_(theirs)
        return made(model, implementation.kind)

    implementation.in_float64 = in_float64


def from_checkpoint(name: str, called: str, bench: Bench, caches: str | None, attentions: str | None) -> list[Target]:
    """A checkpoint, a directory or a name on the hub, with each kind of cache and attention that is asked for.

    It is loaded from safetensors alone, in its own dtype where none is asked for, and code that comes with it is never
    run.
    """
    from transformers import AutoModelForCausalLM

    if not name:
        raise TargetError("hf: needs a directory or a name on the hub, such as hf:gpt2")
    try:
        folder = Path(name).expanduser() if name.startswith((".", "/", "~")) else None
        if folder and not folder.is_dir():
            raise TargetError(f"{name} is no directory; give one with config.json and model.safetensors, or a hub name")
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(f"{name:.60} is no name of a directory ({type(error).__name__})") from error

    def make(attention: str | None, dtype: torch.dtype | None) -> "PreTrainedModel":
        loader: Any = AutoModelForCausalLM
        try:
            model = loader.from_pretrained(
                str(folder or name),
                attn_implementation=attention,
                dtype=dtype or "auto",
                trust_remote_code=False,
                use_safetensors=True,
            )
        except Exception as error:
            raise TargetError(f"transformers cannot load {name} ({one_line(error)})") from error
        return model.eval().requires_grad_(False)

    return targets(make, called, bench, caches, attentions)


def targets(
    make: Make, called: str, bench: Bench, caches: str | None, attentions: str | None, rebuilds: bool = False
) -> list[Target]:
    """One target for each kind of cache and of attention; `rebuilds` says that another model costs little.

    Where none is named, it is the attention that transformers prefers, the dynamic cache, the recorded one where a
    layer keeps no more than the last tokens, and the static one where its class says that it fits.
    """
    if len(bench.dtypes) > 1:
        raise TargetError(f"{called} is one decoder; give one --dtype, or none for the dtype that it has")
    dtype = bench.dtypes[0] if bench.dtypes else None
    found: list[Target] = []
    kinds = chosen(caches, KINDS, "cache")
    for asked in chosen(attentions, ATTENTIONS, "attention") or (None,):
        model: Any = make(asked, dtype)
        try:
            model.to(bench.device)
            implementations = [made(model, kind) for kind in cast("list[CacheKind]", kinds) or caches_of(model)]
        except TargetError:
            raise
        except Exception as error:
            raise TargetError(f"{called} cannot be checked ({one_line(error)})") from error
        attention = asked or model.config._attn_implementation
        for implementation in implementations:
            if rebuilds:
                add_twin(implementation, make)
            kind = implementation.kind
            name = f"{called} ({kind} cache, {attention} attention)"
            decoder = Decoder(implementation, name, bench.lens_for(implementation.dtype))
            bench.sources(decoder)  # raises now for a prompt or text that does not fit
            command = f"{quote(called)} --cache {kind} --attn {attention}{bench.flags}"
            found.append(OneDecoder(name, command, decoder, bench))
    return found


def made(model: Any, kind: CacheKind) -> CausalLM:
    """A model with a kind of cache, for short sequences, and with what it cannot be asked."""
    implementation = CausalLM(model, kind)
    implementation.block_size = min(implementation.block_size, LONGEST)
    if kind in QUANTISED:
        try:
            implementation.start(1, None)
        except Exception as error:
            raise TargetError(f"no {kind} cache fits ({one_line(error)}); leave {kind} out of --cache") from error
    implementation.refuses |= implementation.lacking()
    if why := implementation.padding_refused():
        implementation.refuses |= {"prefill": why, "generate_batch": why}
    return implementation


def chosen(names: str | None, known: Sequence[str], what: str) -> list[str]:
    """Names out of a list with commas, each once; nothing where there is no list."""
    asked = [] if names is None else list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in asked:
        if name not in known:
            raise TargetError(f"models of transformers have no {name!r} {what}; give {', '.join(known)}")
    return asked


def caches_of(model: Any) -> list[CacheKind]:
    """The kinds of cache that fit a model by what it says of itself."""
    plain = CausalLM(model)
    recorded = (plain.window or plain.has_states) and CausalLM(model, "recorded").filled()
    return ["dynamic", *(["recorded"] if recorded else []), *(["static"] if plain.declares_static else [])]
