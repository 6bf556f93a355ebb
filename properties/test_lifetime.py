"""A cache lives longer than a call: it is cropped, forked, used again, and stands beside others."""

from collections.abc import Iterator

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect, expect_keys_values, expect_logits
from kvref.law import EQUALITY, law, saw
from kvref.lens import SAME_BITS
from kvref.operations import Abort, Crop, CropRows, Extend, Fork, Op, Peek, Prefill, Reset, Restore, Start
from kvref.schedule import Schedule, requests
from kvref.strategies import EVERY, schedules
from kvref.trace import Layers, Step, Uncached, first_rows, oracle_for, play


@law(
    given=schedules(Crop),
    needs=(Capability.CROP, Capability.LOSSLESS),
    must_see=("a crop to a part", "a crop to nothing", "a crop that keeps all", "tokens after a crop"),
    builds_on=(EQUALITY,),
)
def test_crop_equals_never_having_appended(decoder: Decoder, schedule: Schedule) -> None:
    """After a crop the cache is, bit for bit, what it was at that length, and goes on as if nothing had been there.

    Speculative decoding crops at every rejection. Off by one, the cache is one token longer or shorter than believed.
    Redundant on the catalogue, it stays since the kept rows are compared at the crop, and since its cases, to nothing
    and of nothing, are always met.
    """
    uncached = Uncached(decoder, schedule)
    before, cropped = None, False
    for step in play(decoder, schedule):
        if isinstance(step.op, Crop):
            if (layers := step.keys_values()) and before:
                kept = first_rows(before, step.content.length)
                expect_keys_values(step, layers, kept, "of these tokens before the crop", SAME_BITS)
            longer = schedule.contents[step.index - 1][0].length > step.content.length
            part = "a crop to a part" if step.content.length else "a crop to nothing"
            saw(part if longer else "a crop that keeps all")
            cropped = True
        elif step.new:
            expect_logits(step, uncached.logits(step), "in one uncached pass")
            if cropped:
                saw("tokens after a crop")
        before = step.snapshot()


@law(
    given=schedules(Fork, Crop, Prefill, CropRows),
    needs=(Capability.FORK,),
    must_see=("tokens beside another cache with tokens", "both branches of a fork go on"),
    builds_on=(EQUALITY,),
)
def test_a_fork_and_its_origin_never_meet(decoder: Decoder, schedule: Schedule) -> None:
    """What happens to one branch of a fork leaves every bit of the other, and both give uncached logits.

    A copy that shares a buffer is right until the second branch writes into it. Redundant on the catalogue, it stays
    since both branches have to go on, and each is compared bit for bit when the other is written.
    """
    require_isolation(decoder, schedule)
    for index, (op, state) in enumerate(schedule):
        if isinstance(op, Fork) and state[op.cache].length:
            go_on = {later.cache for later in schedule.ops[index:] if isinstance(later, Extend)}
            if {op.cache, len(state) - 1} <= go_on:
                saw("both branches of a fork go on")


@law(
    given=schedules(Start, Reset),
    must_see=("tokens beside another cache with tokens",),
    builds_on=(EQUALITY,),
)
def test_caches_side_by_side_never_meet(decoder: Decoder, schedule: Schedule) -> None:
    """Requests that are served in turns, each with its own cache, leave every bit of each other.

    State that sits in the model, or in a class, and not in the cache breaks it. Redundant on the catalogue, it stays
    since it needs no fork: every decoder can be tried.
    """
    require_isolation(decoder, schedule)


@law(
    given=schedules(Reset, Crop, Prefill),
    needs=(Capability.RESET,),
    must_see=("a second request", "a second request shorter than the first", "a third request"),
)
def test_a_second_request_equals_a_fresh_cache(decoder: Decoder, schedule: Schedule) -> None:
    """After a reset the next request gives the logits that it gives with a fresh cache.

    What is reset in part, the rows but not the length, or the cache but not a counter beside it, is right for the first
    request of every test. Redundant on the catalogue, it stays since it asks for a third request and a shorter one, and
    compares with a fresh cache, not with no cache.
    """
    fresh = {
        begin + step.index: step.logits
        for begin, request in requests(schedule)
        for step in play(decoder, request)
        if step.new
    }
    served = 0
    longest_before = longest = 0
    for step in play(decoder, schedule):
        if isinstance(step.op, Reset):
            served, longest_before, longest = served + 1, max(longest, longest_before), 0
        elif step.new and (want := fresh[step.index]) is not None:
            expect_logits(step, want, "with a fresh cache")
            longest = max(longest, step.content.length)
            if served and longest_before:
                saw("a second request" if served == 1 else "a third request")
                if longest < longest_before:
                    saw("a second request shorter than the first")


