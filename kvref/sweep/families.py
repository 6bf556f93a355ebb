"""What can be swept: families of targets, each a function that gives what `kvref check` takes, one string a target.

To add one, write such a function and put it into `FAMILIES`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.util import find_spec
from itertools import chain, zip_longest

from kvref.errors import BadInput
from kvref.forks import TRANSFORMERS


@dataclass(frozen=True)
class Family:
    """Targets that belong together: what they are, how to list them, and which modules all of them import."""

    about: str
    targets: Callable[[], Sequence[str]]
    imports: tuple[str, ...] = ()
    needs: str = ""
    """A module that is not always there; where it is not, the family is swept only if it is asked for."""

    @property
    def there(self) -> bool:
        """Whether its package is installed."""
        return not self.needs or find_spec(self.needs) is not None


def transformers() -> Sequence[str]:
    """Every causal language model that the installed transformers knows, tiny, relatives far apart."""
    from kvref.targets.tiny import model_types

    return [f"hf-config:{model_type}" for model_type in spread(model_types())]


def of_package(package: str) -> Family:
    """What is worth trying of another package, as its adapter says."""

    def targets() -> Sequence[str]:
        from kvref.targets.packages import worth_trying

        return list(worth_trying(package))

    return Family(f"what {package} offers, tiny", targets, needs=package.replace("-", "_"))


FAMILIES = {
    "transformers": Family("every causal language model of transformers, tiny", transformers, TRANSFORMERS),
    **{
        name: of_package(name)
        for name in ("x-transformers", "litgpt", "mlx-lm", "transformer-lens", "keras-hub", "onnxruntime-genai")
    },
}
"""Families by name."""


def spread(names: Sequence[str]) -> list[str]:
    """Names so ordered that those which begin with the same word are far apart: one of each first, then the seconds."""
    relatives: dict[str, list[str]] = {}
    for name in names:
        word = re.match("[a-z]*", name)
        relatives.setdefault(word.group() if word else "", []).append(name)
    rounds = zip_longest(*relatives.values())
    return [name for name in chain.from_iterable(rounds) if name is not None]


def chosen(names: Sequence[str], only: Sequence[str]) -> list[str]:
    """Targets of some families, or of all that are there: those that a pattern fits, as a whole or behind the colon.

    Raises `BadInput` for a family that is none, or whose package is not installed, and where no target is left.
    """
    for name in names:
        if name not in FAMILIES:
            near = get_close_matches(name, FAMILIES, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FAMILIES)}"
            raise BadInput(f"there is no family {name!r} to sweep; {hint}")
    asked = names or [name for name, family in FAMILIES.items() if family.there]
    every = list(dict.fromkeys(chain.from_iterable(listed(name) for name in asked)))
    found = [target for target in every if not only or any(fits(target, pattern) for pattern in only)]
    if not found:
        raise BadInput(
            f"none of {len(every)} targets is like {' or '.join(only) or 'anything'}; they are as {every[0]}"
        )
    return found


def listed(name: str) -> Sequence[str]:
    """Targets of one family."""
    try:
        return FAMILIES[name].targets()
    except ModuleNotFoundError as error:
        raise BadInput(f"{name} cannot be swept: {error.name} is not installed") from error


def fits(target: str, pattern: str) -> bool:
    """Whether a pattern with `*` fits a target or what is behind its colon."""
    return fnmatchcase(target, pattern) or fnmatchcase(target.partition(":")[2], pattern)
