"""`kvref teach`: the course for a class. Nothing here imports torch before a command runs."""

from pathlib import Path
from typing import Annotated

import typer

from kvref.errors import BadInput
from kvref.learn.preload import warm_up

app = typer.Typer(rich_markup_mode=None, help="Prove the course's exercises, hand them out, and grade them.")

Seconds = Annotated[float, typer.Option(min=0.1, help="Seconds for one judgement.")]


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Prove the course's exercises, hand them out, and grade them."""
    if context.invoked_subcommand is None:
        raise BadInput("give a command, such as `kvref teach check`; see `kvref teach --help`")


@app.command(epilog="Exit codes: 0 all are sound, 1 one is spoiled, 2 bad input, 4 stopped before the end.")
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Exercises; else all.", show_default=False)] = None,
    seconds: Seconds = 10.0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Exercises at once; else one for each core.", show_default=False)
    ] = None,
) -> None:
    """Prove exercises sound: the start fails as it should, the solution passes, and nothing is given away."""
    warm_up()
    from kvref.learn.exercises import exercises
    from kvref.matrix.pool import cores
    from kvref.teach.check import check, chosen

    tried = chosen(names or [], exercises())
    raise typer.Exit(0 if check(tried, seconds, workers or cores(), typer.echo) else 1)


@app.command(epilog="Exit codes: 0 written, 2 bad input.")
def release(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is not there yet.")],
    exercises: Annotated[
        str | None, typer.Option(help="Names with commas between; else all.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same exercises for a name.")] = 0,
    students: Annotated[
        Path | None, typer.Option(help="Names, one a line: a folder for each of them.", show_default=False)
    ] = None,
    draw: Annotated[
        int | None,
        typer.Option(min=1, help="Exercises for each student, drawn by the seed; else all.", show_default=False),
    ] = None,
) -> None:
    """Write folders for students, without solutions, and beside DIR what only the teacher may see."""
    from kvref.learn.exercises import exercises as all_exercises
    from kvref.teach.check import chosen
    from kvref.teach.release import read_students, release

    names = [name.strip() for name in exercises.split(",")] if exercises else []
    people = read_students(students) if students else []
    released = release(folder, chosen(names, all_exercises()), seed, people, draw)
    for path, number in released.folders.items():
        typer.echo(f"{number} exercises in {path}")
    typer.echo(f"for you alone: {released.teacher}")


@app.command(epilog="Exit codes: 0 graded, 2 bad input, 4 stopped before the end; what was graded is written.")
def grade(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with one for each student.")],
    out: Annotated[Path, typer.Option(help="Folder for grades.csv, and a .json and a .txt for each student.")] = Path(
        "grades"
    ),
    seconds: Seconds = 60.0,
    release: Annotated[
        Path | None,
        typer.Option(
            help="The teacher's file of a release, which says who was asked for what; else DIR/release.json, "
            "else all exercises.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over grades that are there.")] = False,
) -> None:
    """Grade what students handed in, each file in a process of its own, with a time limit.

    A file runs with your rights: grade in a container what may be malicious.
    """
    warm_up()
    from kvref.learn.exercises import exercises
    from kvref.teach.grade import Sheet, about_sets, asked_by, grade, students_in, summary

    asked = asked_by(release, folder, exercises())
    students = students_in(folder, asked, out)  # raises before anything is written
    if release is None and (note := about_sets(folder, asked, students)):
        typer.echo(note)
    sheet = Sheet(out, force)
    whole = grade(folder, exercises(), asked, sheet, seconds, typer.echo)
    for line in summary(sheet.grades):
        typer.echo(line)
    typer.echo(f"grades: {out / 'grades.csv'}" + ("" if whole else "; stopped before the end"))
    raise typer.Exit(0 if whole else 4)
