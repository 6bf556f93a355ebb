"""How often a verdict is wrong: honest random models, and planted faults, judged from ordinary kernels alone."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from kvref import weights
from kvref.bug import catalogue
from kvref.cache import Cache, GrowingCache, Rows, StaticCache
from kvref.config import GPTConfig
from kvref.disputed import ScalesByHeadDim, ScalesValues, StaleKey, chunks, same_weights
from kvref.exactness import exact
from kvref.gpt2 import GPT
from kvref.protocol import Logits, Tokens
from kvref.scaling import measure, same_bits
from kvref.targets.reference import GrowingDecoder, Part, StaticDecoder
from kvref.verdict import MODELS, PASSES, Evidence, Kind, Verdict, decide, verdict_of

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK_SIZE = 12
SHAPES = 256
"""Shapes that weights are drawn for; more cost time in building modules, and weights matter more."""

PLANTED = 60
"""Models that each fault is planted in, at most."""

LOUD = 0.4
"""Share of models with loud weights; the others have one std for all, between the next two."""

QUIETEST, LOUDEST = 0.02, 0.3

Tick = Callable[[], object]
"""Told of each model."""


class SharesKeysInBatch(GrowingCache):
    """Every row gets the keys of the first."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        return super().append(layer, keys[:1].expand_as(keys), values)


class LosesTheFirstKey(GrowingCache):
    """The first token is overwritten by the second."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        kept = [1, *range(1, keys.size(2))] if self.length > 1 else list(range(keys.size(2)))
        return keys[:, :, kept], values[:, :, kept]


class SwapsHeads(GrowingCache):
    """Heads of the last layer that are read from the cache have changed places."""

    @override
    def append(self, layer: int, keys: Rows, values: Rows) -> tuple[Rows, Rows]:
        keys, values = super().append(layer, keys, values)
        return (keys.roll(1, dims=1), values) if self.length and layer + 1 == len(self.layers) else (keys, values)


FAULTS: tuple[Part, ...] = (
    SharesKeysInBatch,
    LosesTheFirstKey,
    SwapsHeads,
    ScalesByHeadDim,
    ScalesValues,
    StaleKey,
)
"""Faults besides the catalogue's, the smallest of them by 1e-5."""


@dataclass
class Counts:
    """Verdicts, and the figures that thresholds have to stand between.

    `honest` and `planted` are of single models, `trios` and `planted_trios` of three fresh ones; `by_oracle` is of
    three whose float64 is used for nothing but errors. A planted fault that changes no bit of a model is not counted.
    """

    honest: Counter[Kind] = field(default_factory=Counter[Kind])
    trios: Counter[Kind] = field(default_factory=Counter[Kind])
    by_oracle: Counter[Kind] = field(default_factory=Counter[Kind])
    planted: dict[str, Counter[Kind]] = field(default_factory=dict[str, Counter[Kind]])
    planted_trios: dict[str, Counter[Kind]] = field(default_factory=dict[str, Counter[Kind]])
    planted_by_oracle: dict[str, Counter[Kind]] = field(default_factory=dict[str, Counter[Kind]])
    largest_honest: dict[str, float] = field(default_factory=dict[str, float])
    smallest_planted: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Trial:
    """A random model, and what to run on it."""

    model: GPT
    tokens: Tokens
    splits: tuple[int, ...]
    preallocates: bool

    def full(self, tokens: Tokens) -> Logits:
        """Logits without a cache."""
        return self.model(tokens)[0]

    def cached(self, part: Part | None = None) -> Callable[[Tokens, Sequence[int]], Logits]:
        """Logits with a cache, where a class of the reference is replaced."""
        model = same_weights(self.model, part) if part and issubclass(part, GPT) else self.model

        def run(tokens: Tokens, splits: Sequence[int]) -> Logits:
            decoder = part(model) if part and issubclass(part, GrowingDecoder) else None
            batch = tokens.size(0)
            cache = decoder.start(batch, None) if decoder else self.new_cache(batch, part)
            logits = list[Tensor]()
            for chunk in chunks(tokens, splits):
                new, cache = decoder.step(cache, chunk) if decoder else model(chunk, cache)
                logits.append(new)
            return torch.cat(logits, dim=1)

        return run

    def new_cache(self, batch: int, part: Part | None) -> Cache:
        """An empty cache, of the class that is replaced or of either kind."""
        kind = part if part and issubclass(part, Cache) else StaticCache if self.preallocates else GrowingCache
        if not issubclass(kind, StaticCache):
            return kind()
        config, dtype = self.model.config, self.model.transformer.wte.weight.dtype
        return kind(config.n_layer, batch, config.n_head, config.block_size, config.head_dim, dtype)

    def evidence(self, part: Part | None = None) -> Evidence:
        """What ordinary kernels show."""
        dtype = self.model.transformer.wte.weight.dtype
        return measure(self.full, self.cached(part), self.tokens, self.splits, dtype, modes=())

    def shows(self, part: Part) -> bool:
        """Whether a fault changes a bit here, beside the same kind of cache, under the lens, where strides do not."""
        static = issubclass(part, StaticCache | StaticDecoder) or (self.preallocates and issubclass(part, GPT))
        kind = StaticCache if static else GrowingCache
        with torch.inference_mode(), exact("tile"):
            wrong, right = (self.cached(one)(self.tokens, self.splits) for one in (part, kind))
        return not same_bits(wrong, right)


