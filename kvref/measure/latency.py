"""Time per token against position, with each kind of cache and without one: the same weights and tokens, in one run."""

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

import torch

from kvref.measure.samples import NAIVE, Sample, Setting, What
from kvref.measure.speed import synchronize
from kvref.measure.subjects import Subject
from kvref.protocol import Tokens

WARM_UP = 4
"""Tokens that are run one by one before anything is timed, behind a pass over the prompt."""


def measure_latency(subject: Subject, batch: int, setting: Setting) -> Iterator[Sample]:
    """Time every token in all ways, one right after the other, in an order that turns with each repeat."""
    tokens = random_tokens(subject, batch, setting.tokens)
    with torch.inference_mode():
        warm_up(subject, tokens, setting)
        for repeat in range(setting.repeats):
            yield from one_run(subject, tokens, setting, repeat)


def random_tokens(subject: Subject, batch: int, length: int) -> Tokens:
    """Tokens that do not depend on anything but the subject's vocabulary."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(subject.vocab_size, (batch, length), generator=generator).to(subject.device)


def warm_up(subject: Subject, tokens: Tokens, setting: Setting) -> None:
    """Run each way once at the lengths that come, so that nothing is built or allocated for the first time later."""
    for way in subject.ways.values():
        handle = way.start(len(tokens), setting.tokens)
        _, handle = way.step(handle, tokens[:, : setting.prompt])
        for at in range(setting.prompt, min(setting.prompt + WARM_UP, setting.tokens)):
            _, handle = way.step(handle, tokens[:, at : at + 1])
    for position in (setting.prompt, setting.positions[-1]):
        subject.full(tokens[:, :position])


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
        call()
        synchronize(str(device))
        seconds[name] = perf_counter() - begun
    return seconds


def measure_generation(subject: Subject, batch: int, prompt: int, tokens: int, repeats: int) -> Iterator[Sample]:
    """Time whole greedy generations: the subject's own caches, and its peers, who have the same weights.

    Peers are first asked whether they give the same tokens.
    """
    given = random_tokens(subject, batch, prompt)
    loops = {name: subject.loop(name) for name in subject.ways} | dict(subject.peers)
    names = list(loops)
    with torch.inference_mode():
        subject.require_same_tokens({name: loops[name](given, tokens - prompt) for name in names})
        for repeat in range(repeats):
            turned = names[repeat % len(names) :] + names[: repeat % len(names)]
            calls: dict[str, Callable[[], object]] = {
                name: lambda name=name: loops[name](given, tokens - prompt) for name in turned
            }
            yield Sample(subject.name, batch, repeat, "generate", tokens, seconds_of(calls, subject.device))
