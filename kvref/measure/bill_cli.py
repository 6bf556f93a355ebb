"""`kvref measure bill [SIZE]`: what a KV cache costs, by formula and counted. Torch is imported when it runs."""

import json
import re
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvref.config import SIZES, GPTConfig
from kvref.errors import BadInput, ConfigError

if TYPE_CHECKING:
    from kvref.measure.bill import Request

LONG = 32768
"""Tokens where none are asked for, and no context of GPT-2's limits them."""

SHAPES = {**SIZES, "8b": GPTConfig(LONG, 128256, n_layer=32, n_head=32, n_embd=4096, n_kv_head=8)}
"""Shapes by name. `8b` has the layers, heads and vocabulary of Llama 3 8B (Grattafiori et al., arXiv:2407.21783), but
the weights of a GPT-2 of that shape, whose MLP and embeddings are other ones."""

MOST_LAYERS, MOST_BYTES = 1024, 1 << 60
"""What is not counted is more than this."""

UNITS = {f"{letter}{i}B": (1024 if i else 1000) ** power for power, letter in enumerate("KMGT", 1) for i in ("", "i")}
"""Bytes in each unit that memory can be given in."""


def bill(
    size: Annotated[str, typer.Argument(help="gpt2, gpt2-medium, gpt2-large, gpt2-xl or 8b.")] = "gpt2",
    n_layer: Annotated[int | None, typer.Option(help="Layers; this and the next replace those of SIZE.")] = None,
    n_head: Annotated[int | None, typer.Option(help="Heads.")] = None,
    n_kv_head: Annotated[int | None, typer.Option(help="Heads of keys and values.")] = None,
    n_embd: Annotated[int | None, typer.Option(help="Width of a layer.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="Width of a head; N_EMBD is this times the heads.")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Tokens in the vocabulary.")] = None,
    dtype: Annotated[str, typer.Option(help="float16, bfloat16, float32 or float64.")] = "float16",
    tokens: Annotated[
        int | None, typer.Option(help="Tokens in each row; else GPT-2's 1024, or 32768.", show_default=False)
    ] = None,
    batch: Annotated[int, typer.Option(help="Rows.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory for weights and caches, as 80GiB or 512MB.")] = "80GiB",
    file: Annotated[Path | None, typer.Option("--json", help="File to write the same to.", show_default=False)] = None,
) -> None:
    """Work out what a KV cache costs in memory, copies, reads and FLOPs, and count it in the code beside."""
    given = {"n_layer": n_layer, "n_head": n_head, "n_kv_head": n_kv_head, "n_embd": n_embd, "vocab_size": vocab_size}
    changes = {name: value for name, value in given.items() if value is not None}
    config = shape_of(size, changes, head_dim, tokens)
    require_positive("--batch", batch)
    room = bytes_in(memory)

    from kvref.lens import dtypes_called
    from kvref.measure.bill import Request, bill_of

    (number,) = dtypes_called([dtype])
    request = Request(config, number, config.block_size if tokens is None else tokens, batch, room)
    require_countable(request)
    found = bill_of(request)
    for line in found.text():
        typer.echo(line)
    if file is not None:
        write(file, found.to_json())
    raise typer.Exit(found.exit_code)


def shape_of(size: str, changes: dict[str, int], head_dim: int | None, tokens: int | None) -> GPTConfig:
    """The shape of a name, with changes, and with a context that has room for the tokens.

    A published GPT-2 has its own context and takes no more. Raises `BadInput` for what cannot be.
    """
    if size not in SHAPES:
        raise BadInput(f"there is no size {size!r}; there are {', '.join(SHAPES)}")
    if tokens is not None:
        require_positive("--tokens", tokens)
    for name, value in (("head_dim", head_dim), *changes.items()):
        if value is not None:
            require_positive(f"--{name.replace('_', '-')}", value)
    shape = SHAPES[size]
    if head_dim is not None:
        changes = {"n_embd": head_dim * changes.get("n_head", shape.n_head), **changes}
    published = size in SIZES and not changes
    if published and tokens is not None and tokens > shape.block_size:
        raise BadInput(
            f"{size} has {shape.block_size} positions, and no room for {tokens} tokens: give at most that many, "
            "or a shape of your own, such as --n-layer"
        )
    context = shape.block_size if published else tokens or LONG
    config = GPTConfig(**{**vars(shape), **changes, "block_size": context})
    if head_dim not in (None, config.head_dim):
        raise ConfigError(
            f"--n-embd {config.n_embd} is not {config.n_head} heads of --head-dim {head_dim}: leave one of them out"
        )
    return config


def require_countable(request: "Request") -> None:
    """Refuse what no machine holds: tensors have no more than 2^63 bytes, and every layer takes time to be counted."""
    from kvref.measure.formulas import cache_bytes, weight_bytes

    config, dtype = request.config, request.dtype
    if config.n_layer > MOST_LAYERS:
        raise BadInput(f"--n-layer is {config.n_layer}; give at most {MOST_LAYERS}, which are all that is counted")
    if max(cache_bytes(config, request.tokens, dtype, request.batch), weight_bytes(config, dtype)) > MOST_BYTES:
        raise BadInput("the cache or the weights would be larger than 1 EiB: give fewer tokens, or a smaller shape")


def require_positive(option: str, value: int) -> None:
    """Refuse what has to be at least one."""
    if value < 1:
        raise BadInput(f"{option} is {value}; it must be at least 1")


def bytes_in(memory: str) -> int:
    """Bytes in a size with a unit."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]i?B)", memory.strip())
    number = float(parts[1]) * UNITS[parts[2]] if parts else 0.0
    size = int(number) if isfinite(number) else 0
    if size < 1:
        raise BadInput(f"--memory {memory!r} is no size; give a positive number and a unit, as 80GiB or 512MB")
    return size


def write(file: Path, what: dict[str, Any]) -> None:
    """Write JSON, or raise `BadInput`."""
    try:
        file.write_text(json.dumps(what, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}; give another --json") from error
