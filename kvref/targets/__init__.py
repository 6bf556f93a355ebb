"""Targets: what a user can name, and the decoders that come from it."""

from kvref.targets.base import DTYPES, Bench, Named, OneDecoder, Target, Under
from kvref.targets.reference import ReferenceTarget

__all__ = ["DTYPES", "Bench", "Named", "OneDecoder", "ReferenceTarget", "Target", "Under"]
