"""The laws under pytest: which targets they run on, and how hard they try.

This module imports torch only once a law is collected.
"""

from secrets import randbelow
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvref.search import Effort, Outcome
    from kvref.targets import Bench, Target


DEFAULT = "reference"
TARGETS = pytest.StashKey[dict[str, Any]]()
DRAWN = pytest.StashKey[int]()
SHARED = "kvref_drawn"
"""Where the processes of one session are told the seed that was drawn for it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options with the names that the command line has."""
    group = parser.getgroup("kvref", "laws of KV caches")
    group.addoption("--kvref-target", default=DEFAULT, help="what `kvref check` takes as target")
    group.addoption("--kvref-device", default="auto", help="auto, cpu, cuda or cuda:N")
    group.addoption("--kvref-lens", default="tile", help="tile, grid, fold or float64")
    group.addoption("--kvref-dtype", action="append", default=[], help="a dtype to test in; may be given again")
    group.addoption("--kvref-cache", help="kinds of cache, with commas, as `kvref check --cache` takes them")
    group.addoption("--kvref-attn", help="eager and sdpa, with commas, for models of transformers")
    group.addoption("--kvref-profile", help="quick, ci or deep; else what [tool.kvref] says, else ci")
    group.addoption("--kvref-examples", type=int, help="schedules to try for each law; else by profile")
    group.addoption("--kvref-seed", type=int, help="the same seed draws the same schedules; else by profile")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is tested, and how, where a target was asked for; a session without laws says nothing."""
    if option(config, "target") == DEFAULT:
        return []
    lines = [f"kvref: lens {option(config, 'lens')}; {effort_of(config)}"]
    for target in targets_of(config):
        lines.append(f"kvref: {target.name} offers {', '.join(sorted(target.capabilities()))}")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each law on every target that is meant."""
    if type(getattr(metafunc.function, "law", None)).__module__ == "kvref.law":
        targets = targets_of(metafunc.config)
        effort_of(metafunc.config)  # raises now for a profile that there is not
        metafunc.parametrize("target", targets, ids=[target.name for target in targets], scope="session")


def targets_of(config: pytest.Config) -> "list[Target]":
    """Targets of this session, resolved once."""
    from kvref.errors import BadInput, NotExact
    from kvref.targets.resolve import resolve

    stash: dict[str, Any] = config.stash.setdefault(TARGETS, {})
    name = option(config, "target")
    if name not in stash:
        try:
            stash[name] = resolve(name, bench_of(config), option(config, "cache"), option(config, "attn"))
        except (BadInput, NotExact) as error:
            raise pytest.UsageError(str(error)) from None
    return stash[name]


def bench_of(config: pytest.Config) -> "Bench":
    """Where laws are tried in this session."""
    from kvref.asked import Asked

    device, lens, dtypes = (option(config, name) for name in ("device", "lens", "dtype"))
    asked = Asked(device=device, lens=lens, dtype=tuple(dtypes))
    bench = asked.bench()
    asked.require_lens(bench)
    return bench


def option(config: pytest.Config, name: str) -> Any:
    """One of the options above."""
    return config.getoption(f"--kvref-{name}")


def drawn(config: pytest.Config) -> int:
    """A seed that is drawn once for a session, in whichever process it is asked for."""
    shared: dict[str, Any] = getattr(config, "workerinput", {})
    return shared[SHARED] if SHARED in shared else config.stash.setdefault(DRAWN, randbelow(2**31))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist which seed was drawn."""
    node.workerinput[SHARED] = drawn(node.config)


def effort_of(config: pytest.Config) -> "Effort":
    """How hard this session tries."""
    from kvref.errors import BadInput
    from kvref.profile import effort_for

    profile, examples, seed = (option(config, name) for name in ("profile", "examples", "seed"))
    try:
        return effort_for(profile, examples, seed, drawn=drawn(config))
    except BadInput as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def kvref_effort(request: pytest.FixtureRequest) -> "Effort":
    """How hard laws are tried in this session. Override it in a conftest of your own."""
    return effort_of(request.config)


def require_held(outcome: "Outcome") -> None:
    """Fail or skip the running test unless a law held."""
    from kvref.search import FAULTS, Status

    __tracebackhide__ = True
    match outcome.status:
        case Status.HELD:
            return
        case Status.SKIPPED:
            pytest.skip(outcome.reason)
        case status if outcome.finding and status in FAULTS | {Status.UNDECIDED}:
            pytest.fail(str(outcome.finding), pytrace=False)
        case _:
            pytest.fail(f"{outcome.law.name}: {outcome.status}: {outcome.reason}", pytrace=False)
