"""Numbers on which a change of order or of formula shows."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

KINDS = ("random", "spread", "probes")

SPECIAL = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 0.5, 1e-40, 1e-310, 3e38, 65504.0)


class Numbers:
    """Random numbers for the trials, the same ones on every device, that leave torch's own generator alone."""

    def __init__(self, device: torch.device, seed: int = 0) -> None:
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)

    def random(self, *shape: int) -> Tensor:
        """Numbers of about the same size."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.device)

    def spread(self, *shape: int, low: int = -30, high: int = 5) -> Tensor:
        """Numbers of very different sizes; `high` keeps sums of a thousand products within the grid."""
        powers = torch.randint(low, high, shape, generator=self.generator, device="cpu")
        return self.random(*shape) * (2.0**powers).to(self.device)

    def probes(self, rows: int, k: int, dtype: torch.dtype) -> Tensor:
        """Rows that are 0 but for 1024, -1024 and a tiny number, which survives only if added after both of them."""
        x = torch.zeros(rows, k, dtype=torch.float64)
        places = torch.rand(rows, k, generator=self.generator).argsort(-1)[:, :3]
        values = torch.tensor([1024.0, -1024.0, 2.0 ** (-44 if dtype == torch.float64 else -15)], dtype=torch.float64)
        return x.scatter_(1, places, values[: places.size(1)].expand(rows, -1)).to(self.device)

    def rows(self, kind: str, rows: int, k: int, dtype: torch.dtype) -> Tensor:
        """Rows of a kind."""
        if kind == "probes":
            return self.probes(rows, k, dtype).to(dtype)
        return (self.spread(rows, k) if kind == "spread" else self.random(rows, k)).to(dtype)

    def whole(self, *shape: int, largest: int, signed: bool) -> Tensor:
        """Whole numbers, on the CPU, where products of int64 are worked out."""
        return torch.randint(-largest if signed else 0, largest + 1, shape, generator=self.generator)

    def mixed(self, n: int) -> Tensor:
        """Numbers for elementwise operators: within [-1, 1], moderate, of every size, and the special ones."""
        parts = [self.random(n - 2 * (n // 3)) * 4.0, self.spread(n // 3, high=20), self.random(n // 3).tanh()]
        x = torch.cat(parts)
        x[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64, device=self.device)
        return x[torch.randperm(n, generator=self.generator).to(self.device)]


def data(
    numbers: Numbers, rows: int, k: int, out: int, dtype: torch.dtype, kinds: Iterable[str] = KINDS
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Rows and weights that show a change in the order of a sum; random ones alone lose most of them to rounding."""
    for kind in kinds:
        weight = torch.ones(out, k, device=numbers.device) if kind == "probes" else numbers.random(out, k)
        yield kind, numbers.rows(kind, rows, k, dtype), weight.to(dtype)


def elsewhere(x: Tensor, offset: int) -> Tensor:
    """A copy that begins some numbers into its memory."""
    return torch.cat([x.new_zeros(offset), x.flatten()])[offset:].view(x.shape)
