"""`kvref measure [TARGET]`: time per token with each kind of cache and without one, in lines, a picture and JSON."""

import os
from pathlib import Path
from typing import Annotated

import typer

from kvref.asked import Asked
from kvref.errors import BadInput
from kvref.options import Attention, Cache, Device


def latency(
    target: Annotated[
        str | None, typer.Argument(help="What to time, as for `kvref check`; else the reference.", show_default=False)
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            help="tiny, gpt2, gpt2-medium, gpt2-large or gpt2-xl shapes of the reference; may be given again."
        ),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="A GPT-2 checkpoint, in the reference.")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens in the sequence at its end.")] = 500,
    prompt: Annotated[int, typer.Option(help="Tokens that are given at once, before the others come one by one.")] = 8,
    batch: Annotated[list[int] | None, typer.Option(help="Rows; else 1. May be given again.")] = None,
    repeats: Annotated[int, typer.Option(help="Times that all is run, for the spread.")] = 5,
    places: Annotated[int, typer.Option(help="Positions at which the way without a cache is timed.")] = 12,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16 or float64.")] = None,
    cache: Cache = None,
    attn: Attention = None,
    device: Device = "auto",
    threads: Annotated[int | None, typer.Option(help="Threads of torch; else as many as it takes itself.")] = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Time `generate` of transformers too, with the same weights.")
    ] = True,
    picture: Annotated[
        list[Path] | None, typer.Option(help="Draw the plot: a .png or .svg. May be given again.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for measure.jsonl, line by line, and measure.json.")] = Path(
        ".kvref"
    ),
    article: Annotated[
        bool, typer.Option("--article", help="GPT-2 small up to 500 tokens, and its claims beside what was measured.")
    ] = False,
) -> None:
    """Time per token against position, with each kind of cache and without: same weights, same tokens, in one run."""
    import torch

    from kvref.measure.run import Request, measure

    if threads is not None:
        most = os.cpu_count() or 1
        if not 1 <= threads <= most:
            raise BadInput(f"--threads is {threads}; it must be from 1 to {most}")
        torch.set_num_threads(threads)
    if article and (target not in (None, "reference") or weights or set(size or []) - {"gpt2"}):
        raise BadInput("the article is about GPT-2 small; leave out the target, --weights and --size")
    asked = Asked(target, weights, cache=cache, attn=attn, device=device, dtype=(dtype,) if dtype else ())
    request = Request(
        asked,
        tuple(dict.fromkeys(size or [])),
        tuple(dict.fromkeys(batch or [1])),
        tokens,
        prompt,
        repeats,
        places,
        peers,
        tuple(picture or ()),
        out,
    )
    code, curves = measure(request, typer.echo)
    if article:
        from kvref.measure.article import claims

        for line in (line for each in curves for line in claims(each)):
            typer.echo(line)
    raise typer.Exit(code)
