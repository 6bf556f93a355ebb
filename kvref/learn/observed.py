"""A decoder that notes what a law does with it: the cases that its examples are made of."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import Any

from typing_extensions import override

from kvref.answers import DecoderRaised
from kvref.decoder import Decoder
from kvref.protocol import Conversation, Logits, Sampler, Tokens


class Case(StrEnum):
    """What an example may do, in the words in which a student is told that none did."""

    FIRST_ONE = "a prompt of one token"
    ONE = "a single token onto a past"
    SEVERAL = "several tokens onto a past"
    BATCH = "a batch of several rows"
    REFUSED = "a call that is refused"
    AFTER_REFUSAL = "tokens after a call that was refused"
    CROP = "a crop that drops some tokens"
    CROP_NOTHING = "a crop that drops none"
    CROP_ALL = "a crop that drops all"
    AFTER_CROP = "tokens after a crop"
    AFTER_RESET = "tokens after a reset of a cache that had some"
    BESIDE = "tokens into one cache while another has some"
    BOTH = "a fork and its origin that both go on"
    MOVED = "a reorder that moves a row"
    AFTER_MOVE = "tokens after rows were moved"
    UNEQUAL = "rows of unequal lengths"
    BEHIND_PADDING = "tokens onto rows of unequal lengths"
    LATER_TURN = "a turn after a reply"
    LATER_REPLY = "a reply to a turn that follows a reply"


@dataclass(frozen=True)
class History:
    """What has been done to one cache. `then` are the cases that the next tokens make."""

    branch: int
    family: int
    past: int = 0
    then: frozenset[Case] = frozenset()

    def doing(self, *cases: Case) -> "History":
        """The same with more that the next tokens make."""
        return replace(self, then=self.then | frozenset(cases))


class Observed(Decoder):
    """A decoder with the cases of the present example, and how often its caches were run in all."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__(decoder.given, "decoder", decoder.lens)
        self.runs = 0
        self.begin()

    def begin(self) -> None:
        """Forget the last example."""
        self.cases = set[Case]()
        self.numbers = count()
        # The handles are kept, so that none of them can have the id of another.
        self.histories: dict[int, tuple[Any, History]] = {}
        self.filled = set[int]()
        self.gone_on = defaultdict[int, set[int]](set)

    def history(self, cache: Any) -> History:
        """What was done to a cache."""
        known = self.histories.get(id(cache))
        return known[1] if known else self.born(cache)

    def keep(self, cache: Any, history: History) -> Any:
        """Remember what was done to a cache, which may be the handle of before or a new one."""
        self.histories[id(cache)] = cache, history
        return cache

    def born(self, cache: Any) -> History:
        """The history of a cache that nothing was done to."""
        self.keep(cache, new := History(next(self.numbers), next(self.numbers)))
        return new

    @override
    def start(self, batch: int, capacity: int | None = None) -> Any:
        cache = super().start(batch, capacity)
        self.born(cache)
        return cache

    @override
    def step(self, cache: Any, tokens: Tokens) -> tuple[Logits, Any]:
        self.runs += 1
        before = self.history(cache)
        try:
            logits, cache = super().step(cache, tokens)
        except DecoderRaised:
            self.cases.add(Case.REFUSED)
            self.keep(cache, before.doing(Case.AFTER_REFUSAL))
            raise
        return logits, self.fed(cache, before, tokens)

    @override
    def prefill(self, cache: Any, tokens: Tokens, padding: Sequence[int]) -> tuple[Logits, Any]:
        self.runs += 1
        before = self.history(cache)
        logits, cache = super().prefill(cache, tokens, padding)
        self.fed(cache, before, tokens)
        if len(set(padding)) > 1:
            self.cases.add(Case.UNEQUAL)
            self.keep(cache, self.history(cache).doing(Case.BEHIND_PADDING))
        return logits, cache

    def fed(self, cache: Any, before: History, tokens: Tokens) -> Any:
        """Note tokens that a cache has taken."""
        new = tokens.size(1)
        if new and (before.past or new == 1):
            self.cases.add((Case.SEVERAL if new > 1 else Case.ONE) if before.past else Case.FIRST_ONE)
        if new:
            self.cases |= before.then
            self.gone_on[before.family].add(before.branch)
            self.cases |= {Case.BESIDE} if self.filled - {before.branch} else set()
            self.cases |= {Case.BOTH} if len(self.gone_on[before.family]) > 1 else set()
            self.cases |= {Case.BATCH} if tokens.size(0) > 1 else set()
            self.filled.add(before.branch)
        return self.keep(cache, replace(before, past=before.past + new))

    @override
    def crop(self, cache: Any, length: int) -> Any:
        before = self.history(cache)
        kept = Case.CROP_NOTHING if length == before.past else Case.CROP if length else Case.CROP_ALL
        self.cases.add(kept)
        return self.keep(super().crop(cache, length), replace(before.doing(Case.AFTER_CROP), past=length))

    @override
    def reset(self, cache: Any) -> Any:
        before = self.history(cache)
        after = before.doing(Case.AFTER_RESET) if before.past else before
        return self.keep(super().reset(cache), replace(after, past=0))

    @override
    def fork(self, cache: Any) -> Any:
        copy = super().fork(cache)
        origin = replace(self.history(cache), family=next(self.numbers))
        self.keep(cache, origin)
        branch = replace(origin, branch=next(self.numbers))
        if origin.past:
            self.filled.add(branch.branch)
        return self.keep(copy, branch)

    @override
    def reorder(self, cache: Any, rows: Sequence[int]) -> Any:
        before = self.history(cache)
        if list(rows) != list(range(len(rows))):
            self.cases.add(Case.MOVED)
            before = before.doing(Case.AFTER_MOVE)
        return self.keep(super().reorder(cache, rows), before)

    @override
    def session(self) -> Conversation:
        return Turns(self, super().session())


class Turns:
    """A conversation whose turns and replies are noted."""

    def __init__(self, decoder: Observed, conversation: Conversation) -> None:
        self.decoder, self.conversation = decoder, conversation
        self.replies, self.turned = 0, False

    def feed(self, tokens: Tokens) -> Any:
        """A turn."""
        self.decoder.runs += 1
        self.turned = bool(self.replies)
        self.decoder.cases |= {Case.LATER_TURN} if self.turned else set()
        return self.conversation.feed(tokens)

    def reply(self, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """A reply."""
        said = self.conversation.reply(max_new_tokens, sampler)
        if max_new_tokens:
            self.replies += 1
            self.decoder.cases |= {Case.LATER_REPLY} if self.turned else set()
        return said
