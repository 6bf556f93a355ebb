"""Faults planted in unmodified models of transformers: what diagnosis is measured on, and was not made from.

Each is a bug of the catalogue as it would be written there: in what is told to the model (positions, masks), in what
its cache keeps, or in how it is cropped, reordered, copied and reset. None has a line in common with the reference.
"""

from kvref.measure.planted import kept, managed, told
from kvref.measure.planted.listed import PLANTS

__all__ = ["PLANTS", "kept", "managed", "told"]
