"""The kill matrix: every bug under every law. It says what the laws are good for, and which of them a bug needs.

Nothing of torch is imported here, so that the command line can show its help without it.
"""

from kvref.matrix.cells import Cell, Mark, Matrix, read_matrix
from kvref.matrix.record import Record, record

__all__ = ["Cell", "Mark", "Matrix", "Record", "read_matrix", "record"]
