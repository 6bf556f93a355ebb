"""Speculative decoding, greedy: one pass checks a whole draft, and what is wrong in it is cropped again.

Leviathan, Kalman and Matias, *Fast Inference from Transformers via Speculative Decoding*, arXiv:2211.17192. The text is
the one that greedy decoding gives, whatever the drafts are; they only decide how many passes it takes. Each row accepts
as much of its draft as it likes, so that after every pass the rows have lengths of their own.
"""

from collections.abc import Callable
from typing import Any

import torch

from kvref.generate import as_lists, require_room
from kvref.protocol import Speculator, Tokens

Propose = Callable[[int, list[int], int], list[int]]
"""A draft: from the number of a row, its text so far, and how many tokens at most."""

DRAFT = 4
"""Tokens of a draft at most."""


class Speculation:
    """Greedy generation in which `propose` guesses what comes next."""

    def __init__(self, decoder: Speculator, propose: Propose) -> None:
        self.decoder, self.propose = decoder, propose

    def generate(self, prompt: Tokens, max_new_tokens: int) -> list[list[int]]:
        """Tokens added to each row of the prompt.

        Raises `PromptError` where the sequence would outgrow the model, before any pass is run.
        """
        require_room(self.decoder, prompt, max_new_tokens)
        if not max_new_tokens:
            return [[] for _ in prompt]
        texts, whole = as_lists(prompt), prompt.size(1) + max_new_tokens
        logits, cache = self.decoder.step(self.decoder.start(len(texts), None), prompt)
        for text, (token,) in zip(texts, as_lists(logits[:, -1:].argmax(dim=-1)), strict=True):
            text.append(token)
        live = [row for row in range(len(texts)) if len(texts[row]) < whole]
        while live:
            cache = self.check(cache, live, texts, whole)
            going_on = [row for row in live if len(texts[row]) < whole]
            if going_on:
                # First leave, then crop: room that only complete rows took is free again.
                cache = self.leave(cache, live, going_on)
                cache = self.roll_back(cache, [self.cached(texts[row]) for row in going_on])
            live = going_on
        return [text[prompt.size(1) :] for text in texts]

    def check(self, cache: Any, live: list[int], texts: list[list[int]], whole: int) -> Any:
        """Draft for each live row, check all drafts in one pass, and write down what is right and one token more.

        So a draft may be no longer than what is missing of the longest row, less that token. The cache comes back with
        all drafts in it.
        """
        size = min(DRAFT, whole - 1 - max(len(texts[row]) for row in live))
        drafts = [self.propose(row, texts[row], size) for row in live]
        pending = [[texts[row][-1], *draft] for row, draft in zip(live, drafts, strict=True)]
        logits, cache = self.decoder.step(cache, torch.tensor(pending, device=self.decoder.device))
        for row, draft, choice in zip(live, drafts, as_lists(logits.argmax(dim=-1)), strict=True):
            texts[row] += choice[: self.accepted(draft, choice) + 1]
        return cache

    def accepted(self, draft: list[int], choice: list[int]) -> int:
        """How many tokens of a draft are those that the model itself would have chosen, from the first on."""
        return next((i for i, token in enumerate(draft) if token != choice[i]), len(draft))

    def cached(self, text: list[int]) -> int:
        """Tokens of a text that belong in the cache: all but the last, which was chosen, and which no pass has run."""
        return len(text) - 1

    def roll_back(self, cache: Any, lengths: list[int]) -> Any:
        """Crop each row to what it has accepted."""
        if len(set(lengths)) == 1:
            return self.decoder.crop(cache, lengths[0])
        return self.decoder.crop_rows(cache, lengths)

    def leave(self, cache: Any, live: list[int], going_on: list[int]) -> Any:
        """Let the rows that are complete leave the batch; the others move up."""
        return cache if going_on == live else self.decoder.reorder(cache, [live.index(row) for row in going_on])
