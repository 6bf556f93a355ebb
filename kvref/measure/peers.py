"""Transformers' own `generate` with the weights of the reference: what its speed is compared with."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import torch

from kvref import weights
from kvref.gpt2 import GPT
from kvref.protocol import Tokens

Loop = Callable[[Tokens, int], list[list[int]]]
"""Greedy generation: a prompt, `batch new`, and how many tokens to add; the tokens added to each row."""

CACHES = ("dynamic", "static")
"""Kinds of cache that `generate` is asked for, by its own names."""


def transformers_peers(model: GPT) -> dict[str, Loop]:
    """A loop for each kind of cache, around one GPT-2 of transformers that has the same weights."""
    peer = same_weights(model)

    def loop(cache: str) -> Loop:
        def generate(prompt: Tokens, new: int) -> list[list[int]]:
            said: Any = peer.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                cache_implementation=cache,
                pad_token_id=0,
            )
            return said[:, prompt.size(1) :].tolist()

        return generate

    return {f"transformers {cache}": loop(cache) for cache in CACHES}


def same_weights(model: GPT) -> Any:
    """The same GPT-2 as transformers loads it from a checkpoint."""
    from transformers import GPT2LMHeadModel
    from transformers.utils import logging

    loader: Any = GPT2LMHeadModel
    dtype, device = model.transformer.wte.weight.dtype, model.transformer.wte.weight.device
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with TemporaryDirectory(prefix="kvref-") as directory:
            weights.save(model, directory)
            peer = loader.from_pretrained(directory, dtype=dtype)
    finally:
        if shown:
            logging.enable_progress_bar()
    return peer.to(device).eval()
