"""Triangular systems, solved row after row, as linear attention in chunks does."""

import torch
from torch import Tensor

from kvref.exactness.arithmetic import Arithmetic
from kvref.exactness.products import require_match
from kvref.exactness.registry import instead_of


@instead_of("linalg_solve_triangular")
def solve_triangular(
    arithmetic: Arithmetic, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """`x` with `a @ x = b`, or `x @ a = b` where not `left`: each row from those before it, whatever comes behind."""
    if not left:
        turned = a.transpose(-2, -1), b.transpose(-2, -1)
        return solve_triangular(arithmetic, *turned, upper=not upper, unitriangular=unitriangular).transpose(-2, -1)
    if a.size(-1) != a.size(-2):
        raise RuntimeError(f"a triangular system needs a square matrix, not one of {tuple(a.shape)}")
    require_match(a, b)
    if upper:
        turned = a.flip(-2, -1), b.flip(-2)
        return solve_triangular(arithmetic, *turned, upper=False, unitriangular=unitriangular).flip(-2)
    lead = torch.add(a[..., 0, 0], b[..., 0, 0]).shape
    a, x = arithmetic.widen(a).expand(*lead, -1, -1), arithmetic.widen(b).expand(*lead, -1, -1).clone()
    for i in range(a.size(-1)):
        if i:
            known = arithmetic.total(x[..., :i, :].transpose(-2, -1) * a[..., i, None, :i])
            x[..., i, :] -= known.squeeze(-1)
        if not unitriangular:
            x[..., i, :] /= a[..., i, i, None]
    return x.to(b.dtype)
