"""The list of planted faults, which those files fill that have them."""

from collections.abc import Callable
from typing import Any

from kvref.targets.causal_lm import CausalLM

Plant = Callable[[Any], CausalLM]
"""Makes the faulty decoder of a model, which it may change."""

PLANTS: dict[str, Plant] = {}
"""The faults, by the name of the bug that each is."""


def plant(name: str) -> Callable[[Plant], Plant]:
    """List a fault under the name of the bug that it is."""

    def listed(make: Plant) -> Plant:
        PLANTS[name] = make
        return make

    return listed
