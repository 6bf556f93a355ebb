"""The command line. Nothing here imports torch before a command runs, so that help is quick."""

import errno
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvref import case_cli, init_cli
from kvref.errors import BadInput, CaseError, NotExact
from kvref.forks import TRANSFORMERS, warm
from kvref.learn.cli import app as learn
from kvref.matrix.cli import app as bugs
from kvref.measure.cli import app as measure
from kvref.options import Attention, Cache, Device, Laws, Lens, Timeout
from kvref.sweep import cli as sweep_cli
from kvref.teach.cli import app as teach

if TYPE_CHECKING:
    from kvref.asked import Asked
    from kvref.checked import Checked
    from kvref.expected import Expected
    from kvref.finding import Finding
    from kvref.law import Law
    from kvref.search import Effort
    from kvref.targets import Bench
    from kvref.trial import Trial

EXIT_CODES = "Exit codes: 0 all hold, 1 finding, 2 bad input, 3 kvref broke, 4 inconclusive."
WEIGHTS_SECONDS = 300.0
"""Time limit for a checkpoint, where none is asked for: its passes may be a thousand times those of a tiny shape."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.add_typer(bugs, name="bugs")
app.add_typer(measure, name="measure")
app.add_typer(learn, name="learn")
app.add_typer(teach, name="teach")
app.command(epilog=case_cli.EXIT_CODES)(case_cli.replay)
app.command(epilog="Exit codes: 0 kept, 2 bad input.")(case_cli.keep)
app.command(epilog="Exit codes: 0 explained, 2 bad input.")(case_cli.explain)
app.command(epilog="Exit codes: 0 written, 2 bad input.")(case_cli.script)
app.command(epilog=sweep_cli.EXIT_CODES)(sweep_cli.sweep)
app.command(epilog="Exit codes: 0 written, 2 bad input.")(init_cli.init)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Test KV caches: a decoder has to give the same logits with its cache as without."""
    if context.invoked_subcommand is None and not version:
        raise BadInput("give a command, such as `kvref check`; see `kvref --help`")
    if version:
        from kvref import __version__

        typer.echo(f"kvref {__version__}")
        raise typer.Exit


@app.command(epilog=EXIT_CODES)
def check(
    target: Annotated[
        str | None,
        typer.Argument(
            help="reference[:growing|:static], bug:NAME, hf-config:TYPE (a model of transformers, tiny and random), "
            "hf:CHECKPOINT (a directory or hub name), litgpt:CONFIG, mlx-lm:TYPE, keras-hub:NAME, "
            "onnxruntime-genai:TYPE, transformer-lens:TYPE or x-transformers:OPTIONS (other packages, tiny), "
            "package.module:factory or path/file.py:factory. "
            "Without it, the reference is checked and every bug has to be caught.",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="GPT-2 checkpoint to check in the reference: a directory or a hub name; safetensors only."),
    ] = None,
    text: Annotated[Path | None, typer.Option(help="UTF-8 file to draw prompts from.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt that every row begins with.")] = None,
    cache: Cache = None,
    attn: Attention = None,
    law: Laws = None,
    device: Device = "auto",
    lens: Lens = "tile",
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            help="float32, bfloat16, float16 or float64; for the reference it may be given again. "
            "Else float32 and bfloat16 for the reference, and your own decoder as it is.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="quick: few schedules for each law; ci: 60, the same ones each time, and the usual one; "
            "deep: 1000, others each time."
        ),
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(min=1, help="Schedules to try for each law, else by profile; too few miss its cases."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The same seed draws the same schedules; 0, but for --profile deep.")
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds for all laws together, shared by need; 300 for a checkpoint, else no limit."),
    ] = None,
    isolate: Annotated[
        bool,
        typer.Option(
            "--isolate/--no-isolate",
            help="Try what is not kvref's own in a process apart, which may hang or die; not so for a debugger.",
        ),
    ] = True,
    timeout: Timeout = None,
    baseline: Annotated[
        Path | None, typer.Option(help="report.json of an earlier check: what it found is known, and does not fail.")
    ] = None,
) -> None:
    """Try every law on a target, and show what breaks one."""
    from kvref.asked import Asked

    asked = Asked(target, weights, text, prompt, cache, attn, device, lens, tuple(dtype or ()))
    apart = isolate and asked.foreign
    if apart:
        warm(TRANSFORMERS if asked.of_transformers else ())
    from kvref.expected import expected_by_project, expected_by_report
    from kvref.law import choose
    from kvref.profile import effort_for

    laws, effort = choose(law or []), effort_for(profile, examples, seed)
    expected = expected_by_project() + (expected_by_report(baseline) if baseline else [])
    bench = asked.bench()
    limit = WEIGHTS_SECONDS if max_time is None and asked.large else max_time
    for name, seconds in (("--max-time", limit), ("--timeout", timeout)):
        if seconds is not None and not seconds > 0:
            raise BadInput(f"{name} takes seconds, not {seconds}")
    whole = target is None and weights is None and cache is None and not law
    with tried(asked, laws, effort, limit, bench, timeout, apart=apart) as trial:
        checked = run(trial, laws, effort, limit, bench, whole=whole, expected=expected)
    tell(checked)
    raise typer.Exit(checked.exit_code)


