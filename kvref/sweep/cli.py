"""`kvref sweep`: every target of a family, in one table. Nothing here imports torch before the command runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvref.errors import BadInput, CaseError
from kvref.forks import warm
from kvref.options import Attention, Cache, Device, Laws, Lens, Seed, Timeout

if TYPE_CHECKING:
    from kvref.finding import Finding
    from kvref.sweep.journal import Journal
    from kvref.sweep.row import Row
    from kvref.sweep.run import Options

EXIT_CODES = "Exit codes: 0 all hold, 1 finding, 2 bad input, 3 kvref broke, 4 inconclusive, or not all was swept."
JOURNAL = Path(".kvref/sweep.jsonl")


def sweep(
    families: Annotated[
        list[str] | None,
        typer.Argument(help="Families of targets, such as transformers; else all.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only targets that this pattern fits, such as 'qwen*'; may be given again.")
    ] = None,
    cache: Cache = None,
    attn: Attention = None,
    law: Laws = None,
    examples: Annotated[
        int, typer.Option(min=1, help="Schedules to try for each law; five times as many where they miss its cases.")
    ] = 12,
    seed: Seed = 0,
    lens: Lens = "tile",
    device: Device = "auto",
    target_time: Annotated[float, typer.Option(min=1, help="Seconds for each target.")] = 300.0,
    timeout: Timeout = None,
    max_time: Annotated[
        float | None, typer.Option(min=1, help="Seconds for the whole; what is left then is swept when it runs again.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Targets at once.")] = 1,
    out: Annotated[
        Path, typer.Option(help="Journal, a line of JSON for each target; beside it, the whole as one .json.")
    ] = JOURNAL,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin the journal again, where it would go on.")] = False,
) -> None:
    """Check every target of a family, each in a process of its own, and put what comes of them into one table.

    Run again, it goes on where it stopped.
    """
    from kvref.sweep.families import FAMILIES, chosen

    warm([module for name in families or FAMILIES if name in FAMILIES for module in FAMILIES[name].imports])
    from kvref.expected import expected_by_project
    from kvref.law import choose
    from kvref.search import Effort
    from kvref.sweep.journal import Journal
    from kvref.sweep.run import Options

    if out.suffix == ".json":
        raise BadInput(f"{out} is where the whole goes, as one .json; give the journal another name, such as {JOURNAL}")
    options = Options(
        choose(law or []),
        Effort(examples, seed),
        target_time,
        timeout,
        cache,
        attn,
        lens,
        device,
        expected_by_project(),
    )
    asked = options.asked("reference")
    bench = asked.bench()  # raises now for a lens or device that there is not
    targets = chosen(families or [], only or [])
    asked.require_lens(bench)
    journal = Journal(out, heading(options), fresh=fresh)
    raise typer.Exit(swept(targets, options, journal, workers, max_time))


def heading(options: "Options") -> dict[str, Any]:
    """What rows of one table have in common: how they were made, and with which versions."""
    from importlib.metadata import PackageNotFoundError, version

    versions = dict[str, str]()
    for package in ("kvref", "torch", "transformers", "hypothesis"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    names = ("cache", "attn", "lens", "device", "timeout", "seconds")
    return {
        "versions": versions,
        "options": {
            "examples": options.effort.examples,
            "seed": options.effort.seed,
            "laws": [law.name for law in options.laws],
            **{name: getattr(options, name) for name in names},
        },
    }


def swept(targets: Sequence[str], options: "Options", journal: "Journal", workers: int, max_time: float | None) -> int:
    """Sweep what is not in the journal yet, print each row as it comes and the table in the end; give the exit code."""
    from rich.console import Console

    from kvref.sweep.row import exit_code
    from kvref.sweep.run import sweep as sweep_all
    from kvref.sweep.table import Screen

    screen = Screen(Console(highlight=False), len(targets))
    left = [target for target in targets if target not in journal.done]
    screen.header(journal.head, len(targets) - len(left), max_time)
    stopped = False
    try:
        with screen.running():
            for done in sweep_all(left, options, workers, max_time, screen.progress):
                if done.cut:
                    continue  # it was in the midst when time was up, and is swept anew next time
                cases = {finding: kept(finding) for finding in done.findings}
                journal.add(done.target, done.rows)
                screen.rows(done.rows, list(cases.values()))
    except KeyboardInterrupt:
        stopped = True
    rows: list[Row] = [row for target in targets for row in journal.done.get(target, [])]
    missing = sum(target not in journal.done for target in targets)
    code = exit_code(rows, whole=not missing)
    whole = journal.path.with_suffix(".json")
    journal.report(whole, targets, code)
    screen.table(rows, missing, whole, stopped=stopped)
    return code


def kept(finding: "Finding") -> str:
    """Save a finding as a case, and give its number, or why it is nowhere."""
    from kvref.case import FOUND, Case, save_case

    try:
        return save_case(Case.of(finding), FOUND).stem
    except CaseError as error:
        return f"not saved: {error}"
