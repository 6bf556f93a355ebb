"""`kvref bugs`: the catalogue, and what kills it. Nothing here imports torch before a command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvref.errors import BadInput, MatrixError
from kvref.options import Device, Laws, Lens, Seed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console

    from kvref.bug import Bug
    from kvref.matrix.cells import Cell, Matrix
    from kvref.search import Effort
    from kvref.targets import Bench

EXIT_CODES = "Exit codes: 0 every bug killed, 1 a bug survives, 2 bad input, 3 kvref broke, 4 inconclusive."

GATE, WHOLE = 60, 20
"""Examples of each law that a gate, which stops at a kill, and a whole matrix try."""

app = typer.Typer(rich_markup_mode=None, help="The catalogue of bugs, and which laws kill them.")

Names = Annotated[list[str] | None, typer.Argument(help="Bugs; else all.", show_default=False)]
Examples = Annotated[int, typer.Option(min=1, help="Schedules to try for each law.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; else one for each core.", show_default=False)]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        min=0.1, help="Seconds after which a cell is ended; else 60, and one for each example.", show_default=False
    ),
]
Saved = Annotated[Path | None, typer.Option("--matrix", help="Matrix that `kvref bugs run --json` saved.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """The catalogue of bugs, and which laws kill them."""
    if context.invoked_subcommand is None:
        raise BadInput("give a command, such as `kvref bugs list`; see `kvref bugs --help`")


@app.command("list")
def list_bugs() -> None:
    """List the bugs: name, family, and what is wrong."""
    from rich.table import Table

    from kvref.bug import catalogue

    screen = console()
    if not screen.is_terminal:
        for name, bug in catalogue().items():
            typer.echo(f"{name}\t{bug.family}\t{bug.wrong}")
        return
    table = Table("bug", "family", "what is wrong", box=None)
    for name, bug in catalogue().items():
        table.add_row(name, bug.family, bug.wrong)
    screen.print(table)


@app.command(epilog="Exit codes: 0 shown, 2 bad input, 3 kvref broke, 4 the reference failed, so nothing was tried.")
def show(
    name: Annotated[str, typer.Argument(help="A bug.")],
    matrix: Saved = None,
    examples: Examples = 60,
    seed: Seed = 0,
) -> None:
    """Show a bug: what is wrong, its diff against the reference, where it was seen, and what kills it.

    With --matrix, every killer is named as the file has it, at once. Without, a law that is on record for it is tried,
    or all until one kills, and the smallest schedule that does is shown; then every law on record is named.
    """
    from kvref.matrix.cells import read_matrix
    from kvref.matrix.record import record
    from kvref.search import Effort
    from kvref.targets import Bench

    bugs = choose_bugs([name])
    saved = None if matrix is None else known(read_matrix(matrix), [name])
    (bug,) = bugs.values()
    typer.echo(bug.page() + "\n")
    found = saved or gated(bugs, Effort(examples, seed), Bench())
    typer.echo("\n".join(killers_told(found, name)))
    if not saved:
        told = [f"  example {record().kills[name][law]:2}  {law}" for law in record().killers(name)]
        told = told or ["  nothing yet; `kvref bugs run --record FILE` measures it"]
        typer.echo("\n".join(["\non record:", *told]))
    raise typer.Exit(4 if found.stopped else 0)


@app.command(epilog=EXIT_CODES)
def run(
    names: Names = None,
    law: Laws = None,
    gate: Annotated[bool, typer.Option("--gate", help="Stop at the first law that kills a bug.")] = False,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Keep the smallest schedule that kills, not the first; takes longer.")
    ] = False,
    examples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Schedules to try for each law; else {GATE} with --gate or --record, {WHOLE} without.",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    workers: Workers = None,
    max_seconds: MaxSeconds = None,
    json: Annotated[Path | None, typer.Option(help="File to save the matrix in.")] = None,
    stryker: Annotated[Path | None, typer.Option(help="File for a mutation testing report, schema 2.")] = None,
    record: Annotated[Path | None, typer.Option(help="File for the kills alone, as kvref comes with them.")] = None,
    device: Device = "auto",
    lens: Lens = "tile",
) -> None:
    """Try every law on every bug, once the reference has held it, and say which kill which."""
    from kvref.law import choose
    from kvref.matrix.plan import run as run_matrix
    from kvref.matrix.report import MatrixReport
    from kvref.search import Effort

    bugs, laws = choose_bugs(names), [law.name for law in choose(law or [])]
    if record and (gate or names or law or lens != "tile"):
        raise BadInput("--record takes the whole matrix under tile; leave out --gate, --law, --lens and names of bugs")
    usual = GATE if gate or record else WHOLE
    bench, effort = bench_for(device, lens), Effort(examples or usual, seed, shrink=shrink)
    require_writable([path for path in (json, stryker, record) if path])
    report = MatrixReport(console(), list(bugs), laws, gate=gate)
    report.header(versions(effort))
    with report.running():
        matrix = run_matrix(
            bugs,
            laws,
            effort,
            bench,
            gate=gate,
            workers=workers_for(bench, workers),
            max_seconds=max_seconds,
            tick=lambda _, cell: report.cell(cell),
        )
    report.sum(matrix)
    save(matrix, bugs, json, stryker, record)
    raise typer.Exit(exit_code(matrix))


@app.command(epilog=EXIT_CODES)
def reliability(
    names: Names = None,
    matrix: Saved = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds to try for each bug.")] = 20,
    examples: Examples = 60,
    seed: Annotated[int, typer.Option(min=0, help="The seeds behind this one are tried.")] = 0,
    workers: Workers = None,
    max_seconds: MaxSeconds = None,
    device: Device = "auto",
    lens: Lens = "tile",
) -> None:
    """Say with how many seeds each bug is killed, and how often it may be missed.

    The laws are those that kill the bug in a saved matrix, or else those on record, or else the first that does, found
    now. With each seed they are tried until one kills. The bound on the share of seeds that miss is Clopper and
    Pearson's, one-sided, at 95%.
    """
    from kvref.matrix.cells import read_matrix
    from kvref.matrix.record import record
    from kvref.matrix.reliability import reliability as measure
    from kvref.search import Effort

    saved = None if matrix is None else known(read_matrix(matrix), names or [])
    bugs = choose_bugs(names or (list(saved.bugs) if saved else []))
    effort = Effort(examples, seed, shrink=False)
    bench = bench_for(device, lens)
    workers = workers_for(bench, workers)
    killers = {bug: saved.killers(bug) if saved else record().killers(bug) for bug in bugs}
    if not saved and (unknown := {name: bug for name, bug in bugs.items() if not killers[name]}):
        found = gated(unknown, effort, bench, workers, max_seconds)
        if found.stopped:
            typer.echo("\n".join(unhealthy_told(found.unhealthy()) or ["stopped before the end"]))
            raise typer.Exit(4)
        killers |= {bug: found.killers(bug) for bug in unknown}
    alive = [bug for bug, laws in killers.items() if not laws]
    for bug in alive:
        typer.echo(f"{bug}: no law kills it")
    missed = failed = False
    tried = {name: bug for name, bug in bugs.items() if killers[name]}
    for row in measure(tried, killers, effort, bench, seeds, workers=workers, max_seconds=max_seconds):
        missed |= row.killed + row.failed < row.seeds
        failed |= row.failed > 0
        laws = row.laws[0] if len(row.laws) == 1 else f"{len(row.laws)} laws"
        typer.echo(
            f"{row.bug:44} killed with {row.killed} of {row.seeds} seeds, misses at most {row.most_missed:.1%}  {laws}"
            + (f"; {row.failed} failed: {row.reason}" if row.failed else "")
        )
    raise typer.Exit(1 if missed or alive else 4 if failed else 0)


@app.command()
def probe(
    names: Names = None,
    record: Annotated[Path | None, typer.Option(help="File for the dictionary, as kvref comes with it.")] = None,
    device: Device = "auto",
) -> None:
    """Play the probes on bugs, and say how they go wrong: what diagnosis compares a failing decoder with."""
    from kvref.diagnosis.dictionary import signatures_of, to_json
    from kvref.diagnosis.symptoms import RIGHT
    from kvref.operations import count

    if record and names:
        raise BadInput("--record takes the whole catalogue; leave out the names of bugs")
    bench, measured = bench_for(device, "tile"), dict[str, dict[str, dict[str, str]]]()
    require_writable([record] if record else [])
    for name, bug in choose_bugs(names).items():
        measured[name] = signatures_of(bug, bench)
        for kind, probes in measured[name].items():
            wrong = {probe: answer for probe, answer in probes.items() if answer != RIGHT}
            typer.echo(f"{name} ({kind} cache): {len(wrong)} of {count(len(probes), 'probe')} go wrong")
            for probe, answer in wrong.items() if names else ():
                typer.echo(f"  {probe:34} {answer}")
    if record:
        record.write_text(to_json(measured), encoding="utf-8")


def choose_bugs(names: "Iterable[str] | None") -> "Mapping[str, Bug]":
    """Bugs by name, each once, or the whole catalogue."""
    from kvref.bug import catalogue
    from kvref.targets.resolve import find_bug

    return {name: find_bug(name) for name in dict.fromkeys(names or [])} or catalogue()


def known(matrix: "Matrix", names: list[str]) -> "Matrix":
    """A saved matrix, if it is whole, lists these bugs, and is about bugs and laws that there are."""
    from kvref.bug import catalogue
    from kvref.law import laws

    if matrix.stopped:
        raise MatrixError("the matrix was stopped before its end; run `kvref bugs run --json` again")
    for what, listed, there in (("bug", matrix.bugs, catalogue()), ("law", matrix.laws, laws())):
        if strange := [name for name in listed if name not in there]:
            raise MatrixError(f"the matrix is of another kvref: there is no {what} {strange[0]!r}")
    for name in names:
        if name not in matrix.bugs and name in catalogue():
            raise MatrixError(f"the matrix has no bug {name!r}; run `kvref bugs run --json` again")
    return matrix


def gated(
    bugs: "Mapping[str, Bug]",
    effort: "Effort",
    bench: "Bench",
    workers: int | None = None,
    max_seconds: float | None = None,
) -> "Matrix":
    """The first law that kills each bug."""
    from kvref.law import laws
    from kvref.matrix.plan import run as run_matrix

    with console().status("looking for a law that kills"):
        return run_matrix(bugs, list(laws()), effort, bench, gate=True, workers=workers, max_seconds=max_seconds)


def killers_told(matrix: "Matrix", bug: str) -> list[str]:
    """What kills a bug, in words."""
    if told := unhealthy_told(matrix.unhealthy()):
        return told
    killed = [cell for cell in matrix.row(bug) if cell.mark == "killed"]
    if not killed:
        return ["no law kills it" if not matrix.stopped else "stopped before a law killed it"]
    lines = [f"killed by {cell.law}, at example {cell.killed_after}" for cell in killed]
    first = killed[0]
    return [*lines, *([str(first.schedule), f"diverges at {first.diverges}"] if first.schedule else [])]


def unhealthy_told(cells: "list[Cell]") -> list[str]:
    """What the reference did not hold, in words."""
    return [f"the reference does not hold {cell.law}: {cell.diverges or cell.reason}" for cell in cells]


def exit_code(matrix: "Matrix") -> int:
    """4 when the reference failed or it was stopped, 1 when a bug survives."""
    if matrix.stopped:
        return 4
    return 1 if matrix.survivors() else 0


def bench_for(device: str, lens: str) -> "Bench":
    """Where and under which lens to try; raises `NotExact` if the short self-test of the lens fails there."""
    import torch

    from kvref.device import resolve_device
    from kvref.exactness import MODES
    from kvref.exactness.selftest import require
    from kvref.lens import lens_called
    from kvref.targets import Bench

    torch.set_num_threads(1)
    found = resolve_device(device)
    lens_called(lens, torch.float32)  # raises for a lens that there is not
    if lens in MODES:
        require(lens, found)
    return Bench(found, lens)


def workers_for(bench: "Bench", asked: int | None) -> int | None:
    """Processes to run: as many as asked for, or else one for each core, but one for a GPU."""
    return asked if asked or bench.device.type == "cpu" else 1


def require_writable(paths: "list[Path]") -> None:
    """Raise `BadInput` now for a file that could not be written in the end, or that is to be two at once."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise BadInput("two reports cannot go to one file; give each a name of its own")
    for path in paths:
        try:
            there = path.exists()
            path.open("a").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def save(
    matrix: "Matrix", bugs: "Mapping[str, Bug]", json: Path | None, stryker: Path | None, record: Path | None
) -> None:
    """Write what was asked for; raise `BadInput` in the end for what could not be."""
    from importlib.metadata import version

    from kvref.matrix.record import Record
    from kvref.matrix.stryker import to_stryker

    reports = [(json, matrix.to_json), (stryker, lambda: to_stryker(matrix, bugs))]
    if not matrix.stopped:
        used = " and ".join(f"{name} {version(name).partition('+')[0]}" for name in ("torch", "hypothesis"))
        reports.append((record, lambda: Record.of(matrix, used).to_json()))
    failed = list[str]()
    for path, text in reports:
        try:
            if path is not None:
                path.write_text(text(), encoding="utf-8")
        except OSError as error:
            failed.append(f"{path} could not be written: {error.strerror}")
    if failed:
        raise BadInput("; ".join(failed))
    if record is not None and matrix.stopped:
        raise BadInput(f"{record} was not written, since the matrix is not whole")


def versions(effort: "Effort") -> str:
    """What runs, and how hard it tries."""
    import torch

    import kvref

    return f"kvref {kvref.__version__}, torch {torch.__version__}; {effort.examples} examples a law, seed {effort.seed}"


def console() -> "Console":
    """The terminal, or what it is piped into."""
    from rich.console import Console

    return Console(highlight=False)
