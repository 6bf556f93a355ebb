"""What a decoder may offer beyond the least that is tested, and how that is found out."""

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, cast

from torch import nn

from kvref.errors import TargetError, one_line
from kvref.protocol import Implementation


class Capability(StrEnum):
    """What a decoder may offer beyond `Implementation`: a method of this name, in the form that `Decoder` shows.

    Four are no methods. Three are offered unless refused. `batch`: several rows at once, unless `max_batch` is 1.
    `atomic`: a pass that raises leaves the cache as it was. `lossless`: keys and values are kept as they are;
    what rounds them, as a quantised cache does, is not compared with an uncached pass. And what `generates_only` has no
    step to test.
    """

    BATCH = "batch"
    ATOMIC = "atomic"
    LOSSLESS = "lossless"
    GENERATES_ONLY = "generates_only"

    LENGTH = "length"
    LENGTHS = "lengths"
    KEYS_VALUES = "keys_values"
    BYTES = "bytes"
    TENSORS = "tensors"
    LAYERS = "layers"
    PREFILL = "prefill"
    PEEK = "peek"
    CROP = "crop"
    CROP_ROWS = "crop_rows"
    REFILL = "refill"
    FORK = "fork"
    REORDER = "reorder"
    RESET = "reset"
    SAVE = "save"
    POISON = "poison"
    GENERATE = "generate"
    GENERATE_BATCH = "generate_batch"
    SPECULATE = "speculate"
    SESSION = "session"
    WITHOUT_MASK = "without_mask"
    WITH_ALL_HEADS = "with_all_heads"
    INDEPENDENT = "independent"


BUILT_OF: dict[Capability, tuple[Capability, ...]] = {
    Capability.GENERATE_BATCH: (Capability.PREFILL, Capability.REORDER),
    Capability.SPECULATE: (Capability.CROP, Capability.CROP_ROWS, Capability.REORDER),
}
"""Loops that kvref has itself, and what they are made of; a decoder may have its own."""

SIZES: dict[Capability, tuple[str, ...]] = {
    Capability.KEYS_VALUES: ("n_layer",),
    Capability.BYTES: ("n_layer", "n_kv_head", "head_dim", "dtype"),
    Capability.TENSORS: ("n_layer", "n_kv_head", "head_dim", "dtype"),
    Capability.WITHOUT_MASK: ("n_layer",),
    Capability.WITH_ALL_HEADS: ("n_head", "n_kv_head"),
}
"""Sizes that an implementation has to declare for what it offers."""


def attribute(implementation: Implementation, name: str) -> Any:
    """An attribute that an implementation may have; None where it has none. Raises `TargetError` where it raises."""
    try:
        return getattr(implementation, name, None)
    except Exception as error:
        raise TargetError(f"reading `{name}` of the decoder raised {one_line(error)}") from error


def refusals(implementation: Implementation) -> dict[Capability, str]:
    """Why an implementation offers no more, as far as it says.

    Raises `TargetError` for a capability that is none, and for a reason that is no text.
    """
    stated: Any = attribute(implementation, "refuses")
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        raise TargetError(f"`refuses` must be a dict with a reason for each capability, not {type(stated).__name__}")
    said = cast("Mapping[object, object]", stated)
    for name, reason in said.items():
        if not isinstance(name, str) or name not in list(Capability):
            near = get_close_matches(str(name), list(Capability), 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(Capability)}"
            raise TargetError(f"`refuses` names {name!r:.40}, which is no capability; {hint}")
        if not isinstance(reason, str) or not reason:
            raise TargetError(f"`refuses` must say why there is no {name}, in words, not {type(reason).__name__}")
    return {Capability(name): str(reason) for name, reason in said.items()}


def offers(implementation: Implementation, capability: Capability) -> bool:
    """Whether an implementation has what a capability asks for; a submodule of that name is not a method."""
    if capability is Capability.BATCH:
        return getattr(implementation, "max_batch", None) != 1
    own = attribute(implementation, capability)
    if capability is Capability.GENERATES_ONLY:
        return own is True
    if capability is Capability.LOSSLESS:
        return True
    if capability is Capability.ATOMIC:
        return attribute(implementation, Capability.GENERATES_ONLY) is not True
    if capability in BUILT_OF and not callable(own):
        return all(offers(implementation, part) for part in BUILT_OF[capability])
    if capability is Capability.SAVE and not callable(getattr(implementation, "restore", None)):
        return False
    if capability is Capability.WITH_ALL_HEADS and not shares_heads(implementation):
        return False
    return callable(own) and not isinstance(own, nn.Module | type)


def shares_heads(implementation: Implementation) -> bool:
    """Whether query heads share heads of keys and values; also where it does not say, which is then asked for."""
    heads = getattr(implementation, "n_head", None)
    return heads is None or heads != getattr(implementation, "n_kv_head", None)