@law(given=schedules(*EVERY), must_see=("a step done twice",))
def test_the_same_schedule_gives_the_same_bits(decoder: Decoder, schedule: Schedule) -> None:
    """One schedule, run twice, gives the same bits: nothing but the tokens and the operations decides.

    Under ordinary kernels too, since equal shapes run equal kernels. Dropout left on, a race, or a counter that is
    never set back breaks it. Redundant on the catalogue, it stays since chance makes other laws fail in a misleading
    way, or leaves them undecided; here it is named.
    """
    first = [(step.logits, step.snapshot()) for step in play(decoder, schedule)]
    for step in play(decoder, schedule):
        logits, rows = first[step.index]
        if logits is not None:
            expect_logits(step, logits, "the first time", SAME_BITS)
            saw("a step done twice")
        if (again := step.keys_values()) and rows:
            expect_keys_values(step, again, rows, "the first time", SAME_BITS)


@law(
    given=schedules(Restore, Crop, Prefill, CropRows),
    needs=(Capability.SAVE,),
    must_see=("tokens after a restore",),
    builds_on=(EQUALITY,),
)
def test_a_restored_cache_goes_on_as_the_saved_one(decoder: Decoder, schedule: Schedule) -> None:
    """What is read back from a file is, bit for bit, what was saved, and goes on as if it had never left memory.

    Keys and values are easy to save; what else the next token needs, the length, the padding, is easily forgotten.
    Redundant on the catalogue, it stays since rows are compared as they are read back, bit for bit.
    """
    for _ in require_kept(decoder, schedule, Restore, "before it was saved", "tokens after a restore"):
        pass


@law(
    given=schedules(Abort, Crop, Prefill),
    needs=(Capability.LAYERS, Capability.ATOMIC),
    must_see=("a pass that dies onto an empty cache", "a pass that dies onto a past", "tokens after it"),
    builds_on=(EQUALITY,),
)
def test_a_pass_that_dies_leaves_the_cache_as_it_was(decoder: Decoder, schedule: Schedule) -> None:
    """When a pass fails in some layer, the cache still is what it was before, and takes the next tokens.

    Memory that runs out, or a user who stops, ends a pass after some layers have written and others have not. A length
    that was counted first, rows that are in some layers alone, or the padding of a prompt that never came spoil
    everything that follows. Redundant on the catalogue, it stays since the rows are compared when the pass has died; a
    later token may overwrite what it left.
    """
    for step in require_kept(decoder, schedule, Abort, "before the pass that died", "tokens after it"):
        expect(step.refusal is not None, "a pass that failed in a layer gave an answer all the same", step)
        saw(f"a pass that dies onto {'a past' if step.content.length else 'an empty cache'}")


@law(
    given=schedules(Peek, Crop, Prefill),
    needs=(Capability.PEEK,),
    must_see=("one token looked at", "several tokens looked at", "tokens after a look"),
    builds_on=(EQUALITY,),
)
def test_a_look_changes_nothing(decoder: Decoder, schedule: Schedule) -> None:
    """Logits of tokens that are not to be kept are those of an uncached pass, and the cache is as it was before.

    Scoring an answer, or a pass that is run again for its gradients, reads the cache and must not append to it.
    Redundant on the catalogue, it stays since the rows are compared right behind the look, one token and several.
    """
    for step in require_kept(decoder, schedule, Peek, "before the look", "tokens after a look"):
        assert isinstance(step.op, Peek)
        saw("one token looked at" if len(step.op.tokens[0]) == 1 else "several tokens looked at")


def require_kept(decoder: Decoder, schedule: Schedule, kind: type[Op], than: str, case: str) -> Iterator[Step]:
    """Check that one kind of operation leaves the cache as it was, that what follows is right, and give its steps."""
    oracle = oracle_for(decoder, schedule)
    before, done = None, set[int]()
    for step in play(decoder, schedule):
        if step.logits is not None:
            expect_logits(step, oracle.logits(step), oracle.said)
        if isinstance(step.op, kind):
            require_unchanged(step, before, than)
            done.add(step.cache)
            yield step
        elif step.logits is not None and step.cache in done:
            saw(case)
        before = step.snapshot()


def require_unchanged(step: Step, before: Layers | None, than: str) -> None:
    """Check that the cache holds what it held before, and as much."""
    if Capability.LENGTH in step.decoder.capabilities:
        length = step.length
        expect(length == step.content.length, f"the length is {length}, but it was {step.content.length} {than}", step)
    layers = step.keys_values()
    if layers and before:
        expect_keys_values(step, layers, before, than, SAME_BITS)


def require_isolation(decoder: Decoder, schedule: Schedule) -> None:
    """Check after every step that no other cache has changed, and that the logits are those of an uncached pass."""
    oracle = oracle_for(decoder, schedule)
    last: dict[int, Step] = {}
    rows = {}
    for step in play(decoder, schedule):
        last[step.cache], rows[step.cache] = step, step.snapshot()
        for other, untouched in last.items():
            if other != step.cache and (layers := untouched.keys_values()) and rows[other]:
                expect_keys_values(step, layers, rows[other], f"of cache {other} before this step", SAME_BITS)
        if step.logits is not None:
            expect_logits(step, oracle.logits(step), oracle.said)
            if any(other.content.length for cache, other in last.items() if cache != step.cache):
                saw("tokens beside another cache with tokens")
