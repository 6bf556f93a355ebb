"""Loops around the model: the last token sampled belongs to the sequence, but no pass has run it yet."""

from collections.abc import Callable
from itertools import pairwise

from kvref.capability import Capability
from kvref.decoder import Decoder
from kvref.finding import expect, expect_passes, expect_same
from kvref.generate import SeededSampler, generate_naive
from kvref.law import EQUALITY, law, saw
from kvref.operations import Extend
from kvref.protocol import Sampler
from kvref.schedule import Schedule
from kvref.strategies import conversations, prompts
from kvref.trace import Ledger, as_tensor

NEW, DRAFTED, REPLY = 6, 10, 3
"""Tokens generated from a prompt, by speculation (three rounds of it or more), and for each turn of a conversation."""

SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "greedy": lambda: SeededSampler(),
    "sampled": lambda: SeededSampler(temperature=1.0, seed=1),
    "the best of a few": lambda: SeededSampler(temperature=0.7, top_k=3, seed=1),
}


@law(
    given=prompts(NEW),
    needs=(Capability.LOSSLESS,),
    must_see=tuple(SAMPLERS),
)
def test_naive_and_cached_generation_give_the_same_tokens(decoder: Decoder, schedule: Schedule) -> None:
    """With one sampler and one seed, generation with a cache gives the tokens that it gives without.

    Greedy text alone is a weak check, for many a wrong logit leaves the largest in place; drawn tokens move with all.
    Redundant on the catalogue, it stays since the loop may be the decoder's own, with a sampler of chance, where every
    logit counts.
    """
    prompt = as_tensor(schedule.contents[-1][0].rows, decoder)
    new = min(NEW, decoder.block_size - prompt.size(1))
    name = list(SAMPLERS)[int(prompt.sum()) % len(SAMPLERS)]  # as good as drawn, and the same when it is run again
    naive = generate_naive(decoder, prompt, new, SAMPLERS[name]())
    cached = decoder.generate(prompt, new, SAMPLERS[name]())
    expect(cached == naive, f"{name}: the tokens are {cached} with a cache and {naive} without", 1)
    if new > 1:
        saw(name)


@law(
    given=prompts(DRAFTED),
    needs=(Capability.SPECULATE, Capability.BATCH, Capability.LOSSLESS),
    must_see=("drafts accepted in part", "rows that accept different numbers of tokens"),
)
def test_speculation_gives_the_greedy_tokens_and_runs_what_it_drafts(decoder: Decoder, schedule: Schedule) -> None:
    """Whatever the drafts are, speculative decoding gives the tokens of greedy decoding.

    Each round runs, for each row, its draft and the one token before it; a token that was accepted is never run again.
    As many tokens of a draft are accepted as are right in every row, or all these passes would be for nothing. Source:
    Leviathan et al., arXiv:2211.17192.
    """
    prompt = as_tensor(schedule.contents[-1][0].rows, decoder)
    rows, length = prompt.shape
    new = min(DRAFTED, decoder.block_size - length)
    naive = generate_naive(decoder, prompt, new, SeededSampler())
    passes, agreed = rows * length if new else 0, dict[int, set[int]]()
    rounds = list[dict[int, tuple[int, int]]]()

    def propose(row: int, text: list[int], size: int) -> list[int]:
        nonlocal passes
        passes += 1 + size
        begun = len(text) - length
        if not rounds or row in rounds[-1]:
            rounds.append({})
        right = naive[row][begun : begun + size]
        # As good as drawn: drafts go wrong at another place in each row and round, and some nowhere.
        wrong = (sum(text[:length]) + row + begun) % (size + 1)
        agreed.setdefault(begun, set()).add(wrong)
        rounds[-1][row] = begun, wrong
        if 0 < wrong < size:
            saw("drafts accepted in part")
        return [token if i != wrong else (token + 1) % decoder.vocab_size for i, token in enumerate(right)]

    with Ledger(decoder) as ledger:
        speculated = decoder.speculate(prompt, new, propose)
    expect(speculated == naive, f"speculation gives {speculated}, but greedy decoding {naive}", 1)
    for before, after in pairwise(rounds):
        due = 1 + min(right for _, right in before.values())
        grown = min((after[row][0] - before[row][0] for row in after.keys() & before.keys()), default=due)
        expect(grown >= due, f"a round whose drafts have {due - 1} right tokens in each row adds {grown} to one", 1)
    if Capability.LAYERS in decoder.capabilities:
        expect_passes(ledger, passes, f"speculation from {length} tokens, with its drafts,", 1)
    if any(len(numbers) > 1 for numbers in agreed.values()):
        saw("rows that accept different numbers of tokens")


@law(
    given=conversations(REPLY),
    needs=(Capability.LOSSLESS,),
    must_see=("a first turn", "a turn after a reply"),
    builds_on=(EQUALITY,),
)
def test_a_conversation_gives_what_its_whole_text_gives(decoder: Decoder, schedule: Schedule) -> None:
    """Each turn gives the logits of an uncached pass over the whole conversation, and the reply that follows from them.

    The last token of a reply was sampled but never run. Fed twice, or not at all, it shifts every later position.
    Redundant on the catalogue, it stays since a conversation may be the decoder's own, where no operation of the cache
    is to be seen.
    """
    history: list[int] = []
    session = decoder.session()
    for index, turn in turns(schedule):
        logits = session.feed(as_tensor([turn], decoder))
        saw("a turn after a reply" if history else "a first turn")
        history += turn
        new = min(REPLY, decoder.block_size - len(history))
        want = decoder.full(as_tensor([history], decoder))[:, -1:]
        expect_same(logits[:, None], want, "in one uncached pass", decoder.lens, len(history) - 1, index)
        answer = generate_naive(decoder, as_tensor([history], decoder), new, SeededSampler())
        reply = session.reply(new, SeededSampler())
        expect(reply == answer, f"the reply to {history} is {reply}, but {answer} without a cache", index)
        history += reply[0]


@law(given=conversations(REPLY), needs=(Capability.LAYERS,), must_see=("a first turn", "a turn after a reply"))
def test_a_conversation_runs_each_token_once(decoder: Decoder, schedule: Schedule) -> None:
    """When a turn has been fed, every token of the conversation so far, replies included, has run once and no more.

    Logits cannot tell a session that runs the whole text again at every turn; the count of passes can.
    """
    length = 0
    with Ledger(decoder) as ledger:
        session = decoder.session()
        for index, turn in turns(schedule):
            session.feed(as_tensor([turn], decoder))
            saw("a turn after a reply" if length else "a first turn")
            length += len(turn)
            expect_passes(ledger, length, f"a conversation of {length} tokens", index)
            length += len(session.reply(min(REPLY, decoder.block_size - length), SeededSampler())[0])


def turns(schedule: Schedule) -> list[tuple[int, tuple[int, ...]]]:
    """Tokens of each turn, with the index of its step."""
    return [(index, op.tokens[0]) for index, op in enumerate(schedule.ops) if isinstance(op, Extend)]
