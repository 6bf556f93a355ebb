"""What results depend on besides kvref: versions, device, math libraries, threads and switches, as lines to paste."""

import os
import platform
import re
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from kvref.exactness import MODES
from kvref.exactness.selftest import Proof, prove

Line = tuple[str, str]

PACKAGES = ("kvref", "torch", "transformers", "hypothesis", "numpy")

VARIABLES = ("CUBLAS_WORKSPACE_CONFIG", "MKL_CBWR", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables that math libraries go by."""


def environment(device: torch.device) -> list[Line]:
    """Names and values of everything that the bits of a result may depend on; nothing is imported for it."""
    return [
        *((name, installed(name)) for name in PACKAGES),
        ("python", f"{platform.python_version()} {platform.system()} {platform.machine()}"),
        ("device", device_name(device)),
        ("cpu", f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"),
        *libraries(torch.__config__.show()),
        ("threads", f"{torch.get_num_threads()}, interop {torch.get_num_interop_threads()}"),
        *switches(),
        *((name, os.environ.get(name, "not set")) for name in VARIABLES),
    ]


def installed(package: str) -> str:
    """Version of a package, which is not imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def device_name(device: torch.device) -> str:
    """The device, and for a GPU its model, compute capability and CUDA's version."""
    if device.type != "cuda":
        return str(device)
    major, minor = torch.cuda.get_device_capability(device)
    cuda: Any = getattr(torch.version, "cuda", None)  # torch does not say its type
    return f"{device}, {torch.cuda.get_device_name(device)}, capability {major}.{minor}, CUDA {cuda}"


def cpu_model(info: Path = Path("/proc/cpuinfo")) -> str:
    """Model of the CPU, as Linux has it, else as Python does."""
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1] if found else platform.processor() or "unknown"


LIBRARIES = {
    "blas": r"BLAS_INFO=([^,\s]+)",
    "mkl": r"oneAPI Math Kernel Library Version (\S+)",
    "onednn": r"MKL-DNN v(\S+)",
    "openmp": r"OpenMP \d+ \(a\.k\.a\. OpenMP ([\d.]+)\)",
    "cudnn": r"CuDNN (\S+)",
    "compiler": r"((?:GCC|clang) \S+)",
}
"""How torch writes the math libraries that it was built with."""


def libraries(config: str) -> list[Line]:
    """The math libraries that torch says it was built with."""
    found = ((name, re.search(pattern, config)) for name, pattern in LIBRARIES.items())
    return [(name, match[1]) for name, match in found if match]


def switches() -> list[Line]:
    """The switches of torch that change what a kernel computes."""
    matmul, cudnn, mkldnn = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.mkldnn
    return [
        ("tf32", f"matmul {value(matmul, 'allow_tf32')}, cudnn {value(cudnn, 'allow_tf32')}"),
        ("fp32 precision", f"cuda {value(matmul, 'fp32_precision')}, mkldnn {value(mkldnn, 'fp32_precision')}"),
        ("bf16 reduced reduction", value(matmul, "allow_bf16_reduced_precision_reduction")),
        ("fp16 reduced reduction", value(matmul, "allow_fp16_reduced_precision_reduction")),
        ("mkldnn", f"available {torch.backends.mkldnn.is_available()}, enabled {value(mkldnn, 'enabled')}"),
        ("deterministic algorithms", str(torch.are_deterministic_algorithms_enabled())),
        ("flush denormal", str(flushes_denormals())),
    ]


def value(switches: Any, name: str) -> str:
    """A switch, which some versions of torch do not have, or refuse to tell once it was set in another way."""
    try:
        return str(getattr(switches, name, "unknown"))
    except RuntimeError:
        return "unknown"


def flushes_denormals() -> bool:
    """Whether numbers too small for full precision become zero, which torch cannot be asked."""
    return bool((torch.full((64,), 2.0**-126) * 0.5 == 0.0).any())


def report(device: torch.device, check: bool, print: Callable[[str], object]) -> int:  # noqa: A002 - it stands in for it
    """Every line is printed, with `check` also what the self-test proves; 0, or 1 if a proof failed."""
    lines = environment(device)
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")
    proofs = [prove(mode, device) for mode in MODES] if check else []
    for line in (line for of_mode in proofs for line in summary(of_mode)):
        print(line)
    return int(any(not proof.holds for of_mode in proofs for proof in of_mode))


def summary(proofs: list[Proof]) -> list[str]:
    """A line for each claim that holds of all its operators, and one for each operator that fails."""
    groups: defaultdict[str, list[Proof]] = defaultdict(list)
    for proof in proofs:
        groups[proof.claim].append(proof)
    return [line for claim, group in groups.items() for line in verdicts(claim, group)]


def verdicts(claim: str, group: list[Proof]) -> list[str]:
    """Which operators fail a claim, or that it holds of all."""
    mode = group[0].mode
    if failed := [proof for proof in group if not proof.holds]:
        return [f"{mode}: FAILS {proof.operator}: {claim} ({proof.detail})" for proof in failed]
    names = ", ".join(proof.operator for proof in group) if len(group) <= 4 else f"{len(group)} operators"
    return [f"{mode}: holds of {names}: {claim} ({sum(proof.tried for proof in group)} trials)"]
