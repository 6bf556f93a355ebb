"""`kvref measure`: each command prints figures for this machine. Nothing here imports torch before a command runs."""

from collections import Counter
from collections.abc import Collection
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from kvref.errors import BadInput
from kvref.measure.bill_cli import bill
from kvref.measure.latency_cli import latency
from kvref.measure.tests_cli import tests
from kvref.options import Device


class OrATarget(TyperGroup):
    """A group whose first word may be a target in place of a command: then `latency` is meant."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else ["latency", *args])


HELP = (
    "Measure a cache and what kvref claims, on this machine. `kvref measure TARGET` is `kvref measure latency TARGET`."
)

app = typer.Typer(rich_markup_mode=None, help=HELP, cls=OrATarget)
app.command(epilog="Exit codes: 0 measured, 2 bad input, 4 stopped.")(latency)
app.command(epilog="Exit codes: 0 all as counted, 1 a count differs from its formula, 2 bad input.")(bill)
app.command(epilog="Exit codes: 0 measured, 2 bad input, 4 stopped.")(tests)

Seed = Annotated[int, typer.Option(min=0, help="The same seed draws the same.")]

PROGRESS = 10_000
"""Schedules after which a line of progress is printed."""


@app.command()
def bits(
    schedules: Annotated[int, typer.Option(min=1, help="Schedules to try at least, over caches and dtypes.")] = 2000,
    lens: Annotated[str, typer.Option(help="tile, grid or fold.")] = "tile",
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype; may be given again.")] = None,
    device: Device = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    seed: Seed = 0,
) -> None:
    """Count differing bits of the reference: random schedules of every operation, both caches, four dtypes."""
    import torch

    from kvref.device import resolve_device
    from kvref.exactness import MODES
    from kvref.lens import DTYPES, dtypes_called
    from kvref.measure.bits import measure_bits

    if lens not in MODES:
        raise BadInput(f"there is no exact lens {lens!r}; there are {', '.join(MODES)}")
    found = str(resolve_device(device))
    dtypes = list(DTYPES) if not dtype else [name for name in dict.fromkeys(dtype) if dtypes_called([name])]
    typer.echo(f"torch {torch.__version__}, {found}, lens {lens}, {workers} x 1 thread, seed {seed}")
    tried, tokens, found_by = Counter[str](), 0, list[str]()
    for tally in measure_bits(schedules, lens, dtypes, found, seed, workers):
        tried[f"{tally.task.kind} {tally.task.dtype}"] += tally.schedules
        tokens += tally.tokens
        if sum(tried.values()) % PROGRESS < tally.schedules:
            typer.echo(f"{sum(tried.values())} schedules so far, differing bits in {len(found_by)}")
        if tally.finding:
            found_by.append(tally.finding)
            typer.echo(f"seed {tally.task.seed}, {tally.task.kind}, {tally.task.dtype}:\n{tally.finding}")
    for name, number in sorted(tried.items()):
        typer.echo(f"{name:18} {number:8} schedules")
    typer.echo(f"{sum(tried.values())} schedules, {tokens} tokens run, differing bits in {len(found_by)}")
    raise typer.Exit(1 if found_by else 0)


@app.command()
def lens(
    shape: Annotated[list[str] | None, typer.Option(help="tiny or gpt2; else both.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="A dtype; may be given again.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="tile, grid, fold or float64; else all.")] = None,
    device: Device = "auto",
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for each figure.")] = 10.0,
) -> None:
    """Time passes under each lens against ordinary kernels, paired in one run; threads as torch has them."""
    import torch

    from kvref.device import resolve_device
    from kvref.lens import NAMES, dtypes_called
    from kvref.measure.speed import SHAPES, measure_speed

    shapes, lenses = chosen(shape, SHAPES, "shape"), chosen(only, NAMES, "lens")
    found = str(resolve_device(device))
    typer.echo(f"torch {torch.__version__}, {found}, {torch.get_num_threads()} threads; medians of pairs")
    for cost in measure_speed(shapes, dtypes_called(dtype or ["float32"]), lenses, found, seconds):
        typer.echo(
            f"{cost.shape:5} {cost.dtype:9} {cost.lens:8} {cost.what:7} {1000 * cost.native:9.3f} ms "
            f"x {cost.ratio:5.2f}   {cost.pairs} pairs"
        )


@app.command()
def ulp(
    models: Annotated[int, typer.Option(min=1, help="Models for each figure.")] = 20,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype; may be given again.")] = None,
) -> None:
    """Count how often a change in the last place of one cached number moves a later logit, under each exact mode."""
    from kvref.lens import DTYPES, dtypes_called
    from kvref.measure.ulp import measure_ulps

    for rate in measure_ulps(dtypes=dtypes_called(dtype or list(DTYPES)), models=models):
        name = str(rate.dtype).removeprefix("torch.")
        share = rate.seen / rate.changes
        typer.echo(f"{rate.mode:5} {name:9} {rate.init:5} {rate.what:6} {share:5.0%} of {rate.changes} seen")


@app.command()
def verdicts(
    models: Annotated[int, typer.Option(min=1, help="Honest models to judge.")] = 1000, seed: Seed = 0
) -> None:
    """Count the verdicts on honest random models, and on planted faults, from ordinary kernels alone."""
    import torch

    from kvref.measure.verdicts import measure_verdicts, report

    torch.set_num_threads(1)
    raise typer.Exit(report(measure_verdicts(models, seed), typer.echo))


@app.command()
def diagnosis(
    only: Annotated[list[str] | None, typer.Argument(help="Planted faults; else all.", show_default=False)] = None,
    model: Annotated[list[str] | None, typer.Option(help="gpt2 or llama, of transformers; else both.")] = None,
    examples: Annotated[int, typer.Option(min=1, help="Schedules to try for each law.")] = 5,
    seed: Seed = 0,
) -> None:
    """Count how often a fault planted in a model of transformers is named, first or among the first three."""
    import torch

    from kvref.measure.diagnosis import MODELS, measure_diagnosis
    from kvref.measure.planted import PLANTS

    models, bugs = chosen(model, MODELS, "model"), chosen(only, PLANTS, "planted fault")
    torch.set_num_threads(1)
    places = list[int | None]()
    for row in measure_diagnosis(models, bugs, examples, seed):
        places.append(row.place)
        what = "no law is broken" if row.place is None else f"place {row.place:2}  {row.score:.2f}  first {row.first}"
        typer.echo(f"{row.model:6} {row.bug:36} {row.broken:2} laws broken  {what}")
    found = [place for place in places if place is not None]
    typer.echo(
        f"{len(places)} planted, {len(found)} found; "
        f"named first {sum(place == 1 for place in found)}, among the first three {sum(place <= 3 for place in found)}"
    )


@app.command()
def architectures(
    only: Annotated[list[str] | None, typer.Argument(help="Model types; else all.", show_default=False)] = None,
) -> None:
    """Compare every causal language model of transformers, tiny and unmodified, cached with uncached, by bits."""
    from kvref.measure.architectures import Result, survey
    from kvref.targets.tiny import model_types

    types = chosen(only, model_types(), "model type")
    results = Counter[Result]()
    unequal = 0
    for row in survey(types):
        results[row.result] += 1
        unequal += row.honest and row.result not in (Result.EQUAL, Result.ORDER)
        gaps = "" if row.gap is None or row.gap64 is None else f"float32 {row.gap:.1e}, float64 {row.gap64:.1e}"
        line = f"{row.model_type:24} {row.attention:5} {row.cache:7} {row.result:18} {gaps} {row.reason}"
        typer.echo(line.rstrip())
    typer.echo(", ".join(f"{number} {result}" for result, number in results.most_common()))
    typer.echo(f"honest in float64, and not equal by bits under tile or grid: {unequal}")


def chosen(names: list[str] | None, known: Collection[str], what: str) -> list[str]:
    """Names that were asked for, each once, or all that are known; raises `BadInput` for another."""
    for name in names or []:
        if name not in known:
            raise BadInput(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return list(dict.fromkeys(names or known))
