# pyright: basic
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
from kvref.targets.reference import GrowingDecoder
from kvref.weights import loud

config = GPTConfig(block_size=64, vocab_size=257, n_layer=2, n_head=2, n_embd=16)
model = loud(config)
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
# ## What may be kept
#
# Attention is causal: a token's keys and values are made from it and from what comes before it, so nothing that comes
# later changes them. Its query is used once, in its own pass. So keys and values are kept, and queries are not.

# %%
with torch.inference_mode(), kvref.exact():
    _, short = model(prompt[:, :6])
    _, long = model(prompt)
keys_of_short, keys_of_long = short.keys_values(0)[0], long.keys_values(0)[0]
print("the first six keys are the same bits:", torch.equal(keys_of_short, keys_of_long[:, :, :6]))

# %% [markdown]
# ## Build it
#
# One pass over the prompt fills the cache, and every step after it runs one token. The token that was sampled last has
# not been run yet: it is what the next step begins with.

# %%
passes = 0
with torch.inference_mode():
    logits, cache = model(prompt)
    passes += prompt.size(1)
    tokens = prompt
    for _ in range(19):
        new = logits[:, -1:].argmax(dim=-1)
        tokens = torch.cat([tokens, new], dim=1)
        logits, cache = model(new, cache)
        passes += 1
    tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
print(f"{passes} token passes, and the same tokens: {torch.equal(tokens, naive)}")

# %% [markdown]
# ## The same, bit for bit
#
# Ordinary kernels sum in another order for one row than for many, so that equal logits differ in their last bits, and
# a small bug hides among them. Under `kvref.exact()` sums do not depend on shapes: what differs then is no rounding.

# %%
with torch.inference_mode(), kvref.exact():
    whole, _ = model(naive)
    logits, cache = model(naive[:, :10])
    rows = [logits]
    for at in range(10, naive.size(1)):
        logits, cache = model(naive[:, at : at + 1], cache)
        rows.append(logits)
print("cached logits are uncached logits, to the bit:", torch.equal(torch.cat(rows, dim=1), whole))

# %% [markdown]
# ## Break it
#
# Positions that count from zero again; a causal mask that is kept in the wrong corner; a cache that is never brought up
# to date. Each is one method of the reference. Write the first yourself, and let a law find it: `kvref.check` takes a
# decoder, and gives the shortest schedule that breaks the law.


# %%
class FromZero(GPT):
    """GPT-2 with positions that forget the past."""

    def position_ids(self, past, new, padding=None):
        return super().position_ids(0, new, padding)


law = "cached-logits-equal-uncached-logits"
broken = GrowingDecoder(loud(config, kind=FromZero))
result = kvref.check(broken, laws=[law], examples=20)
print(result.findings[0])

# %%
for bug in ("missing-position-offset", "causal-during-decode", "stale-cache"):
    found = kvref.check(f"bug:{bug}", laws=[law], examples=20).findings[0]
    print(f"{bug}: {len(found.schedule)} steps are enough\n{found.schedule}\n")

# %% [markdown]
# ## The bill
#
# The cache takes memory for every token, a growing one copies all of it with each, and a step reads all weights and all
# of the cache for one token. `kvref measure bill` counts these in the real code.

# %%
from kvref.measure import formulas

gpt2 = GPTConfig()
print(f"{formulas.bytes_per_token(gpt2, torch.float16) / 2**10:.0f} KiB for each token of GPT-2 small in float16")
print(f"{formulas.copied_bytes(gpt2, 1000, torch.float16) / 2**30:.1f} GiB copied by torch.cat for 1,000 tokens")
many, few = formulas.passes_naive(1000), formulas.passes_cached(1000)
print(f"{many:,} token passes for 1,000 tokens without a cache, {few:,} with")

# %% [markdown]
# ## Measure it
#
# The time for the next token, by how many there are: rising without a cache, flat with one. This model is so small that
# most of a step is Python; `kvref measure` does the same with GPT-2.

# %%
from kvref.measure.curves import curves
from kvref.measure.latency import measure_latency
from kvref.measure.picture import terminal
from kvref.measure.samples import Setting, spaced
from kvref.measure.subjects import reference_subject

subject = reference_subject("tiny", model, ["growing", "static"], peers=False)
curve = curves(list(measure_latency(subject, 1, Setting(4, 64, spaced(5, 64, 6), 3))))
ratio = curve.ratio("naive", "static", 64)
print(f"behind 64 tokens, naive / static: {ratio.middle:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")
print("\n".join(terminal(curve)))

# %% [markdown]
# ## Go on
#
# `kvref learn init course` writes a folder of exercises: repair caches that are wrong, write the law that catches a
# bug, say what went wrong. `kvref check my_decoder.py:make` asks the same of a decoder of your own.
