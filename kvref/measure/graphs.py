"""A decode step as a CUDA graph: what it takes once Python and launches are out of the way."""

from statistics import median

import torch

from kvref.gpt2 import GPT
from kvref.targets.reference import StaticDecoder

REPLAYS = 20
"""Steps in each timing."""

TIMINGS = 5
"""Timings, of which the median counts."""


def graphed_seconds(model: GPT, batch: int, past: int) -> float:
    """Seconds of one captured step of a token in each row onto a static cache of `past` tokens, by CUDA events.

    A replay runs the very same step again: the slot that it writes is fixed in it, which would be a bug in a decoder
    (captured-slot-replayed in the catalogue) and is right for a clock. Nothing is committed.
    """
    cache = StaticDecoder(model).start(batch, past + 1)
    cache.length = past  # what its slots hold does not matter for time
    tokens = torch.zeros(batch, 1, dtype=torch.long, device=model.device)
    graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            model.look(tokens, cache)  # allocations and choices of kernels, which a capture must not meet first
    torch.cuda.current_stream().wait_stream(aside)
    with torch.cuda.graph(graph):
        model.look(tokens, cache)
    return median(replayed(graph) for _ in range(TIMINGS))


def replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Mean seconds of one replay among several."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / REPLAYS
