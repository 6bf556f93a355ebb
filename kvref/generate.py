"""Generation, twice: with the whole sequence run again for each token, and with a cache.

Given the same sampler and seed the two give the same tokens. The cached loop has two traps of its own, both about the
last token: it was sampled, but no pass has run it yet. Feed it twice, or never, and every later position is off by one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kvref.errors import PromptError
from kvref.protocol import Batched, Implementation, Logits, Sampler, Tokens


class SeededSampler:
    """Draws the next tokens from logits: greedily at temperature 0, else by chance that `seed` alone decides.

    `top_k` keeps the k largest logits. Raises `PromptError` for settings outside their range.
    """

    def __init__(self, temperature: float = 0.0, top_k: int | None = None, seed: int = 0) -> None:
        if temperature < 0:
            raise PromptError(f"temperature is {temperature}; give 0 for greedy, or a positive number")
        if top_k is not None and top_k < 1:
            raise PromptError(f"top_k is {top_k}; it must be at least 1")
        self.temperature = temperature
        self.top_k = top_k
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits: Float[Tensor, "batch vocab_size"]) -> Int[Tensor, " batch"]:
        """Next token of each row."""
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        # What is not finite is for the laws to find; here it must only not stop the loop.
        scaled = logits.double().cpu().nan_to_num(0.0, 1e30, -1e30) / self.temperature
        if self.top_k is not None and self.top_k < scaled.size(-1):
            kept = scaled.topk(self.top_k, dim=-1)
            scaled = torch.full_like(scaled, -torch.inf).scatter(-1, kept.indices, kept.values)
        drawn = torch.multinomial(scaled.softmax(dim=-1), 1, generator=self.generator)
        return drawn.squeeze(-1).to(logits.device)


def generate_naive(decoder: Implementation, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
    """Tokens added to the prompt, each by one uncached pass over everything before it.

    Raises `PromptError` where the sequence would outgrow the model, before any pass is run.
    """
    require_room(decoder, prompt, max_new_tokens)
    tokens = prompt
    for _ in range(max_new_tokens):
        logits = decoder.full(tokens)
        tokens = torch.cat([tokens, sampler(logits[:, -1])[:, None]], dim=1)
    return as_lists(tokens[:, prompt.size(1) :])


def generate_cached(decoder: Implementation, prompt: Tokens, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
    """Tokens added to the prompt, by one prefill and then one pass over one token for each.

    Raises `PromptError` where the sequence would outgrow the model, before any pass is run.
    """
    require_room(decoder, prompt, max_new_tokens)
    cache = decoder.start(prompt.size(0), None)
    new, generated = prompt, list[Tensor]()
    for _ in range(max_new_tokens):
        logits, cache = decoder.step(cache, new)
        new = sampler(logits[:, -1])[:, None]
        generated.append(new)
    return as_lists(torch.cat(generated, dim=1)) if generated else [[] for _ in range(prompt.size(0))]


class BatchGeneration:
    """Greedy generation for prompts of different lengths, each until its end token.

    Prompts are padded at the left. A row that has met its end leaves the batch, so that nothing more is written for it.
    """

    def __init__(self, decoder: Batched, end: int | None = None) -> None:
        self.decoder, self.end = decoder, end

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
        """Tokens added to each prompt, the end token included.

        Raises `PromptError` where a sequence would outgrow the model, before any pass is run.
        """
        width = max(map(len, prompts))
        tokens = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        batch = torch.tensor(tokens, device=self.decoder.device)
        require_room(self.decoder, batch, max_new_tokens)
        answers: list[list[int]] = [[] for _ in prompts]
        if not max_new_tokens:
            return answers
        padding = [width - len(prompt) for prompt in prompts]
        logits, cache = self.decoder.prefill(self.decoder.start(len(prompts), None), batch, padding)
        last, live = self.last(logits, padding), list(range(len(prompts)))
        while live:
            for row, token in zip(live, last.argmax(dim=-1), strict=True):
                answers[row].append(int(token))
            going_on = [row for row in live if not self.finished(answers[row], max_new_tokens)]
            if going_on and going_on != live:
                cache = self.decoder.reorder(cache, [live.index(row) for row in going_on])
            if live := going_on:
                logits, cache = self.decoder.step(cache, batch.new_tensor([answers[row][-1:] for row in live]))
                last = logits[:, -1]
        return answers

    def last(self, logits: Logits, padding: Sequence[int]) -> Float[Tensor, "batch vocab_size"]:
        """Logits of each prompt's last token: the last column, since padding is at the left."""
        del padding
        return logits[:, -1]

    def finished(self, answer: Sequence[int], max_new_tokens: int) -> bool:
        """Whether a row has met its end."""
        return answer[-1] == self.end or len(answer) == max_new_tokens


class Session:
    """A conversation of one row over one cache: each turn runs the tokens that are new, and no other.

    `pending` are the tokens that belong to the conversation but not to the cache yet: after a reply, its last token.
    """

    def __init__(self, decoder: Implementation) -> None:
        self.decoder = decoder
        self.cache: Any = decoder.start(1, None)
        self.pending: list[int] = []
        self.logits: Float[Tensor, "batch vocab_size"] | None = None

    def feed(self, tokens: Tokens) -> Float[Tensor, "batch vocab_size"]:
        """Run the new tokens, behind those that are still pending, and give the logits of the last one."""
        new = torch.cat([tokens.new_tensor([self.pending], dtype=tokens.dtype), tokens], dim=1)
        logits, self.cache = self.decoder.step(self.cache, new)
        self.pending = []
        self.logits = last = logits[:, -1]
        return last

    def reply(self, max_new_tokens: int, sampler: Sampler) -> list[list[int]]:
        """Sample the answer to what was fed. Its last token stays pending, since no pass has run it."""
        if self.logits is None:
            raise PromptError("nothing was fed yet: a reply needs a turn to reply to")
        answer: list[int] = []
        for _ in range(max_new_tokens):
            if self.pending:
                self.feed(torch.empty(1, 0, dtype=torch.long, device=self.logits.device))
            self.pending = [int(token) for token in sampler(self.logits)]
            answer += self.pending
        return [answer]


def as_lists(tokens: Tokens) -> list[list[int]]:
    """Tokens as plain numbers."""
    return [[int(token) for token in row] for row in tokens.cpu()]


def require_room(decoder: Implementation, prompt: Tokens, max_new_tokens: int) -> None:
    """Refuse a prompt that is empty, or that with its continuation is longer than the context."""
    length, limit = prompt.size(1), decoder.block_size
    if length < 1:
        raise PromptError("the prompt has no token; start with the end-of-text token, as GPT-2 was trained")
    if length > limit:
        raise PromptError(f"the prompt has {length} tokens and the context {limit}: shorten the prompt")
    if length + max_new_tokens > limit:
        raise PromptError(
            f"{length} prompt tokens and {max_new_tokens} new ones exceed the context of {limit}: "
            f"ask for at most {limit - length}"
        )
