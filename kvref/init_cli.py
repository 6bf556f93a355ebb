"""The command that writes a job for CI."""

import json
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from string import Template
from typing import Annotated, Any, cast

import typer

from kvref.errors import BadInput

WORKFLOW = Path(".github/workflows/kvref.yml")
TORCH = "https://download.pytorch.org/whl/cpu"
"""Where torch comes without CUDA, which is a tenth of the size."""

JOB = Template("""\
# Written by `kvref init`. A decoder has to give the logits with its cache that it gives without.
name: kvref
on:
  push:
    branches: [main, master]
  pull_request:
permissions:
  contents: read
jobs:
  kvref:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
        with:
          persist-credentials: false
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: |
$install
      - name: Check
        run: |
          kvref check $target --profile ci
      - name: Replay the cases that were kept
        if: $${{ !cancelled() }}
        run: |
          if ls kvref-cases/*.json >/dev/null 2>&1; then kvref replay kvref-cases/*.json; fi
      - name: Keep the reports and cases
        if: $${{ !cancelled() }}
        uses: actions/upload-artifact@v4
        with:
          name: kvref
          path: |
            .kvref/
            !.kvref/hypothesis/
          include-hidden-files: true
          if-no-files-found: ignore
""")


class CI(StrEnum):
    """Services that a job can be written for."""

    GITHUB = "github"


def init(
    target: Annotated[
        str | None,
        typer.Argument(
            help="What the job checks, as `kvref check` takes it; else the one of [tool.kvref.targets].",
            show_default=False,
        ),
    ] = None,
    ci: Annotated[CI, typer.Option(help="The service that the job is for.")] = CI.GITHUB,
    package: Annotated[
        str | None,
        typer.Option(
            help="What pip installs there as kvref, such as a version or a URL; else where this kvref came from.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a job that is there.")] = False,
) -> None:
    """Write a job for CI that checks a target, replays the cases that were kept, and keeps the reports."""
    del ci  # there is one so far, and a name that is none is refused before
    named, wanted = line("the target", target or only_target()), line("--package", package or own_package())
    require_root()
    text = JOB.substitute(target=quote(named), install=installs(wanted))
    try:
        WORKFLOW.parent.mkdir(parents=True, exist_ok=True)
        with WORKFLOW.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{WORKFLOW} is there already; give --force to write over it") from None
    except OSError as error:
        raise BadInput(f"{WORKFLOW} cannot be written ({error.strerror or error})") from error
    typer.echo(f"{WORKFLOW}: checks {named}, with {wanted}")


def require_root() -> None:
    """Raise `BadInput` in a folder of a repository where no service looks for a job."""
    here = Path.cwd()
    if not (here / ".git").exists() and any((folder / ".git").exists() for folder in here.parents):
        raise BadInput("jobs are looked for at the root of the repository alone; run `kvref init` there")


def line(what: str, text: str) -> str:
    """A text that a line of the job can hold. Raises `BadInput` for another."""
    if not text.isprintable() or "${{" in text:
        raise BadInput(f"{what} is {text!a:.60}; it must be a text of one line, without ${{{{")
    return text


def only_target() -> str:
    """The one target that the project names. Raises `BadInput` where there is none, or more."""
    from kvref.project import setting

    targets: Any = setting("targets")
    names = list(cast("dict[str, Any]", targets)) if isinstance(targets, dict) else []
    if len(names) != 1:
        say = f"one of {', '.join(names)}" if names else "such as my_model.py:make"
        raise BadInput(f"say what the job is to check: `kvref init TARGET`, {say}")
    return names[0]


def own_package() -> str:
    """What pip installs to get this kvref: the commit of the repository that it came from, else its version."""
    import kvref

    try:
        origin: Any = json.loads(distribution("kvref").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    vcs = origin.get("vcs_info")
    if vcs and origin["url"].startswith("https://"):
        return f"kvref @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
    return f"kvref=={kvref.__version__}"


def installs(package: str) -> str:
    """Commands that install torch, kvref, and what the project itself needs."""
    from kvref.project import project

    commands = [f"pip install torch --index-url {TORCH}", f"pip install {quote(package)}"]
    if Path("requirements.txt").is_file():
        commands.append("pip install -r requirements.txt")
    if Path("pyproject.toml").is_file() and "project" in project():
        commands.append("pip install .")
    return "\n".join(f"          {command}" for command in commands)
