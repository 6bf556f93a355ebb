"""Devices, and how tests are spread over them."""

import os

import pytest
import torch

from kvref.device import pin_worker, resolve_device, visible_gpus, worker_count
from kvref.errors import BadInput


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that CUDA sees three GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there is no CUDA."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_where_there_is_no_cuda() -> None:
    assert resolve_device("auto") == torch.device("cpu")


@pytest.mark.usefixtures("gpus")
def test_auto_is_cuda_where_there_is_one() -> None:
    assert resolve_device("auto") == torch.device("cuda")


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be used here"):
        resolve_device("abacus")


@pytest.mark.usefixtures("no_gpu")
def test_a_cpu_has_a_worker_for_each_core_it_may_use() -> None:
    assert worker_count({}) == len(os.sched_getaffinity(0))


@pytest.mark.usefixtures("gpus")
def test_cuda_has_a_worker_for_each_visible_gpu() -> None:
    assert visible_gpus({}) == ["0", "1", "2"]
    assert worker_count({"CUDA_VISIBLE_DEVICES": "4,GPU-77,2"}) == 3


@pytest.mark.usefixtures("gpus")
def test_each_worker_is_left_one_gpu_of_the_callers_mask() -> None:
    seen = []
    for worker in ("gw0", "gw1", "gw2", "gw3"):
        environ = {"CUDA_VISIBLE_DEVICES": "4,GPU-77,2"}
        pin_worker(worker, environ)
        seen.append(environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["4", "GPU-77", "2", "4"]


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_nothing_is_pinned() -> None:
    environ: dict[str, str] = {}
    pin_worker("gw1", environ)
    assert environ == {}
