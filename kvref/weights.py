"""Weights: loud random ones that let no bug hide, and published GPT-2 checkpoints, in and out.

GPT-2's own initialisation (std 0.02) makes attention almost uniform, so a wrong key changes a logit by about 1/length
and a wrong position by less. Loud weights make attention peaked, keys unlike values, and every position distinct.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from kvref.config import GPTConfig
from kvref.errors import CheckpointError, ConfigError
from kvref.gpt2 import GPT, Block

Blocks = Iterable[Block]

GAIN = 1.2
"""Standard deviation of what a linear layer gives for an input of unit variance.

Scores in attention then have a std of about 1.4. At 1 a wrong key shows less; from 2 on attention is so peaked that a
wrong value can hide where nobody looks (one stale value moved a logit by at least 2e-3 of the largest with a gain of 1,
and by 1e-7 with 2).
"""

CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
"""Weights that OpenAI's release stores input by output, where `nn.Linear` has output by input."""

SIZES_OF_A_CONFIG = ("n_positions", "vocab_size", "n_layer", "n_head", "n_embd")
"""Names that a GPT-2 config has for the fields of `GPTConfig`, in their order."""

FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
"""Options of a GPT-2 config that this model has one answer to, with that answer; it is also their default."""


def empty_model(config: GPTConfig, dtype: torch.dtype, device: torch.device | str, kind: type[GPT] = GPT) -> GPT:
    """Build a model whose weights are yet to be filled, without drawing random numbers that nobody will use."""
    if kind is not GPT:
        # A class of someone's own may have parts that nobody will fill.
        state = torch.get_rng_state()
        model = kind(config).to(device, dtype).eval()
        torch.set_rng_state(state)
        return model
    with torch.device("meta"):
        model = kind(config)
    for weight in model.parameters():
        if weight.ndim == 2 and weight.size(0) > weight.size(1):
            weight.data = weight.t().contiguous().t()  # for one token, a BLAS reads a wide matrix faster by its inputs
    return model.to(dtype).to_empty(device=device).eval()


@lru_cache(maxsize=256)
def loud(
    config: GPTConfig,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    kind: type[GPT] = GPT,
) -> GPT:
    """Build a model with loud random weights: the same numbers for a seed, whatever the dtype and the device.

    Calls with equal arguments share one model, so nobody may train it.
    """
    model = empty_model(config, dtype, device, kind)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for parameter, mean, std in loudness(module):
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(mean + std * noise)
    return model.requires_grad_(False)


def loudness(module: nn.Module) -> list[tuple[Tensor, float, float]]:
    """Mean and standard deviation for the parameters of one module."""
    match module:
        case nn.Linear():
            return [(module.weight, 0.0, GAIN / math.sqrt(module.in_features)), (module.bias, 0.0, 0.3)]
        case nn.LayerNorm():
            return [(module.weight, 1.0, 0.3), (module.bias, 0.0, 0.3)]
        case nn.Embedding():
            return [(module.weight, 0.0, 1.0)]
        case _:
            return []


