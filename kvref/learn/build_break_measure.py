# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# ruff: noqa: D100, D102, ARG002, E402 - cells are read one by one, and import what they need
# %% [markdown]
# # Build it, break it, measure it
#
# A decoder writes one token at a time. This notebook builds the cache that makes this affordable, breaks it in the
# three ways in which it is broken most often, and measures what it buys. All is tiny, and runs on a CPU in seconds.

# %%
import torch

import kvref
from kvref.config import GPTConfig
from kvref.gpt2 import GPT
from kvref.weights import loud

config = GPTConfig(block_size=64, vocab_size=257, n_layer=2, n_head=2, n_embd=16)
model = loud(config)  # random weights, large enough that no mistake hides
prompt = torch.tensor([list(b"The cache is")])

# %% [markdown]
# ## A loop that forgets that it is one
#
# Without a cache, every new token runs all tokens before it again. Count how many tokens go through the model.

# %%
passes = 0
tokens = prompt
with torch.inference_mode():
    for _ in range(20):
        logits, _ = model(tokens)
        passes += tokens.size(1)
        tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
naive = tokens
print(f"{passes} token passes for 20 tokens behind {prompt.size(1)}")

# %% [markdown]
# ## Three of each token, and two that are kept
#
# Each layer makes three vectors of a token: a query, a key and a value. Follow them into the first layer. A token asks
# with its query, once, in its own pass; its key and its value answer every token that comes later.

# %%
from kvref.measure import counted, formulas

block = model.transformer.h[0]
with torch.inference_mode():
    x = model.transformer.wte(prompt) + model.transformer.wpe(torch.arange(prompt.size(1)))
    q, k, v = block.attn.c_attn(block.ln_1(x)).split(block.attn.widths, dim=-1)
print("of 12 tokens:", *(f"{name} {tuple(part.shape)}" for name, part in (("q", q), ("k", k), ("v", v))))
for way, cached in (("naive", False), ("cached", True)):
    first = counted.generated(12, 1, cached=cached)[1][0]
    print(f"{way}, 12 tokens, the first of them: computed {first.computed}, q read {first.query}, k read {first.key}")

# %% [markdown]
# ## Why they may be kept
#
# Attention is causal: a token's keys and values are made from it and from what comes before it, so nothing that comes
# later changes them. Run half of the prompt and all of it, and compare the keys of the last layer.

# %%
with torch.inference_mode(), kvref.exact():
    _, short = model(prompt[:, :6])
    _, long = model(prompt)
keys_of_short, keys_of_long = short.keys_values(1)[0], long.keys_values(1)[0]
print("the first six keys are the same bits:", torch.equal(keys_of_short, keys_of_long[:, :, :6]))

# %% [markdown]
# ## Build it: what a cache is
#
# For each layer it takes the new keys and values, puts them behind the old ones, and gives all of them to attention.
# `length` is where the next token stands; it moves when the pass is over, in every layer at once.


# %%
class Kept:
    """Keys and values of the past, layer by layer."""

    padding = None  # rows of one length alone

    def __init__(self):
        self.length, self.rows = 0, {}

    def reserve(self, new):
        """Any number fits."""

    def append(self, layer, keys, values):
        if layer in self.rows:
            past_keys, past_values = self.rows[layer]
            keys, values = torch.cat([past_keys, keys], dim=2), torch.cat([past_values, values], dim=2)
        self.rows[layer] = keys, values
        return keys, values

    def commit(self, new):
        self.length += new


# %% [markdown]
# ## Build it: the loop
#
# One pass over the prompt fills the cache, and every step after it runs one token. The token that was sampled last has
# not been run yet: it is what the next step begins with.

# %%
passes = 0
cache, new, tokens = Kept(), prompt, prompt
with torch.inference_mode():
    for _ in range(20):
        logits, cache = model(new, cache)
        passes += new.size(1)
        new = logits[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, new], dim=1)
print(f"{passes} token passes, and the same tokens: {torch.equal(tokens, naive)}")

# %% [markdown]
# ## The same, bit for bit
#
# Ordinary kernels sum in another order for one row than for many, so that equal logits differ in their last bits, and
# a small bug hides among them. Under `kvref.exact()` sums do not depend on shapes: what differs then is no rounding.


# %%
def one_by_one(model, tokens, first, cache):
    """Logits of the first tokens in one pass, and of the others one at a time."""
    logits, cache = model(tokens[:, :first], cache)
    rows = [logits]
    for at in range(first, tokens.size(1)):
        logits, cache = model(tokens[:, at : at + 1], cache)
        rows.append(logits)
    return torch.cat(rows, dim=1)


with torch.inference_mode():
    gap = (one_by_one(model, naive, 10, Kept()) - model(naive)[0]).abs().max()
    print(f"ordinary kernels: cached and uncached logits are at most {gap:.1g} apart")
    with kvref.exact():
        same = torch.equal(one_by_one(model, naive, 10, Kept()), model(naive)[0])
print("exact: cached logits are uncached logits, to the bit:", same)

# %% [markdown]
# One text proves little. `kvref.check` draws schedules, of prompts, chunks and single tokens, and tries a law on each.
# It has to be told how to start a cache, how to step, and how to do without one.


# %%
class Mine:
    """The model, with the cache from above."""

    def __init__(self, model):
        self.model = model
        self.vocab_size, self.block_size = model.config.vocab_size, model.config.block_size

    def full(self, tokens):
        return self.model(tokens)[0]

    def start(self, batch, capacity):
        return Kept()

    def step(self, cache, tokens):
        return self.model(tokens, cache)


