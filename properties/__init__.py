"""The laws that a KV cache has to keep, one file a family, each a short function over a decoder and a schedule.

A law is redundant on the catalogue when every bug that it kills has another killer; its docstring says why it stays.
"""

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
