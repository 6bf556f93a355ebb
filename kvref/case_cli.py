"""Commands about cases: play them again, keep one, explain one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvref.errors import BadInput

if TYPE_CHECKING:
    from kvref.law import Law

EXIT_CODES = "Exit codes: 0 all fixed, 1 one failed or moved, 2 bad input, 4 one could not be played."
Named = Annotated[list[str] | None, typer.Argument(help="Numbers of cases, or their first digits, or paths.")]


def replay(cases: Named = None) -> None:
    """Play cases again, or all that were found and kept: fixed, failed, moved elsewhere, or an error."""
    from kvref.case import FOUND, KEPT, find_case, read_case
    from kvref.isolation import replay_apart
    from kvref.replay import Result

    every = {path.stem: path for folder in (FOUND, KEPT) for path in sorted(folder.glob("*.json"))}
    paths = [find_case(name) for name in cases] if cases else list(every.values())
    if not paths:
        raise BadInput(f"there is no case in {FOUND} or {KEPT}; `kvref check TARGET` puts what it finds there")
    read = [(path, read_case(path)) for path in paths]
    results: list[Result] = []
    for path, case in read:
        again = replay_apart(case)
        results.append(again.result)
        typer.echo(f"{again.result:7} {path.stem}  {case.law}, {case.decoder}")
        typer.echo(f"        {again.told}")
        if again.result is Result.MOVED:
            typer.echo(f"        it was: {case.diverges}")
    if Result.FAILED in results or Result.MOVED in results:
        raise typer.Exit(1)
    raise typer.Exit(4 if Result.ERROR in results else 0)


def keep(
    case: Annotated[str, typer.Argument(help="Number of a case, or its first digits, or a path.")],
    folder: Annotated[
        Path | None, typer.Argument(help="Where to keep it; else kvref-cases, where `kvref replay` looks by itself.")
    ] = None,
) -> None:
    """Put a case where it is kept, below its number, for a repository and its CI."""
    from shlex import quote

    from kvref.case import KEPT, find_case, read_case, save_case

    kept = save_case(read_case(find_case(case)), folder or KEPT)
    typer.echo(f"{kept}: `kvref replay {quote(str(kept))}` plays it again")


def explain(
    name: Annotated[str, typer.Argument(help="A law, a bug, or a case by its number or path.")],
) -> None:
    """Say what a law asks, what is wrong with a bug, or what a case shows."""
    from shlex import quote

    from kvref.bug import catalogue
    from kvref.case import cases_called, find_case, read_case
    from kvref.law import laws

    if law := laws().get(name):
        typer.echo(explained(law))
    elif bug := catalogue().get(name):
        typer.echo(bug.page())
    else:
        if not cases_called(name) and not name.endswith(".json"):
            raise BadInput(unknown(name, [*laws(), *catalogue()]))
        path = find_case(name)
        case = read_case(path)
        typer.echo(f"{case}\n  replay    kvref replay {quote(str(path))}\n")
        if law := laws().get(case.law):
            typer.echo(explained(law))


def script(
    case: Annotated[str, typer.Argument(help="Number of a case, or its first digits, or a path.")],
) -> None:
    """Print a case as a script that needs no kvref, for whoever keeps the decoder."""
    from kvref.case import find_case, read_case
    from kvref.script import script as script_of

    typer.echo(script_of(read_case(find_case(case))), nl=False)


def explained(law: "Law") -> str:
    """A law in words, with the cases that it is about and what it needs."""
    from inspect import cleandoc

    needs = ", ".join(sorted(law.needs)) or "nothing but a decoder"
    some = f", and one of {', '.join(sorted(law.needs_one_of))}" if law.needs_one_of else ""
    cases = "".join(f"  {case}\n" for case in sorted(law.must_see))
    return f"{law.name}\n\n{cleandoc(law.check.__doc__ or '')}\n\nneeds {needs}{some}; is about\n{cases}".rstrip()


def unknown(name: str, known: list[str]) -> str:
    """What to say of a name that is none."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"there is no law, bug or case {name!r}" + (f"; did you mean {near[0]}?" if near else "")
