"""Targets of other packages: how they are named, what is said of an absent one, and what each is known for."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kvref import cli
from kvref.errors import TargetError
from kvref.law import laws
from kvref.search import Effort, Outcome, Status, search
from kvref.targets import Bench, packages
from kvref.targets.packages import PACKAGES, Unfit, adapter
from kvref.targets.padding import padding_changes
from kvref.targets.resolve import resolve
from kvref.targets.x_transformers import read_options
from kvref.tests.helpers import BENCH, tiny
from kvref.tests.test_outside import Elsewhere

EQUAL = "cached-logits-equal-uncached-logits"
PADDING = "padding-changes-nothing"
FEW = Effort(examples=20, shrink=False)

IMPORTED = {
    "x-transformers": "x_transformers",
    "litgpt": "litgpt",
    "mlx-lm": "mlx_lm.models",
    "transformer-lens": "transformer_lens.factories.architecture_adapter_factory",
    "keras-hub": "keras_hub",
    "onnxruntime-genai": "onnxruntime_genai",
}
"""What an adapter imports first."""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_that_is_not_there_costs_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, IMPORTED[package].partition(".")[0], None)
    monkeypatch.setitem(sys.modules, IMPORTED[package], None)
    monkeypatch.setattr(sys, "argv", ["kvref", "check", "--no-isolate", f"{package}:depth=2"])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    torch.set_num_threads(threads)
    (line,) = capfd.readouterr().err.splitlines()
    assert stopped.value.code == 2
    assert line.startswith(f"kvref: {IMPORTED[package]} cannot be imported (ModuleNotFoundError: ")
    assert line.endswith(f"; install it with `pip install 'kvref[{package}]'`")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_adapter_is_complete(package: str) -> None:
    module = adapter(package)
    assert callable(module.make)
    assert callable(module.names)
    assert len(set(module.KINDS)) == len(module.KINDS) != 1


def test_options_are_values_of_python() -> None:
    assert read_options("") == {}
    assert read_options("depth=2,custom_layers=('a', 'f'),attn_flash=True,x=1.5,y='z'") == {
        "depth": 2,
        "custom_layers": ("a", "f"),
        "attn_flash": True,
        "x": 1.5,
        "y": "z",
    }


@pytest.mark.parametrize("options", ["depth", "depth=", "depth=two", "=2,depth=2", "a=__import__('os')"])
def test_what_is_no_option_is_refused(options: str) -> None:
    with pytest.raises(TargetError, match=r"is no option; give NAME=VALUE, with commas between"):
        read_options(options)


class Toy:
    """An adapter of no package: its second kind of cache fits names that begin with b alone."""

    KINDS = ("small", "big")

    def make(self, asked: str, kind: str, device: torch.device, dtype: torch.dtype) -> Any:
        del device
        if kind == "big" and not asked.startswith("b"):
            raise Unfit(f"{asked} has no big cache")
        if asked == "broken":
            raise ValueError("no such layer")
        return Elsewhere(dtype=dtype)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "adapter", lambda _: Toy())


@pytest.mark.usefixtures("toy")
def test_each_kind_of_cache_that_fits_is_a_target() -> None:
    assert [t.command for t in resolve("litgpt:both", BENCH)] == [
        "litgpt:both --cache small",
        "litgpt:both --cache big",
    ]
    assert [t.name for t in resolve("litgpt:one", Bench(flags=" --dtype float64"))] == ["litgpt:one (small cache)"]
    (named,) = resolve("litgpt:both", Bench(dtypes=(torch.float64,), flags=" --dtype float64"), "big,big")
    assert named.command == "litgpt:both --cache big --dtype float64"
    assert named.decoders()[0].lens.dtype == torch.float64


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("asked", "kind", "dtypes", "message"),
    [
        ("one", "big", (), "one has no big cache"),
        ("one", "huge", (), "models of litgpt have no 'huge' cache; give small, big"),
        ("broken", None, (), r"litgpt:broken cannot be built \(ValueError: no such layer\)"),
        ("one", None, (torch.float32, torch.float64), "give one --dtype"),
    ],
)
def test_what_a_package_cannot_give_is_refused(
    asked: str, kind: str | None, dtypes: tuple[torch.dtype, ...], message: str
) -> None:
    with pytest.raises(TargetError, match=message):
        resolve(f"litgpt:{asked}", Bench(dtypes=dtypes), kind)


def test_models_of_mlx_lm_are_listed_without_importing_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = tmp_path / "mlx_lm" / "models"
    models.mkdir(parents=True)
    for package in (models, models.parent):
        (package / "__init__.py").touch()
    for name, text in {
        "own": "class Model(Module):\n    pass\n",
        "another": "from .own import ModelArgs, Model\n",
        "ends": "import sys\nsys.exit(1)\n\n\nclass Model(Module):\n    pass\n",
        "shared": "class ModelArgs:\n    pass\n",
    }.items():
        (models / f"{name}.py").write_text(text)
    (tmp_path / "mlx_lm" / "utils.py").write_text("MODEL_REMAPPING = {'alias': 'own'}\n")
    parts = [name for name in sys.modules if name.partition(".")[0] == "mlx_lm"]
    for name in (*parts, "mlx_lm", "mlx_lm.models", "mlx_lm.utils"):
        monkeypatch.setitem(sys.modules, name, None)  # so that undoing it leaves nothing of what is imported here
        del sys.modules[name]
    monkeypatch.syspath_prepend(tmp_path)
    assert list(packages.worth_trying("mlx-lm")) == [f"mlx-lm:{name}" for name in ("alias", "another", "ends", "own")]
    assert "mlx_lm.models.ends" not in sys.modules


def test_attention_is_for_transformers_alone() -> None:
    with pytest.raises(TargetError, match="--attn is for models of transformers"):
        resolve("litgpt:pythia-14m", BENCH, None, "eager")


def test_padding_is_asked_of_a_model_that_bears_it_alone() -> None:
    model, cpu = tiny(), torch.device("cpu")

    def full(tokens: torch.Tensor) -> torch.Tensor:
        return model(tokens)[0]

    def right(tokens: torch.Tensor, padding: Any) -> torch.Tensor:
        logits = full(tokens[:, padding[0] :])
        return torch.cat([logits.new_zeros(1, padding[0], logits.shape[-1]), logits], dim=1)

    def wrong(tokens: torch.Tensor, padding: Any) -> torch.Tensor:
        del padding
        return full(tokens)

    def raises(tokens: torch.Tensor, padding: Any) -> torch.Tensor:
        raise ValueError(f"no padding {padding} of {tokens.shape[1]}")

    assert padding_changes(full, right, cpu) == ""
    assert "others too" in padding_changes(full, wrong, cpu)
    assert "raises ValueError: no padding [2] of 5" in padding_changes(full, raises, cpu)


def tried(target: str, law: str, kind: str | None = None) -> Outcome:
    """A law on the only target that is meant."""
    found = resolve(target, BENCH, kind)
    return search(laws()[law], found[0], FEW)


KNOWN = (
    ("x-transformers:shift_tokens=1", "whole", EQUAL),
    ("litgpt:Gemma-2-2b", "sliced", EQUAL),
    ("mlx-lm:gemma2", "batch", PADDING),
    ("transformer-lens:llama", None, EQUAL),
    ("keras-hub:GPTNeoX", None, EQUAL),
)
"""Faults of released packages."""

HEALTHY = (
    ("x-transformers:rotary_pos_emb=True", "whole"),
    ("x-transformers:", "new"),
    ("litgpt:pythia-14m", "sliced"),
    ("litgpt:pythia-14m", "masked"),
    ("mlx-lm:llama", "prompt"),
    ("mlx-lm:llama", "batch"),
    ("keras-hub:Llama", None),
    ("onnxruntime-genai:llama", None),
)


@pytest.mark.filterwarnings("ignore")  # what a package warns of is not what it is tried for
@pytest.mark.parametrize(("target", "kind", "law"), KNOWN)
def test_a_known_fault_of_a_package_is_found(target: str, kind: str | None, law: str) -> None:
    pytest.importorskip(IMPORTED[target.partition(":")[0]].partition(".")[0])
    assert tried(target, law, kind).status is Status.BROKEN


@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize(("target", "kind"), HEALTHY)
def test_a_healthy_model_of_a_package_holds(target: str, kind: str | None) -> None:
    pytest.importorskip(IMPORTED[target.partition(":")[0]].partition(".")[0])
    assert tried(target, EQUAL, kind).status is Status.HELD


@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize(
    "law",
    [
        "crop-equals-never-having-appended",
        "a-second-request-equals-a-fresh-cache",
        "lengths-equal-the-tokens-given",
        "past-keys-and-values-never-change",
    ],
)
def test_the_control_outside_python_holds(law: str) -> None:
    pytest.importorskip("onnxruntime_genai")
    assert tried("onnxruntime-genai:llama", law).status is Status.HELD


@pytest.mark.filterwarnings("ignore")  # as above
def test_the_control_outside_python_is_the_model_that_it_was_made_from() -> None:
    pytest.importorskip("onnxruntime_genai")
    model: Any = adapter("onnxruntime-genai").make("llama", "", torch.device("cpu"), torch.float32)
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    torch.testing.assert_close(model.full(tokens).double(), model.independent(tokens), rtol=0, atol=1e-5)
