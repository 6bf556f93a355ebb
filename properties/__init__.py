"""The laws that a KV cache has to keep, one file a family, each a short function over a decoder and a schedule."""

FAMILIES = (
    "equivalence",
    "causality",
    "batching",
    "padding",
    "lifetime",
    "limits",
    "accounting",
    "generation",
    "poison",
)
"""The order to try them in: first what most bugs break."""
