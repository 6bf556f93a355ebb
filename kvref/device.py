"""Devices: what `auto` means, and how many test workers a machine is good for."""

import os
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from kvref.errors import BadInput, one_line

if TYPE_CHECKING:
    import torch


def resolve_device(name: str) -> "torch.device":
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into a device: `auto` is CUDA when there is one, else the CPU.

    Raises `BadInput` for a device that does not exist here.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise BadInput(f"device {name!r} cannot be used here ({one_line(error)}); give auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"device {name!r} is not supported; give auto, cpu or cuda")
    return device


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Names of the GPUs that the caller lets us see, as CUDA_VISIBLE_DEVICES writes them.

    As in CUDA, an unknown or negative number hides itself and everything behind it.
    """
    import torch

    # Unlike `is_available`, this does not start the driver, which would read the mask before a worker has set its own.
    count = torch.cuda.device_count()
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return [str(number) for number in range(count)]
    return [name.strip() for name in mask.split(",") if name.strip()][:count]


def worker_count(environ: Mapping[str, str] = os.environ) -> int:
    """Test workers to start: one for each visible GPU, or one for each core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return len(visible_gpus(environ)) or cores or 1


def pin_worker(worker: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Leave to a worker named gwN its own GPU of the visible ones. Call it before CUDA is first used."""
    gpus = visible_gpus(environ)
    if len(gpus) > 1:
        environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.removeprefix("gw")) % len(gpus)]