@app.command(epilog="Exit codes: 0 fine, 1 the exact lens cannot claim here what it rests on, 2 bad input.")
def env(
    check: Annotated[bool, typer.Option("--check", help="Prove on this machine what the exact lens rests on.")] = False,
    device: Device = "auto",
) -> None:
    """Print versions, device and settings, ready to paste; with --check, run the self-test of the exact lens."""
    from kvref.device import resolve_device
    from kvref.environment import report

    raise typer.Exit(report(resolve_device(device), check, typer.echo))


@contextmanager
def tried(
    asked: "Asked",
    laws: "list[Law]",
    effort: "Effort",
    max_time: float | None,
    bench: "Bench",
    timeout: float | None,
    *,
    apart: bool,
) -> "Generator[Trial]":
    """What is asked for, ready to be checked: here, or in a process apart, which is ended in the end."""
    import torch

    from kvref.isolation import Isolated, patience_for
    from kvref.trial import Here

    if not apart:
        trial = Here(asked.targets(bench), laws, effort, max_time)
        asked.require_lens(bench)
        yield trial
        return
    asked.require_lens(bench)
    isolated = Isolated(asked, laws, effort, max_time, patience_for(asked, timeout))
    try:
        isolated.open()
        torch.set_num_threads(isolated.threads)  # as it is there, which the report says
        yield isolated
    finally:
        isolated.close()


def run(
    trial: "Trial",
    laws: "list[Law]",
    effort: "Effort",
    max_time: float | None,
    bench: "Bench",
    *,
    whole: bool,
    expected: "list[Expected]",
) -> "Checked":
    """Check, and print what comes. With `whole` every bug is tried too, once the reference has held."""
    from time import perf_counter

    from rich.console import Console

    from kvref.bug import catalogue
    from kvref.capability import Capability
    from kvref.checked import Checked
    from kvref.checking import exit_code
    from kvref.expected import reason_for
    from kvref.matrix.gate import Kill, kills
    from kvref.matrix.record import record
    from kvref.matrix.strength import recorded_strength, strength_of
    from kvref.report import Report
    from kvref.search import Outcome

    bugs = catalogue()
    report, begun = Report(Console(highlight=False), trial.targets), perf_counter()
    outcomes, killed = list[Outcome](), list[Kill]()
    report.header(bench, effort, max_time)
    stopped = False
    try:
        with report.running():
            for outcome in trial.outcomes(report.progress):
                outcomes.append(outcome)
                report.outcome(outcome, reason_for(outcome, expected))
                if outcome.finding:
                    report.line(f"    case      {kept(outcome.finding)}\n")
            if whole and exit_code([outcome for outcome in outcomes if not reason_for(outcome, expected)]) == 0:
                report.kills()
                names = [law.name for law in laws]
                workers = None if bench.device.type == "cpu" else 1
                # The first schedule that shows a bug will do; to shrink each would take longer than to find all.
                for kill in kills(bugs, names, replace(effort, shrink=False), bench, workers, report.tried):
                    killed.append(kill)
                    report.kill(kill)
    except KeyboardInterrupt:
        stopped = True
    seconds, strength = perf_counter() - begun, None
    report.sum(outcomes, killed, seconds)
    # The kills were measured on caches that an uncached pass can be asked of.
    if outcomes and all(Capability.LOSSLESS in target.capabilities() for target in trial.targets):
        every = len(killed) == len(bugs)
        strength = strength_of(killed, len(laws)) if every else recorded_strength(outcomes, record(), bugs)
    diagnoses = [] if stopped else trial.diagnoses(outcomes)
    for said in diagnoses:
        report.diagnosis(said)
    return Checked(trial.targets, bench, effort, outcomes, killed, strength, seconds, stopped, expected, diagnoses)


