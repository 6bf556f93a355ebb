"""`kvref measure tests`: what the tests themselves cost, in lines and in JSON."""

# ruff: noqa: PT028 - `tests` is a command, and no test with defaults

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvref.asked import Asked
from kvref.errors import STOPPED, BadInput
from kvref.options import Attention, Cache, Device, Laws, Seed
from kvref.said import wrapped

if TYPE_CHECKING:
    from kvref.measure.tests_cost import Request, Row


def tests(
    target: Annotated[
        str | None,
        typer.Argument(help="What to try laws on, as for `kvref check`; else the reference.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="laws, lens, length or bugs; else all. May be given again.")
    ] = None,
    law: Laws = None,
    examples: Annotated[int, typer.Option(help="Schedules to try for each law.")] = 20,
    repeats: Annotated[int, typer.Option(help="Times that each figure is measured, for the spread.")] = 5,
    bugs: Annotated[int, typer.Option(help="Bugs up to which growth is measured.")] = 16,
    seed: Seed = 0,
    lens: Annotated[str, typer.Option(help="tile, grid, fold or float64.")] = "tile",
    dtype: Annotated[list[str] | None, typer.Option(help="As for `kvref check`; may be given again.")] = None,
    cache: Cache = None,
    attn: Attention = None,
    device: Device = "auto",
    json: Annotated[Path | None, typer.Option(help="File for the rows, also of a run that is stopped.")] = None,
) -> None:
    """What the tests cost: schedules a second, exact lens against ordinary kernels, growth with length and with bugs.

    Laws run on one thread, in this process; growth is measured on the reference, whatever the target. Figures are
    medians with [lowest, highest] of the repeats. Ctrl-C ends it with what was done.
    """
    from kvref.matrix.cli import require_writable
    from kvref.measure.tests_cost import Request

    require_writable([json] if json else [])
    asked = Asked(target, cache=cache, attn=attn, device=device, lens=lens, dtype=tuple(dtype or ()))
    request = Request(asked, tuple(law or ()), examples, seed, repeats, bugs, tuple(only or ()))
    stopped = told(request, json)
    raise typer.Exit(STOPPED if stopped else 0)


def told(request: "Request", path: Path | None) -> bool:
    """Print each row as it comes, and keep all in the end, however it came. Whether it was stopped before."""
    from kvref.measure.tests_cost import Row, measure_tests

    rows, stopped, said = list[Row](), True, ""
    try:
        for row in measure_tests(request):
            if not rows:
                typer.echo("\n".join(wrapped(setting(request))))
            rows.append(row)
            if (heading := heading_of(row, request, said)) != said:
                typer.echo("\n".join(["", *wrapped(heading)]))
                said = heading
            for line in row.lines():
                typer.echo(f"  {line}")
        stopped = False
    except KeyboardInterrupt:
        typer.echo("stopped before the end; what is above was done")
    except BadInput:
        path = path if rows else None  # nothing was begun
        raise
    finally:
        if path is not None:
            keep(rows, request, path, stopped=stopped)
    return stopped


def setting(request: "Request") -> str:
    """Under what all was measured, in one line."""
    import torch

    from kvref.operations import count

    threads = count(torch.get_num_threads(), "thread")
    examples = f"{request.examples} examples a law, seed {request.seed}, {count(request.repeats, 'repeat')}"
    return f"torch {torch.__version__}, {threads}, lens {request.asked.lens}, {examples}"


def heading_of(row: "Row", request: "Request", before: str) -> str:
    """What a row is about; rows with the same stand together, and growth with what it was fitted to."""
    from kvref.measure.tests_cost import BugsCost, Growth, LawCost, LengthCost, LensCost

    match row:
        case LawCost():
            return f"{row.target}: share of time in the decoder, and schedules a second"
        case LensCost():
            return f"{row.target}: {request.asked.lens} over ordinary kernels, time of the same schedules"
        case LengthCost():
            return "one schedule: half of its tokens at once, the others one by one"
        case BugsCost():
            return "the gate, until the first bugs of a shuffled catalogue are killed, 1 worker"
        case Growth():
            return before


def keep(rows: "list[Row]", request: "Request", path: Path, *, stopped: bool) -> None:
    """Write what was asked, under what, and every row with each of its repeats."""
    from dataclasses import asdict
    from json import dumps

    from kvref.environment import environment

    data: dict[str, Any] = {
        "environment": dict(environment(request.asked.bench().device)),
        "request": asdict(request),
        "stopped": stopped,
        "rows": [{"row": type(row).__name__, **asdict(row), "said": row.lines()} for row in rows],
    }
    try:
        path.write_text(dumps(data, indent=1, default=str) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} could not be written: {error.strerror}") from None
