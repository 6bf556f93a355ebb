"""`kvref learn`: the course at a terminal. Nothing here imports torch before a command runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvref.errors import BadInput

if TYPE_CHECKING:
    from kvref.learn.exercises import Exercise
    from kvref.learn.folder import Folder

app = typer.Typer(rich_markup_mode=None, help="Learn how caches go wrong: repair, write, explain.")

EXIT_CODES = "Exit codes: 0 solved, 1 not yet, 2 bad input."

SECONDS = 20.0
"""Time for one judgement, after which a file counts as hanging."""

Name = Annotated[str, typer.Argument(help="The exercise, such as positions-1, or its file.")]
Where = Annotated[Path, typer.Option("--dir", help="The folder of the course; else the current one.")]
HERE = Path()


@app.callback(invoke_without_command=True)
def root(context: typer.Context, directory: Where = HERE) -> None:
    """Watch the files of the course, and judge each as it is saved."""
    if context.invoked_subcommand is not None:
        if directory != HERE:
            raise BadInput(
                f"give --dir behind the command: `kvref learn {context.invoked_subcommand} --dir {directory}`"
            )
        return
    from kvref.learn.folder import Folder
    from kvref.learn.watch import watch

    # A stream that was closed is None, whatever its type says.
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise BadInput("there is no terminal to watch at; give `kvref learn test NAME`, and see `kvref learn --help`")
    watch(Folder(directory), SECONDS, typer.echo)


@app.command(epilog="Exit codes: 0 written, 2 bad input.")
def init(directory: Annotated[Path, typer.Argument(help="A folder that is not there yet.")]) -> None:
    """Write the course into a folder."""
    from kvref.learn.folder import make

    number = make(directory)
    typer.echo(f"{number} exercises in {directory}; begin with `cd {directory}` and `kvref learn`")


@app.command("list", epilog="Exit codes: 0 listed, 2 bad input.")
def all_of_them(directory: Where = HERE) -> None:
    """List the exercises, and what was done."""
    from kvref.learn.folder import Folder
    from kvref.learn.session import listed

    for line in listed(Folder(directory)):
        typer.echo(line)


@app.command("test", epilog=EXIT_CODES)
def judge_one(name: Name, directory: Where = HERE) -> None:
    """Judge one exercise."""
    from kvref.learn.session import judged

    folder, exercise = found(name, directory)
    raise typer.Exit(0 if judged(folder, exercise, SECONDS, typer.echo) else 1)


@app.command(epilog="Exit codes: 0 given, 1 there is none, for it is solved, 2 bad input.")
def hint(name: Name, directory: Where = HERE) -> None:
    """Give the next hint, chosen from how the exercise fails now."""
    from kvref.learn.session import hinted

    folder, exercise = found(name, directory)
    raise typer.Exit(0 if hinted(folder, exercise, SECONDS, typer.echo) else 1)


@app.command(epilog="Exit codes: 0 given back, 2 bad input.")
def reset(name: Name, directory: Where = HERE) -> None:
    """Give an exercise back as it was; what was written is kept beside it."""
    from kvref.learn.session import given_back

    folder, exercise = found(name, directory)
    typer.echo(given_back(exercise.name, folder.reset(exercise)))


@app.command(epilog="Exit codes: 0 skipped, 2 bad input.")
def skip(name: Name, directory: Where = HERE) -> None:
    """Leave an exercise for later."""
    folder, exercise = found(name, directory)
    folder.skip(exercise)
    following = folder.current()
    typer.echo(f"{exercise.name} is left for later" + (f"; next is {following.name}" if following else ""))


@app.command(epilog="Exit codes: 0 shown, 1 not solved yet, 2 bad input.")
def solution(name: Name, directory: Where = HERE) -> None:
    """Show our solution, once yours holds."""
    folder, exercise = found(name, directory)
    if exercise.name not in folder.progress.solved:
        typer.echo(f"{exercise.name} is not solved yet; `kvref learn hint {exercise.name}` helps")
        raise typer.Exit(1)
    typer.echo(exercise.solution())


@app.command("attack", epilog="Exit codes: 0 caught, 1 it survives and is alive, 2 bad input, 4 nothing differs.")
def attack_laws(
    target: Annotated[str, typer.Argument(help="A class derived from the reference's: path/file.py:Class.")],
    examples: Annotated[int, typer.Option(min=1, help="Schedules for each law.")] = 60,
) -> None:
    """Try a bug of your own on all laws: one that survives, and is alive, is a gap in kvref."""
    from kvref.learn.attack import attack

    raise typer.Exit(attack(target, examples, typer.echo))


@app.command(epilog="Exit codes: 0 written, 2 bad input.")
def notebook(file: Annotated[Path, typer.Argument(help="The notebook to write, an .ipynb.")]) -> None:
    """Write a notebook: build a cache, break it, measure it."""
    from kvref.learn.notebook import write

    if file.exists():
        raise BadInput(f"{file} is there already; give another name")
    try:
        write(file)
    except OSError as error:
        raise BadInput(f"{file} cannot be written ({error.strerror or error})") from None
    typer.echo(f"{file} is written; open it in Jupyter")


def found(name: str, directory: Path) -> "tuple[Folder, Exercise]":
    """The folder, and the exercise of a name; raises `BadInput` where there is none."""
    from kvref.learn.course import no_such
    from kvref.learn.exercises import exercises
    from kvref.learn.folder import Folder

    name = Path(name).stem.replace("_", "-")  # the path of its file will do
    if name not in exercises():
        raise no_such(name, list(exercises()))
    folder = Folder(directory)
    if name not in folder.exercises:
        raise BadInput(f"{name} is not among the exercises of this folder; see `kvref learn list`")
    return folder, folder.exercises[name]
