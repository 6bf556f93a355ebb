"""Self-test of the exact lens: on this very device and build, each operator that a mode rests on is as it assumes.

No kernel promises that a row comes out alike at every place of a matrix, or a number at every place of a vector. Here
each is called at many places, among many neighbours, in many layouts, and must give the same bits. Everything goes
through the arithmetic or `exact` itself, so that what is proved is what is used. Random numbers alone would lie: in
bfloat16 rounding hides most changes of order, so there are probes which only some orders absorb (see `numbers.data`).
A control shows with each run that the same trials do catch an arithmetic that is not invariant.
"""

from collections.abc import Iterator

import torch

from kvref.errors import NotExact
from kvref.exactness.selftest.composed import composed_sums
from kvref.exactness.selftest.control import negative_control
from kvref.exactness.selftest.elementwise import elementwise_operators
from kvref.exactness.selftest.products import sums_of_products
from kvref.exactness.selftest.reference import reference_sums
from kvref.exactness.selftest.trial import Proof, settled, threads

__all__ = ["Proof", "proofs", "prove", "require"]

PARTS = (elementwise_operators, reference_sums, sums_of_products, composed_sums)


def prove(mode: str, device: torch.device, *, quick: bool = False) -> list[Proof]:
    """Every operator of a mode has been tried on a device; one that fails is in the list with `holds` false.

    `quick` tries fewer places and smaller shapes, for the start of a check.

        assert all(proof.holds for proof in prove("fold", torch.device("cpu"), quick=True))
    """
    return list(proofs(mode, device, quick=quick))


def require(mode: str, device: torch.device) -> None:
    """The quick proofs of a mode hold on a device. Raises `NotExact`, naming the first operator that fails."""
    for proof in proofs(mode, device, quick=True):
        if not proof.holds:
            raise NotExact(
                f"the exact lens cannot claim {mode} here: {proof.operator} fails on {device} ({proof.detail})"
            )


def proofs(mode: str, device: torch.device, *, quick: bool) -> Iterator[Proof]:
    """The proofs of a mode one by one, each tried when it is asked for.

    They run in one thread, and some trials in as many as there can be: threads wait for one another, for many
    milliseconds where others use the cores too.
    """
    for job in (job for part in PARTS for job in part(mode, device, quick)):
        with threads(1):
            proof = settled(mode, *job)
        yield proof
    with threads(1):
        proof = negative_control(mode, device)
    yield proof