def measure_verdicts(models: int, seed: int, tick: Tick = lambda: None) -> Counts:
    """Judge so many honest models, and a fiftieth as many with each fault, from three to `PLANTED`."""
    randomness = random.Random(seed)
    shapes = [draw_shape(randomness) for _ in range(min(models, SHAPES))]
    counts = Counts()
    honest = [judged(draw_trial(randomness, shapes), None, tick) for _ in range(models)]
    note_honest(counts, honest)
    for name, part in faults().items():
        shown = list[Evidence]()
        for _ in range(max(min(models // 50, PLANTED), MODELS)):
            trial = draw_trial(randomness, shapes)
            if trial.shows(part):
                shown.append(judged(trial, part, tick))
        note_planted(counts, name, shown)
    return counts


def judged(trial: Trial, part: Part | None, tick: Tick) -> Evidence:
    """Evidence of a trial, which is told."""
    evidence = trial.evidence(part)
    tick()
    return evidence


def faults() -> dict[str, Part]:
    """What is planted: every bug of the catalogue that calls with a cache can show, and those here."""
    bugs = {name: bug.part for name, bug in catalogue().items()}
    hosted = {name: part for name, part in bugs.items() if issubclass(part, GPT | Cache | GrowingDecoder)}
    return hosted | {part.__name__: part for part in FAULTS}


def note_honest(counts: Counts, evidence: Sequence[Evidence]) -> None:
    """Count the verdicts on honest models, and keep their largest figures."""
    counts.honest.update(decide(one).kind for one in evidence)
    counts.trios.update(judge_trio(three).kind for three in trios(evidence))
    counts.by_oracle.update(by_oracle(three).kind for three in trios(evidence))
    for one in evidence:
        for name, value in figures(one).items():
            counts.largest_honest[name] = max(value, counts.largest_honest.get(name, 0.0))


def note_planted(counts: Counts, name: str, evidence: Sequence[Evidence]) -> None:
    """Count the verdicts on a fault, and keep its smallest figures."""
    counts.planted[name] = Counter(decide(one).kind for one in evidence)
    counts.planted_trios[name] = Counter(judge_trio(three).kind for three in trios(evidence))
    counts.planted_by_oracle[name] = Counter(by_oracle(three).kind for three in trios(evidence))
    for one in evidence:
        for figure, value in figures(one).items():
            counts.smallest_planted[figure] = min(value, counts.smallest_planted.get(figure, math.inf))


def trios(evidence: Sequence[Evidence]) -> list[Sequence[Evidence]]:
    """Three fresh models of one dtype at a time."""
    together = [[one for one in evidence if one.dtype == dtype] for dtype in DTYPES]
    return [some[i : i + MODELS] for some in together for i in range(0, len(some) - MODELS + 1, MODELS)]


def judge_trio(three: Sequence[Evidence]) -> Verdict:
    """The verdict on three fresh models."""
    return verdict_of([decide(one) for one in three])


def by_oracle(three: Sequence[Evidence]) -> Verdict:
    """The verdict where nothing but errors against float64 is known."""
    ratios = tuple(ratio for one in three for ratio in one.rho)
    gaps, noises = [one.gap or 0.0 for one in three], [one.noise or 0.0 for one in three]
    return decide(Evidence(three[0].dtype, gap=max(gaps), noise=max(noises), rho=ratios))


def figures(one: Evidence) -> dict[str, float]:
    """What thresholds are about."""
    gap64, dtype = one.gap64 or 0.0, str(one.dtype).removeprefix("torch.")
    return {
        "gap64": gap64,
        "noise64": one.noise64 or 0.0,
        "gap64 over noise64": gap64 / max(one.noise64 or 0.0, 2.0**-53),
        f"ratio, {dtype}": gap64 / max(one.gap or 0.0, one.floor),
        f"rho, {dtype}": max(one.rho, default=0.0),
        f"gap over noise, {dtype}": (one.gap or 0.0) / ((one.noise or 0.0) + one.floor),
    }


def draw_shape(randomness: random.Random) -> GPTConfig:
    """A tiny shape with odd widths among them."""
    heads = randomness.randint(1, 3)
    return GPTConfig(
        block_size=BLOCK_SIZE,
        vocab_size=randomness.randint(2, 40),
        n_layer=randomness.randint(1, 4),
        n_head=heads,
        n_embd=heads * randomness.randint(1, 17),
    )


def draw_trial(randomness: random.Random, shapes: Sequence[GPTConfig]) -> Trial:
    """A model with fresh weights, fresh tokens, and any cut of them with a past in it."""
    shape, dtype = randomness.choice(shapes), randomness.choice(DTYPES)
    generator = torch.Generator().manual_seed(randomness.getrandbits(48))
    length = randomness.randint(2, BLOCK_SIZE)
    tokens = torch.randint(shape.vocab_size, (randomness.randint(1, 2), length), generator=generator)
    std = None
    if randomness.random() >= LOUD:
        std = math.exp(randomness.uniform(math.log(QUIETEST), math.log(LOUDEST)))
    model = blank(shape, dtype)
    fill(model, std, generator)
    return Trial(model, tokens, draw_splits(randomness, length), randomness.random() < 0.5)


def draw_splits(randomness: random.Random, length: int) -> tuple[int, ...]:
    """At least two chunks, many of them of one token."""
    splits = [randomness.randint(1, length - 1)]
    while left := length - sum(splits):
        splits.append(randomness.choice([1, randomness.randint(1, left)]))
    return tuple(splits)


@lru_cache(maxsize=len(DTYPES) * SHAPES)
def blank(shape: GPTConfig, dtype: torch.dtype) -> GPT:
    """A model to be filled again and again."""
    return weights.empty_model(shape, dtype, "cpu").requires_grad_(False)


def fill(model: GPT, std: float | None, generator: torch.Generator) -> None:
    """Give a model fresh weights: of one std, or loud ones."""
    for module in model.modules():
        for parameter, mean, loud in weights.loudness(module):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(mean + (loud if std is None else std) * noise)


def report(counts: Counts, echo: Callable[[str], object]) -> int:
    """Print the counts, and give 1 if an honest model was called a bug or a planted fault was passed, else 0."""
    for name, value in vars(counts).items():
        echo(name.replace("_", " "))
        for key, what in cast("dict[object, object]", value).items():
            echo(f"    {key}: {shown(what)}")
    wrong = counts.honest[Kind.BUG] + sum(verdicts[kind] for verdicts in counts.planted.values() for kind in PASSES)
    echo(f"{counts.honest.total()} honest models, {wrong} wrong verdicts")
    return 1 if wrong else 0


def shown(what: object) -> str:
    """A count, a figure, or counts of kinds."""
    if isinstance(what, Counter):
        return ", ".join(f"{number} {kind}" for kind, number in cast("Counter[Kind]", what).most_common())
    return f"{what:.3g}" if isinstance(what, float) else str(what)
