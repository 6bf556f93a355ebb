"""Which schedules to try in limited time: a decoder so slow that it affords a few has them chosen by a rehearsal."""

from math import inf

from kvref.answers import DecoderRaised
from kvref.explore import Explorer
from kvref.law import Law
from kvref.rehearsal import Cost, Plan, Rehearsal, cost_of, stand_in
from kvref.search import Effort
from kvref.targets import Target

SLOW_CALLS, SLOW_SECONDS = 15, 0.2
"""Calls of the decoder, and tokens in them, that one example makes about, and how long they take where it is slow."""


def slow_cost(target: Target) -> Cost | None:
    """What the calls of a target's decoder cost, where it is one, and so slow that its schedules have to be chosen."""
    decoder, *others = target.decoders()
    if others:
        return None
    try:
        cost = cost_of(decoder)
    except DecoderRaised:
        return None
    return None if cost.of(SLOW_CALLS, SLOW_CALLS) < SLOW_SECONDS else cost


def plan_for(law: Law, target: Target, effort: Effort, cost: Cost | None, end: float = inf) -> Plan:
    """Plan a search in limited time.

    A quick decoder, which has no cost, tries whatever is drawn. A slow one affords a few schedules, and they are chosen
    by a rehearsal, which ends at a point in time with what it has seen by then.
    """
    if law.lacks(target.capabilities()):
        return Plan(seconds=0.0)
    if cost is None:
        return Plan()
    rehearsal = Rehearsal(law, stand_in(target.decoders()[0]), cost, end)
    Explorer(rehearsal.law, target).explore(rehearsal, effort.examples, effort.seed)
    return rehearsal.plan()
