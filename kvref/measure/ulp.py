"""How often a change in the last place of one cached number is seen in the logits behind it."""

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from kvref.config import GPTConfig
from kvref.exactness import MODES, exact
from kvref.gpt2 import GPT
from kvref.weights import loud

SHAPE = GPTConfig(block_size=24, vocab_size=99, n_layer=2, n_head=2, n_embd=32)
PAST, LATER = 12, 8
"""Tokens in the cache when a number is changed, and tokens run behind it."""

INITS = ("loud", "0.2", "0.02")
"""Kvref's own weights, and normal ones of a standard deviation; 0.02 is GPT-2's own."""

CHANGES = 6
"""Numbers changed in each model, one at a time."""


@dataclass(frozen=True)
class Rate:
    """Of so many changes, how many moved any bit of a later logit."""

    mode: str
    dtype: torch.dtype
    init: str
    what: str
    seen: int
    changes: int


def measure_ulps(
    modes: Sequence[str] = tuple(MODES),
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.bfloat16, torch.float16, torch.float64),
    inits: Sequence[str] = INITS,
    models: int = 20,
) -> Iterator[Rate]:
    """Change one number of a key or value in the first layer, a unit in its last place, and look at what follows."""
    for mode, dtype, init, what in product(modes, dtypes, inits, ("keys", "values")):
        changed = [change(mode, model_of(init, seed, dtype), seed, what) for seed in range(models)]
        yield Rate(mode, dtype, init, what, sum(map(sum, changed)), CHANGES * models)


def change(mode: str, model: GPT, seed: int, what: str) -> list[bool]:
    """Whether each of some changes is seen."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SHAPE.vocab_size, (1, PAST + LATER), generator=generator)
    with torch.inference_mode(), exact(mode):
        want = model(tokens)[0][:, PAST:]
        return [
            not behind_a_change(model, tokens, random.Random(number), what).equal(want) for number in range(CHANGES)
        ]


def behind_a_change(model: GPT, tokens: Tensor, chance: random.Random, what: str) -> Tensor:
    """Logits of the later tokens, onto a past of which one number was changed."""
    _, cache = model(tokens[:, :PAST])
    rows = cache.keys_values(0)[what == "values"]
    place = 0, chance.randrange(SHAPE.n_head), chance.randrange(PAST), chance.randrange(SHAPE.head_dim)
    rows[place] = torch.nextafter(rows[place], torch.full((), torch.inf, dtype=rows.dtype))
    return model(tokens[:, PAST:], cache)[0]


def model_of(init: str, seed: int, dtype: torch.dtype) -> GPT:
    """A model with loud weights, or with normal ones, no biases and plain norms."""
    model = loud(SHAPE, seed, dtype)
    if init == "loud":
        return model
    model, generator = deepcopy(model), torch.Generator().manual_seed(seed)
    for module in model.modules():
        match module:
            case nn.Linear() | nn.Embedding():
                noise = torch.randn(module.weight.shape, generator=generator, dtype=torch.float64)
                module.weight.copy_(noise * float(init))
            case nn.LayerNorm():
                module.weight.fill_(1.0)
            case _:
                continue
        if isinstance(bias := getattr(module, "bias", None), Tensor):
            bias.zero_()
    return model
