"""Drawing examples, and making one that fails small: bytes become a decoder of the target and a schedule."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol
from unittest import SkipTest

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import DrawFn, SearchStrategy, composite

from kvref.answers import DecoderRaised
from kvref.choices import Choices, Sources, TokenSource, pick
from kvref.decoder import Decoder
from kvref.finding import LawBroken
from kvref.law import Law
from kvref.schedule import Schedule
from kvref.shrink import smallest
from kvref.strategies import DRAWN
from kvref.targets import Target

MOST_SECONDS = 300.0
"""A failing example is made smaller for no longer than this."""

Try = tuple[str, Schedule]
"""A decoder by its name, and what it is tried on."""


class Attempts(Protocol):
    """What tries a law on one example after the other."""

    law: Law
    repeats: bool

    def attempt(self, decoder: Decoder, schedule: Schedule) -> None:
        """Try it once; raises where it fails."""
        ...


@dataclass(frozen=True)
class Drawn:
    """What was drawn for an example, and where its tokens came from, where that was drawn too."""

    data: bytes
    source: TokenSource | None


@dataclass
class Explorer:
    """Draws examples of a law for a target, and knows what each was made of."""

    law: Law
    target: Target

    def __post_init__(self) -> None:
        able = [decoder for decoder in self.target.decoders() if not self.law.lacks(decoder.capabilities)]
        self.known: list[tuple[Decoder, Sources]] = [(decoder, self.target.sources(decoder)) for decoder in able]
        self.drawn = dict[Try, Drawn]()

    def explore(self, watch: Attempts, examples: int, number: int) -> None:
        """Let Hypothesis draw decoders and schedules, until the watch has seen enough.

        The same number as seed draws the same examples in the same order, whatever the watch does with them.
        """

        @composite
        def cases(draw: DrawFn) -> tuple[Decoder, Schedule]:
            data, given_source = draw(DRAWN), None

            def source_of(strategy: SearchStrategy[TokenSource]) -> TokenSource:
                nonlocal given_source
                given_source = draw(strategy)
                return given_source

            decoder, schedule = self.made(data, source_of)
            self.drawn[decoder.name, schedule] = Drawn(data, given_source)
            return decoder, schedule

        @settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            derandomize=False,
            report_multiple_bugs=False,
            verbosity=Verbosity.quiet,
            # The time of an example is that of the decoder's forward passes, which may be as large as it likes.
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(cases())
        def test(case: tuple[Decoder, Schedule]) -> None:
            watch.attempt(*case)

        seed(number * 1_000_003 + zlib.crc32(self.law.name.encode()))(test)
        try:
            test()
        except (LawBroken, DecoderRaised):
            pass  # the watch has it
        except SkipTest:
            pass  # it was late, or it had seen enough
        except Flaky:
            watch.repeats = False

    def made(
        self, data: bytes, source_of: Callable[[SearchStrategy[TokenSource]], TokenSource]
    ) -> tuple[Decoder, Schedule]:
        """The decoder and the schedule that bytes choose; tokens may come from what is drawn besides."""
        choices = Choices(data)
        decoder, sources = pick(self.known, choices.small())
        source = pick(sources, choices.small())
        if isinstance(source, SearchStrategy):
            source = source_of(source)
        return decoder, self.law.draw(decoder, source, choices)

    def shrink(self, watch: Attempts, decoder: Decoder, schedule: Schedule) -> None:
        """Try the law on ever smaller examples, from one on which it failed; the smallest is the last that fails."""
        if not failed(watch, decoder, schedule):
            watch.repeats = False
            return
        drawn = self.drawn[decoder.name, schedule]
        tried = dict[Try, bool]()
        end = perf_counter() + MOST_SECONDS

        def source_of(_: SearchStrategy[TokenSource]) -> TokenSource:
            if drawn.source is None:
                raise NotDrawn
            return drawn.source

        def fails(data: bytes) -> bool:
            try:
                smaller = self.made(data, source_of)
            except NotDrawn:
                return False
            asked = smaller[0].name, smaller[1]
            if asked not in tried:
                tried[asked] = perf_counter() < end and failed(watch, *smaller)
            return tried[asked]

        least = self.made(smallest(fails, drawn.data), source_of)
        if tried.get((least[0].name, least[1])) and not failed(watch, *least):
            watch.repeats = False


class NotDrawn(Exception):
    """Tokens would come from what was not drawn."""


def failed(watch: Attempts, decoder: Decoder, schedule: Schedule) -> bool:
    """Whether the law fails on an example, as the watch sees it."""
    try:
        watch.attempt(decoder, schedule)
    except (LawBroken, DecoderRaised):
        return True
    except SkipTest:
        pass  # it was late
    return False
