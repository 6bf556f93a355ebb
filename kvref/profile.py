"""How hard a check tries: a profile by its name, or what is said in its place."""

from secrets import randbelow

from kvref.errors import BadInput
from kvref.project import setting
from kvref.search import Effort

PROFILES = {"quick": 20, "ci": Effort.examples, "deep": 1000}
"""Schedules to try for each law. `deep` draws others each time; the seed that it drew is printed, and given again."""

USUAL = "ci"
SEEDS = 2**31


def effort_for(
    profile: str | None = None, examples: int | None = None, seed: int | None = None, *, drawn: int | None = None
) -> Effort:
    """The effort of a profile: that which is named, else the project's own (`[tool.kvref] profile`), else `ci`.

    What is said of `examples` and `seed` goes before what the profile says. `drawn` is the seed of a profile that draws
    one, where several processes have to agree on it. Raises `BadInput` for a profile that there is not.
    """
    own = setting("profile")
    name = next((said for said in (profile, own) if said is not None), USUAL)
    if not isinstance(name, str) or name not in PROFILES:
        raise BadInput(f"there is no profile {name!r}; there are {', '.join(PROFILES)}")
    if (examples is not None and examples < 1) or (seed is not None and seed < 0):
        raise BadInput(f"at least one example is needed, and a seed from 0 up, not {examples} and {seed}")
    if seed is None:
        seed = 0 if name != "deep" else randbelow(SEEDS) if drawn is None else drawn
    spelled = own not in (None, USUAL)
    return Effort(PROFILES[name] if examples is None else examples, seed, profile=name, spelled=spelled)
