"""Disputes "rounding or bug?" as they are had in public, rebuilt small and labelled: what the verdict is scored on.

Each is a pair of callables with random weights, fresh for each seed. The right answer is known by construction.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from kvref.disputed import (
    SPLITS,
    CountsPadding,
    KeepsKeysRotated,
    MasksTheWholeBuffer,
    Padded,
    Pair,
    ReadsTheWholeBuffer,
    ScalesByHeadDim,
    ScalesValues,
    StaleKey,
    StoresBfloat16,
    StoresCoarsely,
    TopLeft,
    TurnsThePast,
    centred,
    kept_cache,
    padded,
    pair,
    quiet,
    static,
    transformers_model,
)
from kvref.scaling import measure
from kvref.verdict import PASSES, Evidence, Kind, Verdict, decide


@dataclass(frozen=True)
class Dispute:
    """A situation, where it was met, and what it is: one kind, or whichever of several. `build` makes it for a seed."""

    name: str
    situation: str
    answer: Kind | frozenset[Kind]
    build: Callable[[int], Pair]
    source: str = ""

    def accepts(self, kind: Kind, bits: bool = True) -> bool:
        """Whether a verdict is right; without exact modes, passes cannot be told from each other."""
        right = self.answer if isinstance(self.answer, frozenset) else frozenset({self.answer})
        return kind in right if bits or right.isdisjoint(PASSES) else kind is Kind.ROUNDING

    def evidence(self, seed: int) -> Evidence:
        """Everything that can be measured of one fresh model."""
        pair = self.build(seed)
        return measure(pair.full, pair.cached, pair.tokens, SPLITS, pair.dtype)

    def judge(self, seed: int, bits: bool = True) -> Verdict:
        """Judge one fresh model; without `bits` by what was measured under ordinary kernels alone."""
        evidence = self.evidence(seed)
        return decide(evidence if bits else replace(evidence, bits={}))


def disputes() -> list[Dispute]:
    """Every dispute, honest ones beside bugs that look like them."""
    bfloat16, float16, float32, float64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
    coarse = partial(static, StoresCoarsely, float16)
    whole_buffer = partial(static, ReadsTheWholeBuffer, float32)
    return [
        Dispute(
            "bfloat16-off-by-a-tenth",
            "bfloat16 logits differ by about 0.1 with a cache, on most processors, and nothing is wrong",
            Kind.EXACT,
            partial(pair, dtype=bfloat16),
            "https://github.com/huggingface/transformers/issues/31267",
        ),
        Dispute(
            "bfloat16-stale-key",
            "bfloat16 logits differ with a cache, since one key of each step is its neighbour's",
            Kind.BUG,
            partial(pair, dtype=bfloat16, cache=StaleKey),
        ),
        Dispute(
            "float32-last-digits",
            "float32 logits of GPT-2 differ in their last digits with a cache",
            Kind.EXACT,
            partial(pair, dtype=float32),
            "https://github.com/huggingface/transformers/issues/27040",
        ),
        Dispute(
            "quiet-stale-key",
            "weights of std 0.02, where a stale key moves a logit by less than a thousandth",
            Kind.BUG,
            partial(pair, dtype=float32, cache=StaleKey, make=quiet),
        ),
        Dispute(
            "llama-float64",
            "a float64 Llama differs by 1e-8, far more than float64 rounds, since its norms and softmax run in float32",
            Kind.EXACT,
            partial(transformers_model, model_type="llama", dtype=float64),
            "https://github.com/huggingface/transformers/issues/25420",
        ),
        Dispute(
            "llama-float64-shifted",
            "the same Llama with decoded tokens one position too far",
            Kind.BUG,
            partial(transformers_model, model_type="llama", dtype=float64, shift=1),
            "https://github.com/microsoft/onnxruntime-genai/pull/2354",
        ),
        Dispute(
            "llama-bfloat16",
            "a bfloat16 Llama differs with a cache; it casts to float32 inside",
            Kind.EXACT,
            partial(transformers_model, model_type="llama", dtype=bfloat16),
            "https://github.com/huggingface/transformers/issues/25420",
        ),
        Dispute(
            "bfloat16-cache",
            "a float32 model keeps its keys and values in bfloat16",
            Kind.LOW_PRECISION,
            partial(pair, dtype=float32, cache=StoresBfloat16),
        ),
        Dispute(
            "float16-buffer",
            "a float32 model writes its keys and values into a float16 buffer",
            Kind.LOW_PRECISION,
            partial(pair, dtype=float32, cache=coarse),
        ),
        Dispute(
            "left-padding",
            "a row differs in its last digits when there is padding on its left",
            Kind.EXACT,
            partial(padded, kind=Padded),
            "https://github.com/huggingface/transformers/issues/25420",
        ),
        Dispute(
            "left-padding-counted",
            "positions of decoded tokens count the padding on the left",
            Kind.BUG,
            partial(padded, kind=CountsPadding),
            "https://github.com/TransformerLensOrg/TransformerLens/pull/1617",
        ),
        Dispute(
            "top-left-mask",
            "float16, and a chunk onto a past gets the causal mask of the upper left corner",
            Kind.BUG,
            partial(pair, dtype=float16, kind=TopLeft),
            "https://github.com/pytorch/pytorch/issues/108108",
        ),
        Dispute(
            "alibi-from-the-last-key",
            "MPT counts its bias from the last key, so that scores differ by what softmax removes",
            # Float32 rounds that by less than the steps of the grid, which see it on some models alone.
            frozenset({Kind.ORDER, Kind.EQUIVALENT}),
            partial(transformers_model, model_type="mpt", dtype=float32),
        ),
        Dispute(
            "rotated-keys",
            "keys are kept rotated by an orthogonal matrix, and rotated back when they are read",
            Kind.EQUIVALENT,
            partial(pair, dtype=float32, cache=KeepsKeysRotated),
            "https://arxiv.org/abs/2404.00456",
        ),
        Dispute(
            "values-too-large",
            "values from the cache are too large by 1e-5, which float32 logits hardly show",
            Kind.BUG,
            partial(pair, dtype=float32, cache=ScalesValues),
        ),
        Dispute(
            "ring-buffer",
            "the past is read in the order of a ring buffer",
            Kind.ORDER,
            partial(pair, dtype=float32, cache=TurnsThePast),
        ),
        Dispute(
            "scaled-by-head-dim",
            "scores onto a past are divided by the head dim instead of its root",
            Kind.BUG,
            partial(pair, dtype=bfloat16, cache=ScalesByHeadDim),
        ),
        Dispute(
            "centred-over-the-call",
            "an embedding is centred over the tokens of the call, so that without a cache it sees those behind it",
            Kind.BUG,
            centred,
        ),
        Dispute(
            "buffer-of-the-server",
            "the float32 cache was allocated before, so that it is float32 whatever the model runs in",
            Kind.EXACT,
            kept_cache,
        ),
        Dispute(
            "nan-behind-the-mask",
            "free slots hold NaN, and a weight of zero does not hide it",
            Kind.BUG,
            partial(pair, dtype=float32, cache=whole_buffer, kind=MasksTheWholeBuffer),
            "https://github.com/Dao-AILab/flash-attention/issues/1745",
        ),
    ]
