"""A file of a user's: decoders in every form that is right, and in many that are not."""

MINE = """
import random
import torch
from torch import nn
from kvref.cache import GrowingCache
from kvref.config import GPTConfig
from kvref.gpt2 import GPT
from kvref.weights import loud

CONFIG = GPTConfig(block_size=10, vocab_size=300, n_layer=2, n_head=2, n_embd=8)

def module():
    return loud(CONFIG)

class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.config = loud(CONFIG), CONFIG
    def forward(self, tokens, cache=None):
        logits, cache = self.inner(tokens, cache)
        return logits + (cache.length > 3 and tokens.size(1) == 1), cache

class Duck:
    vocab_size, block_size = 300, 10
    def full(self, tokens): return loud(CONFIG, 0, torch.float64)(tokens)[0]
    def start(self, batch, capacity): return ()
    def step(self, cache, tokens):
        logits, cache = loud(CONFIG, 0, torch.float64)(tokens, cache or GrowingCache())
        return logits, cache
    def length(self, cache): return cache.length if cache else 0

class Subclass(GPT):
    def position_ids(self, past, new, padding): return torch.arange(new)

class Sizeless(nn.Module):
    pass

class Misshapen(Duck):
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return logits[:, -1], cache

def broken(): raise ValueError("no weights")

def leave(): raise SystemExit(0)

class NotAPair(Duck):
    def step(self, cache, tokens): return super().step(cache, tokens)[0]

class Stop(BaseException): pass

def stops(): raise Stop("no more")

class Stops(Duck):
    def step(self, cache, tokens): raise Stop("no more")

class Wordless(Exception):
    def __str__(self): raise ValueError("none")

class RaisesWordless(Duck):
    def step(self, cache, tokens): raise Wordless

class Sparse(Duck):
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return logits.to_sparse(), cache

class NoNumbers(Duck):
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return logits.to("meta"), cache

class HalfLength(Duck):
    def length(self, cache): return torch.tensor(0.5)

class UnlikeKeys(Duck):
    n_layer = 2
    def keys_values(self, cache, layer): return [torch.zeros(1, 1, 1, 1).numpy()[..., ::-1]] * 2

class AnswersInOneBuffer(Duck):
    # as a captured CUDA graph does
    buffer = torch.zeros(64, 10, 300, dtype=torch.float64)
    def full(self, tokens): return self.answer(super().full(tokens))
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return self.answer(logits), cache
    def answer(self, logits):
        view = self.buffer[: logits.size(0), : logits.size(1)]
        return view.copy_(logits)

class ManyRows(Duck):
    max_batch = "4"

class NoRows(Duck):
    max_batch = 0

class Allocates(Duck):
    preallocates = torch.tensor([1, 2])

class MoodyFork(Duck):
    @property
    def fork(self): raise RuntimeError("not today")

class Leaves(Duck):
    def step(self, cache, tokens): raise SystemExit(0)

class RaisesOnce(Duck):
    steps = 0
    def step(self, cache, tokens):
        self.steps += 1
        if self.steps == 12: raise RuntimeError("only once")
        return super().step(cache, tokens)

class OddLength(Duck):
    def length(self, cache): return "long"

class FlatKeys(Duck):
    n_layer = 2
    def keys_values(self, cache, layer): return torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)

class NoKeys(FlatKeys):
    def keys_values(self, cache, layer): return None

class NoTensors(FlatKeys):
    n_kv_head, head_dim, dtype = 2, 4, torch.float64
    def tensors(self, cache): return None

class NoSession(Duck):
    def session(self): return None

class BadSession(Duck):
    def session(self): return self
    def feed(self, tokens): raise ValueError("no turn")

class HasLayers(nn.Module):
    vocab_size, block_size = 300, 10
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity()])
    full, start, step = Duck.full, Duck.start, Duck.step
    step = lambda self, cache, tokens: loud(CONFIG, 0, torch.float64)(tokens, cache or GrowingCache())

class Padded(Duck):
    def full(self, tokens): return self.pad(super().full(tokens))
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return self.pad(logits), cache
    def pad(self, logits): return torch.cat([logits[..., :-2], torch.full_like(logits[..., -2:], -torch.inf)], -1)

SMALL = GPTConfig(block_size=3, vocab_size=300, n_layer=1, n_head=1, n_embd=4)

class BlockOf3(Duck):
    block_size = 3
    def full(self, tokens): return loud(SMALL, 0, torch.float64)(tokens)[0]
    def step(self, cache, tokens): return loud(SMALL, 0, torch.float64)(tokens, cache or GrowingCache())

class OneRow(Duck):
    max_batch = 1
    def start(self, batch, capacity):
        assert batch == 1
        return ()

class OneRowForAll(Duck):
    vocab_size = 17
    model = loud(GPTConfig(block_size=10, vocab_size=17, n_layer=2, n_head=2, n_embd=8), 0, torch.float64)
    def full(self, tokens): return self.model(tokens)[0]
    def step(self, cache, tokens): return self.model(tokens[:1].expand_as(tokens), cache or GrowingCache())

class DropsWhatDoesNotFit(Duck):
    def step(self, cache, tokens):
        past = cache.length if cache else 0
        if past == 10: return torch.zeros(len(tokens), 0, 300, dtype=torch.float64), cache
        return super().step(cache, tokens[:, : 10 - past])

class AnswersForTheFirstRow(Duck):
    def generate(self, prompt, new, sampler):
        from kvref.generate import generate_cached
        return generate_cached(self, prompt, new, sampler)[:1] * len(prompt)

class ForgetsTheFourth(Duck):
    def generate(self, prompt, new, sampler):
        from kvref.generate import generate_cached
        return [row[:3] + [0] * (new - 3) for row in generate_cached(self, prompt, new, sampler)]

class GivesATensor(Duck):
    def generate(self, prompt, new, sampler):
        from kvref.generate import generate_cached
        return torch.tensor(generate_cached(self, prompt, new, sampler)).view(len(prompt), -1)

class GivesWords(Duck):
    def generate(self, prompt, new, sampler): return [["the"] * new for _ in prompt]

class GivesHalves(Duck):
    def generate(self, prompt, new, sampler): return [[0.5] * new for _ in prompt]

class GivesNothing(Duck):
    def speculate(self, prompt, new, propose): return None

class NoModules(Duck):
    def layers(self): return []

class Nowhere(Duck):
    device = "nonsense"

class Fickle(Duck):
    def step(self, cache, tokens):
        logits, cache = super().step(cache, tokens)
        return logits + (random.random() < 0.1), cache

class Whole(Duck):
    def full(self, tokens): return super().full(tokens).long()

class NoVocabulary(Duck):
    vocab_size = 0

class WordyBlock(Duck):
    block_size = "long"

class Moody(Duck):
    @property
    def vocab_size(self): raise RuntimeError("not today")

class KeysOfNoLayer(Duck):
    def keys_values(self, cache, layer): return None

class OwnArguments(GPT):
    def __init__(self): pass

class Buffered(GPT):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("causal", torch.ones(config.block_size, config.block_size).tril().bool())
    def causal_mask(self, past, new): return self.causal[past : past + new, : past + new]
"""