@lru_cache(maxsize=64)
def with_all_heads(model: GPT) -> GPT:
    """Give the same model with a head of keys and values for each query head, repeated in its weights."""
    config = model.config
    all_heads = empty_model(replace(config, n_kv_head=None), model.transformer.wte.weight.dtype, "meta", type(model))
    kept = {name: weight for name, weight in model.state_dict().items() if ".c_attn." not in name}
    all_heads.load_state_dict(kept, strict=False, assign=True)
    pairs = zip(cast("Blocks", model.transformer.h), cast("Blocks", all_heads.transformer.h), strict=True)
    for shared, attention in ((one.attn, other.attn) for one, other in pairs):
        for name, part in shared.c_attn.named_parameters():
            queries, *keys_values = torch.split(part, shared.widths)
            heads = [
                rows.view(config.kv_heads, config.head_dim, *rows.shape[1:])
                .repeat_interleave(config.n_head // config.kv_heads, dim=0)
                .flatten(0, 1)
                for rows in keys_values
            ]
            setattr(attention.c_attn, name, nn.Parameter(torch.cat([queries, *heads]), requires_grad=False))
    return all_heads


def load(name: str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> GPT:
    """Load a GPT-2 checkpoint of Hugging Face's form, from a directory or from the hub by name.

    Only safetensors are read; a pickled checkpoint can run code and is refused. Raises `CheckpointError` when it is
    missing, pickled, or not of the shape that its config says.
    """
    directory = locate_checkpoint(name)
    config = read_config(directory)
    wanted = empty_model(config, dtype, "meta").state_dict()
    weights = {short_name(key): value for key, value in read_tensors(directory).items()}
    head = weights.pop("lm_head.weight", None)
    if head is not None and "transformer.wte.weight" in weights and not head.equal(weights["transformer.wte.weight"]):
        raise CheckpointError(f"{name}: lm_head.weight differs from wte.weight; GPT-2 has a tied head")
    weights = {key: value for key, value in weights.items() if not key.endswith((".attn.bias", ".attn.masked_bias"))}
    if missing := sorted(wanted.keys() - weights.keys()):
        raise CheckpointError(f"{name}: {len(missing)} weights are missing, the first is {missing[0]}")
    if unknown := sorted(weights.keys() - wanted.keys()):
        raise CheckpointError(f"{name}: {len(unknown)} weights are not GPT-2's, the first is {unknown[0]}")
    for key, value in wanted.items():
        shape = tuple(reversed(value.shape)) if key.endswith(CONV1D) else tuple(value.shape)
        if tuple(weights[key].shape) != shape:
            raise CheckpointError(f"{name}: {key} has shape {tuple(weights[key].shape)}, its config says {shape}")
    model = empty_model(config, dtype, device)
    with torch.no_grad():
        for key, target in model.state_dict().items():
            target.copy_(weights[key].t() if key.endswith(CONV1D) else weights[key])
    return model.requires_grad_(False)


def save(model: GPT, directory: str | Path) -> None:
    """Write a checkpoint that `load` and transformers' `GPT2LMHeadModel.from_pretrained` read.

    Raises `CheckpointError` for a model whose heads share keys and values.
    """
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType] - paths untyped there

    if model.config.kv_heads != model.config.n_head:
        raise CheckpointError(
            "GPT-2 has a head of keys and values for each query head; a checkpoint cannot say otherwise"
        )
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    sizes = vars(model.config) | {"n_positions": model.config.block_size}
    del sizes["block_size"], sizes["n_kv_head"]
    config = {
        "architectures": ["GPT2LMHeadModel"],
        **FIXED,
        **sizes,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {
        key: (value.t() if key.endswith(CONV1D) else value).contiguous() for key, value in model.state_dict().items()
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def locate_checkpoint(name: str) -> Path:
    """Directory of a checkpoint: the one named, or a download of the hub's files that we are willing to read."""
    directory = Path(name)
    try:
        if directory.is_dir():
            return directory
    except OSError as error:
        raise CheckpointError(f"{name} cannot be looked at: {error.strerror}") from None
    if directory.exists() or name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(f"{name} is not a directory; give one with config.json and model.safetensors")
    from huggingface_hub import snapshot_download  # pyright: ignore[reportUnknownVariableType] - untyped dicts there

    try:
        return Path(
            snapshot_download(name, allow_patterns=["config.json", "*.safetensors", "*.safetensors.index.json"])
        )
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
        raise CheckpointError(f"{name} is no directory here, and the hub did not give it ({reason})") from None


def read_config(directory: Path) -> GPTConfig:
    """Shape of a checkpoint, from its config.json; raise `CheckpointError` for what this model cannot be."""
    path = directory / "config.json"
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for option, answer in FIXED.items():
            if data.get(option, answer) != answer:
                raise CheckpointError(f"{path}: {option} is {data[option]!r}; only {answer!r} is GPT-2's")
        sizes = {name: data.get(name) for name in SIZES_OF_A_CONFIG}
        for size, value in sizes.items():
            if not isinstance(value, int) or value >= 2**31:
                raise CheckpointError(f"{path}: {size} is {value!r}; it must be a whole number below {2**31}")
        if data.get("n_inner") not in (None, 4 * data["n_embd"]):
            raise CheckpointError(f"{path}: n_inner is {data['n_inner']}; GPT-2 has 4 * n_embd")
        return GPTConfig(*(data[name] for name in SIZES_OF_A_CONFIG))
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise CheckpointError(f"{directory} has no config.json; is it a checkpoint?") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a GPT-2 config ({type(error).__name__}: {error})") from None


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint's safetensors files."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType] - paths untyped there

    files = sorted(directory.glob("*.safetensors"))
    if not files:
        pickled = [path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in directory.glob(pattern)]
        found = f"only {pickled[0]}, which is pickled and could run code" if pickled else "none"
        raise CheckpointError(
            f"{directory} has no model.safetensors ({found}); save it with save_pretrained of a current transformers"
        )
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            tensors |= load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} cannot be read ({error}); download or save it again") from None
    return tensors


def short_name(key: str) -> str:
    """Name of a weight here: OpenAI's, below `transformer.`."""
    return key if key.startswith(("transformer.", "lm_head.")) else f"transformer.{key}"
