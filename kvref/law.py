"""A law: a property over schedules, with what it needs and the cases it must not miss.

`@law` turns a function of a decoder and a schedule into a test. What Hypothesis draws for it is `given`; what the
decoder has to offer is `needs`; and `must_see` names the cases that the law exists for. The function reports each case
with `saw`, behind the check, so that a law which never met its case is an error and not a pass. A law that cannot hold
where another is broken `builds_on` that one, by name, and a check does not try it then.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.errors import BadInput
from kvref.schedule import Schedule
from kvref.strategies import Draw

if TYPE_CHECKING:
    from kvref.search import Effort
    from kvref.targets import Target

Check = Callable[[Decoder, Schedule], None]

EQUALITY = "cached-logits-equal-uncached-logits"
"""The law that most others build on."""


@dataclass(frozen=True)
class Law:
    """A property over schedules, with what it needs and what it is tried on."""

    check: Check
    draw: Draw
    needs: frozenset[Capability]
    needs_one_of: frozenset[Capability]
    must_see: frozenset[str]
    builds_on: frozenset[str] = frozenset()
    generation: bool = False
    """Whether it takes no more than prompts, and what is generated from them."""

    def __reduce__(self) -> tuple[Callable[[str], "Law"], tuple[str]]:
        """A law goes to another process by its name, for what it draws from cannot."""
        return law_called, (self.name,)

    @property
    def name(self) -> str:
        """The law as a kebab-case name: the sentence that its function's name is."""
        return self.check.__name__.removeprefix("test_").replace("_", "-")

    @property
    def sentence(self) -> str:
        """The law in words: the first paragraph of its docstring."""
        return " ".join((self.check.__doc__ or "").strip().split("\n\n")[0].split())

    def lacks(self, offered: frozenset[Capability], refused: Mapping[Capability, str] = MappingProxyType({})) -> str:
        """What a decoder lacks for this law, in words, and why if it says so; nothing if it can be tried."""
        if Capability.GENERATES_ONLY in offered and not self.generation:
            return "the target only generates"
        if missing := sorted(self.needs - offered):
            reasons = "; ".join(dict.fromkeys(refused[name] for name in missing if name in refused))
            return f"the target offers no {', no '.join(missing)}" + (f" ({reasons})" if reasons else "")
        if self.needs_one_of and not self.needs_one_of & offered:
            return f"the target offers none of {', '.join(sorted(self.needs_one_of))}"
        return ""


seen: ContextVar[set[str] | None] = ContextVar("seen", default=None)
"""Where the cases that a law reports are noted, while it is tried."""


def saw(case: str) -> None:
    """Report that a law has checked one of the cases it exists for."""
    if (cases := seen.get()) is not None:
        cases.add(case)


def law(
    *,
    given: Draw,
    must_see: tuple[str, ...],
    needs: tuple[Capability, ...] = (),
    needs_one_of: tuple[Capability, ...] = (),
    builds_on: tuple[str, ...] = (),
    generation: bool = False,
) -> Callable[[Check], Callable[..., None]]:
    """Make a test of a law. Pytest gives it a target and an effort; the law itself is its attribute `law`."""

    def decorate(check: Check) -> Callable[..., None]:
        sets = (frozenset(needs), frozenset(needs_one_of), frozenset(must_see), frozenset(builds_on))
        this = Law(check, given, *sets, generation)

        def test(target: "Target", kvref_effort: "Effort") -> None:
            from kvref.pytest_plugin import require_held
            from kvref.search import search

            __tracebackhide__ = True
            require_held(search(this, target, kvref_effort))

        test.__name__ = test.__qualname__ = check.__name__
        test.__doc__, test.__module__ = check.__doc__, check.__module__
        test.__dict__["law"] = this
        return test

    return decorate


@cache
def laws() -> dict[str, Law]:
    """Every law of `kvref.properties` by name, in the order to try them."""
    package = import_module("kvref.properties")
    modules = [import_module(f"kvref.properties.test_{family}") for family in package.FAMILIES]
    found: list[Law] = [value.law for module in modules for value in vars(module).values() if hasattr(value, "law")]
    return {law.name: law for law in found}


def law_called(name: str) -> Law:
    """The law of a name."""
    return laws()[name]


def choose(names: Sequence[str]) -> list[Law]:
    """Laws by name, each once, or all of them. Raises `BadInput` for a name that is none."""
    known = laws()
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1, cutoff=0.3)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise BadInput(f"there is no law {name!r}; {hint}")
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())