law = "cached-logits-equal-uncached-logits"
result = kvref.check(Mine(model), laws=[law], examples=20)
print(result)
print("it holds:", result.held)

# %% [markdown]
# ## Break it: positions
#
# Token 12 stands at position 12, not at 0 again, though it comes alone. Forget the past in one method, and let the law
# find it: what comes back is the shortest schedule that breaks it, and the place where it first shows.


# %%
class FromZero(GPT):
    """GPT-2 with positions that forget the past."""

    def position_ids(self, past, new, padding=None):
        return super().position_ids(0, new, padding)


broken = kvref.check(Mine(loud(config, kind=FromZero)), laws=[law], examples=20)
print(broken.findings[0])

# %% [markdown]
# ## Break it: the three that everyone meets
#
# The same from the catalogue of bugs, and two more: a causal mask that stands in the wrong corner, where a single token
# sees the first key alone; and a cache that is filled once and never brought up to date. Each is one method of the
# reference. Look at how few steps are enough, and at which step each shows: the stale cache needs one more.

# %%
from kvref.bug import catalogue

for name in ("missing-position-offset", "causal-during-decode", "stale-cache"):
    found = kvref.check(f"bug:{name}", laws=[law], examples=20).findings[0]
    print(f"{name}: {len(found.schedule)} steps are enough")
    print(f"  {catalogue()[name].wrong}\n{found.schedule}")
    print(f"  first wrong: {found.divergence}\n  {found.origin}\n")

# %% [markdown]
# Nothing raises in any of them. A model with the first bug goes on writing: its first token is right, for a prompt has
# no past, and what comes later is not.

# %%
with torch.inference_mode():
    new, forgetful, cache = prompt, loud(config, kind=FromZero), Kept()
    written = []
    for _ in range(20):
        logits, cache = forgetful(new, cache)
        new = logits[:, -1:].argmax(dim=-1)
        written.append(int(new))
print("should be", naive[0, prompt.size(1) :].tolist())
print("broken   ", written)

# %% [markdown]
# ## The bill
#
# The cache takes memory for every token, a growing one copies all of it with each, and a step reads all weights and all
# of the cache for one token. First the formulas for GPT-2 small, then formulas beside counts of the tiny model's code.

# %%
gpt2 = GPTConfig()
print(f"{formulas.bytes_per_token(gpt2, torch.float16) / 2**10:.0f} KiB for each token of GPT-2 small in float16")
print(f"{formulas.copied_bytes(gpt2, 1000, torch.float16) / 2**30:.1f} GiB copied by torch.cat for 1,000 tokens")
many, few = formulas.passes_naive(1000), formulas.passes_cached(1000)
print(f"{many:,} token passes for 1,000 tokens without a cache, {few:,} with")

# %%
bill = [
    (
        "bytes kept of 32 tokens",
        formulas.cache_bytes(config, 32, torch.float32),
        counted.cache_bytes("growing", config, 32, torch.float32),
    ),
    (
        "bytes copied, growing cache",
        formulas.copied_bytes(config, 32, torch.float32),
        counted.copied_bytes("growing", config, 32, torch.float32)[-1],
    ),
    ("bytes copied, static cache", 0, counted.copied_bytes("static", config, 32, torch.float32)[-1]),
    ("token passes, naive", formulas.passes_naive(20, 12), counted.passes(20, 12, cached=False)),
    ("token passes, cached", formulas.passes_cached(20, 12), counted.passes(20, 12, cached=True)),
]
for what, by_formula, by_count in bill:
    print(f"{what:28} {by_formula:8,} by formula, {by_count:8,} counted")

# %% [markdown]
# ## Measure it
#
# The time for the next token, by how many there are. Without a cache it rises, with one it is nearly flat. This model
# is so small that most of a step is Python, so expect little; `kvref measure` does the same with GPT-2.

# %%
from kvref.measure.curves import curves
from kvref.measure.latency import measure_latency
from kvref.measure.samples import Setting, spaced
from kvref.measure.subjects import reference_subject

subject = reference_subject("tiny", model, ["growing", "static"], peers=False)
curve = curves(list(measure_latency(subject, 1, Setting(4, 64, spaced(5, 64, 6), 3))))
ratio = curve.ratio("naive", "static", 64)
print(f"behind 64 tokens, naive / static: {ratio.middle:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")

# %%
from kvref.measure.picture import panel, terminal

try:
    from matplotlib import pyplot
except ImportError:
    print("\n".join(terminal(curve)))
else:
    panel(pyplot.subplots(figsize=(7, 4))[1], curve, curve.ways, "time for the next token")  # a notebook shows it

# %% [markdown]
# ## Go on
#
# Three questions to try on this notebook: what does `Kept` hold if a pass dies in the second layer, and is the next one
# right? Which line of it would you change so that nothing is copied? And which of the three bugs would a test miss that
# generates two tokens?
#
# `kvref learn init course` writes a folder of exercises, and `kvref learn` there judges each as you save it. Begin with
# `why-1` and `positions-1`, where a cache is to be repaired; `positions-law`, where you write the law that catches six
# bugs; and `masks-cause`, where a schedule is given and you say what went wrong. `writing-5` answers the first question
# of these. `kvref check my_decoder.py:make` asks the same of a decoder of your own.