def tell(checked: "Checked") -> None:
    """Write the reports, and say what is said last. On GitHub, speak its language too."""
    from kvref.checked import FOLDER

    for known in checked.unmet:
        typer.echo(f"no longer there, though expected: {known}")
    try:
        typer.echo(f"report: {checked.write(FOLDER)[-1]}")
    except BadInput as error:
        typer.echo(str(error))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in checked.annotations():
            typer.echo(line)
        try:
            if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
                with Path(summary).open("a", encoding="utf-8") as file:
                    file.write(checked.to_markdown())
        except OSError as error:
            typer.echo(f"no summary of the job ({error.strerror or error})")
    if checked.strength:
        typer.echo(str(checked.strength))
    if checked.stopped:
        typer.echo("stopped before the end; what is above was done")


def kept(finding: "Finding") -> str:
    """Save a finding as a case, and say where it is, or why it is nowhere."""
    from kvref.case import FOUND, Case, save_case

    try:
        path = save_case(Case.of(finding), FOUND)
    except CaseError as error:
        return f"not saved: {error}"
    return f"{path}; `kvref replay {path.stem}` plays it again"


INTERRUPTED = 130
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What newer versions of typer give for Ctrl-C, where older ones raise."""


COMMANDS = ("bugs", "check", "env", "explain", "init", "keep", "learn", "measure", "replay", "script", "sweep", "teach")


def main() -> None:
    """Run the command line, and turn every way it can end into its exit code."""
    # Hypothesis keeps files of its own, which belong where everything is that a check writes.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", ".kvref/hypothesis")
    try:
        code = app(standalone_mode=False) or 0
        if code == INTERRUPTED:
            raise KeyboardInterrupt
    except BadInput as error:
        print(f"kvref: {error}", file=sys.stderr)
        code = 2
    except NotExact as error:
        print(f"kvref: {error}; give another --lens, and see `kvref env --check`", file=sys.stderr)
        code = 4
    except (typer.Abort, KeyboardInterrupt):
        print("kvref: stopped", file=sys.stderr)
        code = 4
    except SystemExit as error:
        # A closed pipe; it is made an exit with 1 on its way here.
        code = 4 if isinstance(error.__context__, BrokenPipeError) else error.code
    except OSError as error:
        if error.errno not in FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or what is still to be printed raises once more
        print(f"kvref: nothing more can be written ({error.strerror})", file=sys.stderr)
        code = 4
    except Exception as error:
        # A wrong option; which module this class lives in depends on the version of typer.
        if format_message := getattr(error, "format_message", None):
            command = " ".join(word for word in sys.argv[1:2] if word in COMMANDS)
            lines = format_message().rstrip(".").splitlines() or ["give a command"]
            print(f"kvref: {lines[0]}; see `{' '.join(['kvref', command]).strip()} --help`", file=sys.stderr)
            sys.exit(2)
        traceback.print_exc()
        print(f"kvref: kvref broke ({type(error).__name__}); please report the lines above", file=sys.stderr)
        code = 3
    sys.exit(code)
