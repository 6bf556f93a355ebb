"""Time per token against position, with each kind of cache and without one: the same weights and tokens, in one run."""

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

import torch

from kvref.errors import BadInput, one_line
from kvref.measure.samples import NAIVE, Sample, Setting, What
from kvref.measure.speed import synchronize
from kvref.measure.subjects import Subject
from kvref.protocol import Tokens


def measure_latency(subject: Subject, batch: int, setting: Setting) -> Iterator[Sample]:
    """Time every token in all ways, one right after the other, in an order that turns with each repeat."""
    tokens = random_tokens(subject, batch, setting.tokens)
    with torch.inference_mode():
        for _ in one_run(subject, tokens, setting, 0):
            pass  # to warm up: at every length something may be built or allocated for the first time
        for repeat in range(setting.repeats):
            yield from one_run(subject, tokens, setting, repeat)


def random_tokens(subject: Subject, batch: int, length: int) -> Tokens:
    """Tokens that do not depend on anything but the subject's vocabulary."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(subject.vocab_size, (batch, length), generator=generator).to(subject.device)


def one_run(subject: Subject, tokens: Tokens, setting: Setting, repeat: int) -> Iterator[Sample]:
    """One sequence from its prompt to its last token."""
    ways = list(subject.ways)
    ways = ways[repeat % len(ways) :] + ways[: repeat % len(ways)]
    handles = {name: subject.ways[name].start(len(tokens), setting.tokens) for name in ways}

    def step(name: str, past: int, end: int) -> None:
        _, handles[name] = subject.ways[name].step(handles[name], tokens[:, past:end])

    def calls(past: int, end: int, *, naive: bool) -> dict[str, Callable[[], object]]:
        cached: dict[str, Callable[[], object]] = {name: lambda name=name: step(name, past, end) for name in ways}
        return {**cached, NAIVE: lambda: subject.full(tokens[:, :end])} if naive else cached

    def sample(what: What, position: int, timed: Mapping[str, Callable[[], object]]) -> Sample:
        return Sample(subject.name, len(tokens), repeat, what, position, seconds_of(timed, subject.device))

    yield sample("prefill", setting.prompt, calls(0, setting.prompt, naive=True))
    for end in range(setting.prompt + 1, setting.tokens + 1):
        yield sample("token", end, calls(end - 1, end, naive=end in setting.positions))


def seconds_of(calls: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    """Seconds of each call, on a GPU until it has done what it was asked for."""
    seconds = dict[str, float]()
    for name, call in calls.items():
        synchronize(str(device))
        begun = perf_counter()
        try:
            call()
            synchronize(str(device))
        except Exception as error:
            raise BadInput(f"{name} raised while it was timed: {one_line(error)}") from error
        seconds[name] = perf_counter() - begun
    return seconds


def measure_generation(subject: Subject, batch: int, prompt: int, tokens: int, repeats: int) -> Iterator[Sample]:
    """Time whole greedy generations: the subject's own caches, and its peers, who have the same weights.

    Each is run once before, to warm up; peers that say something else than the first cache are not timed.
    """
    given = random_tokens(subject, batch, prompt)
    loops = {name: subject.loop(name) for name in subject.ways} | dict(subject.peers)
    names = list(loops)
    with torch.inference_mode():
        said = {name: loops[name](given, tokens - prompt) for name in names}
        names = [name for name in names if said[name] == said[names[0]]]
        for repeat in range(repeats):
            turned = names[repeat % len(names) :] + names[: repeat % len(names)]
            calls: dict[str, Callable[[], object]] = {
                name: lambda name=name: loops[name](given, tokens - prompt) for name in turned
            }
            yield Sample(subject.name, batch, repeat, "generate", tokens, seconds_of(calls, subject.device))
