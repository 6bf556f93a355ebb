"""Generation as transformers does it: `generate` with its own cache, in the ways that it has of filling one."""

import re
from collections.abc import Sequence
from typing import Any

import torch

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, prefill in chunks": {"prefill_chunk_size": 3},
    "beam search": {"num_beams": 2},
    "prompt lookup": {"prompt_lookup_num_tokens": 2, "max_matching_ngram_size": 2},
}
"""Ways to generate, each with what `generate` is told."""

ALONE = ("prompt lookup",)
"""Ways that take one row."""

STATIC = {"cache_implementation": "static", "disable_compile": True}

REFUSALS = re.compile(
    r"not support|only support|cannot be used|not compatible|incompatible|requires a cache", re.IGNORECASE
)
"""How `generate` says that it has no such way for a model."""


class Generation:
    """`generate` of a model. Rows are padded at the left, as its documentation asks for."""

    def __init__(self, model: Any, *, static: bool) -> None:
        self.model, self.options = model, STATIC if static else {}

    def batch(self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str) -> list[list[int]]:
        """Tokens that a way adds to each prompt, up to an end token. Raises `NotImplementedError` where it is none."""
        if way in ALONE:
            return [row for prompt in prompts for row in self.rows([prompt], new, end, way)]
        return self.rows(prompts, new, end, way)

    def uncached(self, prompt: Sequence[int], new: int, end: int, way: str) -> list[int] | None:
        """Tokens that a way adds to a prompt without a cache; None where it has to add those of greedy decoding."""
        if "num_beams" not in WAYS[way]:
            return None
        return self.rows([prompt], new, end, way, use_cache=False)[0]

    def rows(
        self, prompts: Sequence[Sequence[int]], new: int, end: int, way: str, *, use_cache: bool = True
    ) -> list[list[int]]:
        """One call of `generate`."""
        if not new:
            return [[] for _ in prompts]
        width = max(map(len, prompts))
        padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        options = WAYS[way] | (self.options if use_cache else {})
        device = self.model.device
        try:
            made = self.model.generate(
                torch.tensor(padded, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=new,
                do_sample=False,
                eos_token_id=None if end < 0 else end,
                pad_token_id=0,
                use_cache=use_cache,
                **options,
            )
        except (ValueError, NotImplementedError) as error:
            if REFUSALS.search(str(error)):
                raise NotImplementedError(str(error)) from error
            raise
        return [until(row, end) for row in made[:, width:].tolist()]


def until(tokens: list[int], end: int) -> list[int]:
    """Tokens up to the first end token, that included: behind it a row is filled up."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens
