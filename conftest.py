"""Pytest settings of this repository: checked shapes, one torch thread a worker, one worker a core or GPU."""

import os
from importlib.util import find_spec

import pytest

SHAPED = ["bugs", "cache", "generate"]
"""The parts under test whose shapes are checked in every test. The model's own are checked in one: checking them always
would double the time of all."""

if find_spec("beartype"):
    from jaxtyping import install_import_hook

    # Shapes in annotations are checked in every test; the hook must be there before the modules are.
    install_import_hook([f"kvref.{name}" for name in SHAPED], "beartype.beartype")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers for `-n auto`."""
    del config
    from kvref.device import worker_count

    return worker_count()


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker its GPU and one thread."""
    del config
    from kvref.device import pin_worker

    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        pin_worker(worker)
    import torch

    torch.set_num_threads(1)
