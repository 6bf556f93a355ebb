"""What the machine can do at most: bytes that it reads and numbers that it multiplies in a second, and memory left."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

from kvref.errors import BadInput

READ = 2**28
"""Bytes that are summed or copied to measure bandwidth: beyond what caches of processors hold."""

SIDE = {"cpu": 1024, "cuda": 8192}
"""Side of the square matrices whose product measures arithmetic."""

SECONDS = 1.0
"""Least time for each measurement."""


@dataclass(frozen=True)
class Limits:
    """What was measured, and is taken for the most that there is: bytes and floating-point operations a second."""

    bytes_per_second: float
    flops_per_second: float

    def seconds(self, read: float, flops: float) -> float:
        """The least time for something that reads so many bytes and does so much arithmetic (a roofline)."""
        return max(read / self.bytes_per_second, flops / self.flops_per_second)


def measure_limits(device: torch.device, dtype: torch.dtype) -> Limits:
    """Measure on a device: bandwidth by the faster of a sum and a copy, arithmetic by one large product."""
    source = torch.ones(READ // 4, device=device)
    target = torch.empty_like(source)
    bandwidth = max(
        READ / seconds("source.sum()", source=source),
        2 * READ / seconds("target.copy_(source)", source=source, target=target),
    )
    side = SIDE[device.type]
    matrix = torch.ones(side, side, device=device, dtype=dtype)
    return Limits(bandwidth, 2 * side**3 / seconds("matrix @ matrix", matrix=matrix))


def seconds(statement: str, **names: torch.Tensor) -> float:
    """Median seconds of a statement, with as many threads as torch has; waits for a GPU."""
    timer = Timer(statement, globals=dict(names), num_threads=torch.get_num_threads())
    return float(timer.blocked_autorange(min_run_time=SECONDS).median)


def require_memory(needed: int, device: torch.device, what: str) -> None:
    """Refuse what memory is not enough for, before any of it is taken. Raises `BadInput`."""
    free = free_memory(device)
    if free is not None and needed > free:
        raise BadInput(
            f"{what} needs about {needed / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are free: "
            "give a smaller --size, --batch or --tokens"
        )


def free_memory(device: torch.device, info: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that can be had on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if not info.exists():
        return None
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0]) if "MemAvailable" in lines else None
