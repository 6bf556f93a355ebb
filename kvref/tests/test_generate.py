"""Generation loops and sessions."""

import pytest
import torch

from kvref.errors import PromptError
from kvref.generate import BatchGeneration, SeededSampler, Session, generate_cached, generate_naive
from kvref.speculate import Speculation
from kvref.targets.reference import DECODERS, GrowingDecoder
from kvref.tests.helpers import tiny

PROMPT = torch.tensor([[1, 2, 3], [6, 0, 4]])


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(("temperature", "top_k"), [(0.0, None), (1.0, None), (0.5, 2), (1.0, 99)])
def test_naive_and_cached_generation_agree_for_a_batch(kind: str, temperature: float, top_k: int | None) -> None:
    decoder = DECODERS[kind](tiny())
    with torch.no_grad():
        naive = generate_naive(decoder, PROMPT, 5, SeededSampler(temperature, top_k, seed=7))
        cached = generate_cached(decoder, PROMPT, 5, SeededSampler(temperature, top_k, seed=7))
    assert naive == cached
    assert [len(row) for row in naive] == [5, 5]


def test_no_new_tokens_are_no_tokens() -> None:
    decoder = GrowingDecoder(tiny())
    assert generate_cached(decoder, PROMPT, 0, SeededSampler()) == [[], []]
    assert generate_naive(decoder, PROMPT, 0, SeededSampler()) == [[], []]


def naive(decoder: GrowingDecoder, row: list[int], new: int) -> list[int]:
    return generate_naive(decoder, torch.tensor([row]), new, SeededSampler())[0]


@pytest.mark.parametrize("kind", DECODERS)
def test_rows_of_a_batch_end_where_each_ends_alone(kind: str) -> None:
    decoder = DECODERS[kind](tiny())
    prompts = [[1, 2, 3], [6], [0, 4]]
    with torch.no_grad():
        alone = [naive(decoder, row, 5) for row in prompts]
        assert BatchGeneration(decoder).generate(prompts, 5) == alone
        for end in {token for row in alone for token in row}:
            want = [row[: row.index(end) + 1] if end in row else row for row in alone]
            assert BatchGeneration(decoder, end).generate(prompts, 5) == want
        assert BatchGeneration(decoder).generate(prompts, 0) == [[], [], []]


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("right", [True, False])
def test_speculation_gives_the_greedy_tokens_in_as_many_passes_as_its_drafts_deserve(kind: str, right: bool) -> None:
    decoder = DECODERS[kind](tiny())
    with torch.no_grad():
        want = generate_naive(decoder, PROMPT, 5, SeededSampler())
        rounds: list[int] = []

        def propose(row: int, text: list[int], size: int) -> list[int]:
            rounds.append(row)
            draft = want[row][len(text) - 3 :][:size]
            return draft if right else [(token + 1) % decoder.vocab_size for token in draft]

        assert Speculation(decoder, propose).generate(PROMPT, 5) == want
        assert Speculation(decoder, propose).generate(PROMPT, 0) == [[], []]
    assert rounds.count(0) == (1 if right else 4)


def test_the_seed_decides() -> None:
    logits = torch.zeros(1, 1000)
    assert SeededSampler(1.0, seed=1)(logits) == SeededSampler(1.0, seed=1)(logits)
    assert SeededSampler(1.0, seed=1)(logits) != SeededSampler(1.0, seed=2)(logits)


def test_top_k_draws_from_the_largest() -> None:
    sampler = SeededSampler(temperature=5.0, top_k=2)
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    assert {int(sampler(logits)) for _ in range(50)} == {1, 3}


@pytest.mark.parametrize(
    ("prompt", "new", "message"),
    [
        (torch.zeros(1, 0, dtype=torch.long), 1, "no token; start with the end-of-text token"),
        (torch.zeros(1, 9, dtype=torch.long), 1, "9 tokens and the context 8: shorten the prompt"),
        (torch.zeros(1, 6, dtype=torch.long), 3, "ask for at most 2"),
    ],
)
def test_what_does_not_fit_is_refused(prompt: torch.Tensor, new: int, message: str) -> None:
    for generate in (generate_naive, generate_cached):
        with pytest.raises(PromptError, match=message):
            generate(GrowingDecoder(tiny()), prompt, new, SeededSampler())


@pytest.mark.parametrize(("temperature", "top_k"), [(-1.0, None), (1.0, 0)])
def test_a_sampler_out_of_range_is_refused(temperature: float, top_k: int | None) -> None:
    with pytest.raises(PromptError, match=r"give 0 for greedy|at least 1"):
        SeededSampler(temperature, top_k)


def test_a_session_keeps_the_last_sampled_token_until_it_is_run() -> None:
    with torch.no_grad():
        session = Session(GrowingDecoder(tiny()))
        session.feed(torch.tensor([[1, 2]]))
        (reply,) = session.reply(2, SeededSampler())
        assert session.pending == reply[-1:]
        assert session.cache.length == 3
        session.feed(torch.tensor([[4]]))
        assert session.cache.length == 5


def test_a_session_has_nothing_to_reply_to_before_it_is_fed() -> None:
    with pytest.raises(PromptError, match="nothing was fed yet"):
        Session(GrowingDecoder(tiny())).reply(1, SeededSampler())
