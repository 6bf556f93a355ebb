"""Targets: what a user can name, and the decoders that come from it."""

from kvref.targets.base import Bench, OneDecoder, Target
from kvref.targets.reference import ReferenceTarget

__all__ = ["Bench", "OneDecoder", "ReferenceTarget", "Target"]
