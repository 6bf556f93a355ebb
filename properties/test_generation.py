"""Loops around the model: the last token sampled belongs to the sequence, but no pass has run it yet."""

from collections.abc import Callable

from kvref.decoder import Decoder
from kvref.finding import expect, expect_same
from kvref.generate import SeededSampler, generate_naive
from kvref.law import law, saw
from kvref.protocol import Sampler
from kvref.schedule import Extend, Schedule
from kvref.strategies import conversations
from kvref.trace import Ledger, as_tensor

REPLY = 3
"""Tokens generated for each turn."""

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "greedy": lambda: SeededSampler(),
    "sampled": lambda: SeededSampler(temperature=1.0, seed=1),
    "the best of a few": lambda: SeededSampler(temperature=0.7, top_k=3, seed=1),
}


@law(given=conversations(REPLY), must_see=tuple(SAMPLERS))
def test_naive_and_cached_generation_give_the_same_tokens(decoder: Decoder, schedule: Schedule) -> None:
    """With one sampler and one seed, generation with a cache gives the tokens that it gives without.

    Greedy text alone is a weak check, for many a wrong logit leaves the largest in place; drawn tokens move with all.
    """
    prompt = as_tensor([next(op.tokens[0] for op in schedule.ops if isinstance(op, Extend))], decoder)
    for name, sampler in SAMPLERS.items():
        naive = generate_naive(decoder, prompt, REPLY, sampler())
        cached = decoder.generate(prompt, REPLY, sampler())
        expect(cached == naive, f"{name}: the tokens are {cached} with a cache and {naive} without")
        saw(name)


@law(given=conversations(REPLY), must_see=("a first turn", "a turn after a reply"))
def test_a_conversation_runs_each_token_once(decoder: Decoder, schedule: Schedule) -> None:
    """Each turn gives the logits of an uncached pass over the whole conversation, every token of which ran just once.

    The last token of a reply was sampled but never run. Fed twice, or not at all, it shifts every later position.
    """
    history: list[int] = []
    turns = [op.tokens[0] for op in schedule.ops if isinstance(op, Extend)]
    with Ledger(decoder) as ledger:
        session = decoder.session()
        for turn in turns:
            logits = session.feed(as_tensor([turn], decoder))
            saw("a turn after a reply" if history else "a first turn")
            history += turn
            runs = dict(ledger.forwarded)
            expect(
                set(runs.values()) <= {len(history)},
                f"{len(history)} tokens so far took {runs} passes in the layers",
            )
            with ledger.aside():
                want = decoder.full(as_tensor([history], decoder))[:, -1:]
                answer = generate_naive(decoder, as_tensor([history], decoder), REPLY, SeededSampler())
            expect_same(logits[:, None], want, "in one uncached pass", decoder.lens, len(history) - 1)
            reply = session.reply(REPLY, SeededSampler())
            expect(reply == answer, f"the reply to {history} is {reply} and {answer} without a cache")
            history += reply[0]
