"""The fault dictionary: how the probes go for every bug of the catalogue, as it was last measured on the reference.

The kills of the laws are in `kvref.matrix.record`; together they are what a bug looks like. A dictionary of faults by
their answers to fixed tests is an old idea of testing circuits (Abramovici, Breuer and Friedman, Digital Systems
Testing and Testable Design, 1990). `kvref bugs probe --record FILE` writes it; a test holds it to the catalogue.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import torch

from kvref.bug import Bug
from kvref.config import GPTConfig
from kvref.diagnosis.symptoms import RIGHT, signature
from kvref.targets import Bench, ReferenceTarget
from kvref.targets.reference import DECODERS, kind_of

SHAPE = GPTConfig(block_size=16, vocab_size=29, n_layer=2, n_head=4, n_embd=16, n_kv_head=2)
"""The reference that bugs are probed in: two layers, and heads that share keys and values."""

Signatures = Mapping[str, Mapping[str, str]]
"""How probes go, for each kind of cache."""


def signatures_of(bug: Bug | None, bench: Bench) -> dict[str, dict[str, str]]:
    """How the probes go for a bug, or for the reference itself, with each kind of cache that it can be had with."""
    found = dict[str, dict[str, str]]()
    for kind in DECODERS:
        if bug and kind not in kinds(bug):
            continue
        target = bug.target(bench, kind) if bug else ReferenceTarget(f"reference:{kind}", kind, bench)
        found[kind] = signature(target.decoder(SHAPE, 0, torch.float32))
    return found


def kinds(bug: Bug) -> list[str]:
    """Kinds of cache that a bug can be had with."""
    from kvref.errors import TargetError

    able = list[str]()
    for kind in DECODERS:
        try:
            able.append(kind_of(bug.part, kind, bug.name))
        except TargetError:
            continue
    return able


def to_json(dictionary: Mapping[str, Signatures]) -> str:
    """The dictionary as JSON, a bug a line. Probes that go right, as most do, are only named once."""
    asked = {kind: list(probes) for kinds in dictionary.values() for kind, probes in kinds.items()}
    lines = [
        json.dumps(bug)
        + ": "
        + json.dumps(
            {
                kind: {name: answer for name, answer in probes.items() if answer != RIGHT}
                for kind, probes in kinds.items()
            }
        )
        for bug, kinds in dictionary.items()
    ]
    return f'{{"asked": {json.dumps(asked)},\n"bugs": {{\n' + ",\n".join(lines) + "\n}}\n"


def from_json(text: str) -> dict[str, Signatures]:
    """Read what `to_json` wrote."""
    data: Any = json.loads(text)
    return {
        bug: {kind: dict.fromkeys(data["asked"][kind], RIGHT) | wrong for kind, wrong in kinds.items()}
        for bug, kinds in data["bugs"].items()
    }


@cache
def dictionary() -> dict[str, Signatures]:
    """The dictionary that comes with kvref."""
    return from_json(files("kvref.diagnosis").joinpath("dictionary.json").read_text(encoding="utf-8"))
