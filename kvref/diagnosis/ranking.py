"""Which known bugs a failing decoder looks like: its signature against the fault dictionary, weighted by what is rare.

A guess, and called one. Two bugs may look alike to every probe and law, and what is wrong may be in no catalogue.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log

from kvref.diagnosis.dictionary import Signatures
from kvref.diagnosis.symptoms import RIGHT, SAID, Symptom

LIKE = 0.3
"""Score from which on a bug is worth naming. The measure of diagnosis says how often the right one has less."""

LAW = "law "
"""What the name of a law begins with among the probes of a signature."""

BROKEN = "broken"

LESS = 0.2
"""Weight of what a decoder says of its length, beside what it does: often that is counted apart from the cache."""


@dataclass(frozen=True)
class Guess:
    """A bug that something looks like. A score of 1 means that every probe and law goes the same way.

    `weight` is that of all that goes the same way: of two bugs with one score, the one that explains more is likelier.
    """

    bug: str
    score: float
    weight: float

    @property
    def order(self) -> tuple[float, float]:
        """What guesses are sorted by, the likest first."""
        return -self.score, -self.weight


Known = Mapping[str, Sequence[Mapping[str, str]]]
"""What is known of every bug: a signature for each kind of cache that it can be had with."""


def known(
    dictionary: Mapping[str, Signatures],
    kills: Mapping[str, Mapping[str, int]],
    laws: Sequence[str],
    held: Mapping[str, int],
) -> Known:
    """Put together how probes go and which of some laws are broken, for every bug.

    A law that `held` for so many examples is not expected to be broken by a bug that it kills later than that.
    """

    def broken(bug: str, law: str) -> bool:
        after = kills.get(bug, {}).get(law)
        return after is not None and after <= held.get(law, after)

    return {
        bug: [
            {**probes, **{LAW + law: BROKEN if broken(bug, law) else RIGHT for law in laws}}
            for probes in kinds.values()
        ]
        for bug, kinds in dictionary.items()
    }


def rank(seen: Mapping[str, str], bugs: Known) -> list[Guess]:
    """All known bugs, the likest first: each by the kind of cache with which it is most like what was seen.

    The score is the weight of what agrees over the weight of all that goes wrong on either side (a weighted Jaccard
    index). What few bugs get wrong weighs more; what one side was not asked weighs nothing.
    """
    weights = rarity(bugs)
    guesses = [min((guess(bug, seen, one, weights) for one in kinds), key=by_order) for bug, kinds in bugs.items()]
    return sorted(guesses, key=lambda guess: (guess.order, guess.bug))


def place(bug: str, guesses: Sequence[Guess]) -> int:
    """The place of a bug among guesses, from 1; of those that are as like, it is the last."""
    (own,) = (guess.order for guess in guesses if guess.bug == bug)
    return sum(guess.order <= own for guess in guesses)


def by_order(guess: Guess) -> tuple[float, float]:
    """A key to sort guesses by."""
    return guess.order


def rarity(bugs: Known) -> dict[str, float]:
    """A weight for each probe and law: the logarithm of one over the share of bugs that get it wrong."""
    wrong: dict[str, int] = {}
    for kinds in bugs.values():
        for name in {name for one in kinds for name, answer in one.items() if answer != RIGHT}:
            wrong[name] = wrong.get(name, 0) + 1
    return {
        name: (LESS if name.endswith(SAID) else 1.0) * log((len(bugs) + 1) / number) for name, number in wrong.items()
    }


def guess(bug: str, seen: Mapping[str, str], one: Mapping[str, str], weights: Mapping[str, float]) -> Guess:
    """How like what was seen is to one signature of a bug."""
    agree = total = 0.0
    for name in wrong_somewhere(seen, one):
        weight = weights.get(name, max(weights.values(), default=1.0))
        agree += weight * alike(name, seen[name], one[name])
        total += weight
    return Guess(bug, agree / total if total else 0.0, agree)


def wrong_somewhere(seen: Mapping[str, str], one: Mapping[str, str]) -> Iterator[str]:
    """Probes and laws that both sides were asked, and at least one gets wrong."""
    return (name for name in seen if name in one and (seen[name] != RIGHT or one[name] != RIGHT))


def alike(name: str, seen: str, one: str) -> float:
    """How alike two answers are, of which at least one is wrong."""
    if seen == one or name.startswith(LAW):
        return float(seen == one)
    mine, other = Symptom.read(seen), Symptom.read(one)
    if mine is None or other is None:
        return 0.0
    if mine.step != other.step or mine.what != other.what:
        return 0.25
    details = [(mine.rows, other.rows), (mine.positions, other.positions)]
    if "hidden" not in (mine.cache, other.cache):
        # Apart, since architectures differ in the first: a wrong position is in keys and values, or in keys alone.
        details += [(mine.cache, other.cache), (mine.part, other.part)]
    if "hidden" not in (mine.entry, other.entry):
        details.append((mine.entry, other.entry))
    return 0.5 + 0.5 * sum(a == b for a, b in details) / len(details)
