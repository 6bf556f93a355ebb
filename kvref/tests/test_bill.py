"""The bill of a KV cache: every formula beside its own count, and the command that prints both."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from kvref.config import SIZES, GPTConfig
from kvref.errors import BadInput
from kvref.measure import bill as bill_module
from kvref.measure import counted, formulas
from kvref.measure.bill import Request, article_lines, bill_of, binary
from kvref.measure.bill_cli import SHAPES, bill, bytes_in
from kvref.measure.formulas import Flops

CONFIGS = (
    GPTConfig(block_size=24, vocab_size=13, n_layer=2, n_head=3, n_embd=15),
    GPTConfig(block_size=24, vocab_size=11, n_layer=2, n_head=4, n_embd=16, n_kv_head=2),
    GPTConfig(block_size=24, vocab_size=17, n_layer=3, n_head=4, n_embd=8, n_kv_head=1),
)
"""A head of keys and values for each query head, for every second, and for all."""

DTYPES = (torch.float32, torch.float16)
CASES = [(config, dtype, batch) for config in CONFIGS for dtype in DTYPES for batch in (1, 2)]

cases = pytest.mark.parametrize(("config", "dtype", "batch"), CASES)
shapes = pytest.mark.parametrize("config", CONFIGS)
loops = pytest.mark.parametrize("cached", [True, False], ids=["cached", "naive"])


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bill itself counts would take most of the time here."""
    monkeypatch.setattr(bill_module, "FEW", 6)
    monkeypatch.setattr(bill_module, "FEWER", 2)
    monkeypatch.setattr(bill_module, "GROWTH", (8, 16, 32, 64))


@cases
@pytest.mark.parametrize("kind", counted.KINDS)
def test_bytes_of_the_cache(kind: str, config: GPTConfig, dtype: torch.dtype, batch: int) -> None:
    assert formulas.cache_bytes(config, 5, dtype, batch) == counted.cache_bytes(kind, config, 5, dtype, batch)
    assert formulas.bytes_per_token(config, dtype) == counted.cache_bytes(kind, config, 1, dtype)


@cases
@pytest.mark.parametrize("prompt", [0, 1, 4])
def test_bytes_copied(config: GPTConfig, dtype: torch.dtype, batch: int, prompt: int) -> None:
    growing = counted.copied_bytes("growing", config, 5, dtype, batch, prompt)
    assert growing == [formulas.copied_bytes(config, n, dtype, batch, prompt) for n in range(1, 6)]
    assert counted.copied_bytes("static", config, 5, dtype, batch, prompt) == [0] * 5


def test_a_static_cache_that_copied_its_past_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    append = counted.StaticCache.append

    def copying(self: Any, *args: Any) -> Any:
        self.keys = self.keys.clone()
        return append(self, *args)

    monkeypatch.setattr(counted.StaticCache, "append", copying)
    assert counted.copied_bytes("static", CONFIGS[0], 3, torch.float32)[-1] > 0


def test_a_growing_cache_that_copied_its_past_twice_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    append, once = counted.GrowingCache.append, counted.copied_bytes("growing", CONFIGS[0], 3, torch.float32)

    def copying(self: Any, layer: int, *new: Any) -> Any:
        if layer in self.layers:
            self.layers[layer] = tuple(rows.clone() for rows in self.layers[layer])
        return append(self, layer, *new)

    monkeypatch.setattr(counted.GrowingCache, "append", copying)
    twice = counted.copied_bytes("growing", CONFIGS[0], 3, torch.float32)
    assert twice == [2 * size for size in once]


@loops
@pytest.mark.parametrize("prompt", [1, 3])
@pytest.mark.parametrize("new", [1, 6])
def test_token_passes(cached: bool, prompt: int, new: int) -> None:
    formula = formulas.passes_cached if cached else formulas.passes_naive
    assert formula(new, prompt) == counted.passes(new, prompt, cached=cached)


@loops
@shapes
def test_uses_of_every_position(cached: bool, config: GPTConfig) -> None:
    formula = formulas.uses_cached if cached else formulas.uses_naive
    _, uses = counted.generated(7, 1, cached=cached, shape=config)
    assert uses == [formula(7, position) for position in range(7)]


def test_a_prompt_in_one_pass_changes_no_use_with_a_cache() -> None:
    _, uses = counted.generated(4, 3, cached=True)
    assert uses == [formulas.uses_cached(6, position) for position in range(6)]


@pytest.mark.parametrize("config", [*CONFIGS, *SHAPES.values()])
def test_parameters(config: GPTConfig) -> None:
    assert formulas.parameters(config) == counted.parameters(config)


def test_gpt2_has_124_million_parameters() -> None:
    assert formulas.parameters(SIZES["gpt2"]) == 124_439_808


@cases
@pytest.mark.parametrize("past", [0, 23])
def test_bytes_read_for_a_token(config: GPTConfig, dtype: torch.dtype, batch: int, past: int) -> None:
    assert formulas.read_bytes(config, past, dtype, batch) == counted.read_bytes(config, past, dtype, batch)


@shapes
@pytest.mark.parametrize(("new", "past", "batch"), [(1, 0, 1), (5, 0, 2), (3, 4, 1), (1, 7, 2)])
def test_flops_of_a_pass(config: GPTConfig, new: int, past: int, batch: int) -> None:
    assert formulas.flops(config, new, past, batch) == counted.flops(config, new, past, batch)


@loops
@shapes
@pytest.mark.parametrize("prompt", [1, 3])
def test_flops_of_a_generation(cached: bool, config: GPTConfig, prompt: int) -> None:
    formula = formulas.flops_cached if cached else formulas.flops_naive
    flops = counted.flops_generated(config, 5, prompt, cached=cached)
    assert flops == [formula(config, n, prompt) for n in range(1, 6)]


def test_flops_of_gpt2_at_full_length() -> None:
    config = SIZES["gpt2"]
    assert formulas.flops(config, 1024) == counted.flops(config, 1024)
    assert formulas.flops(config, 1024).linear == 24 * 1024 * 768**2 * 12


@pytest.mark.parametrize("formula", [formulas.flops_cached, formulas.flops_naive])
def test_nothing_generated_costs_nothing(formula: Callable[..., Flops]) -> None:
    assert formula(CONFIGS[0], 0, 3).total == 0
    assert formulas.passes_cached(0, 3) == formulas.passes_naive(0, 3) == 0


@shapes
@pytest.mark.parametrize("spare", [-1, 0, 1, 100, 12345])
def test_conversations_that_fit(config: GPTConfig, spare: int) -> None:
    dtype = torch.float16
    one = counted.cache_bytes("static", config, 3, dtype)
    memory = counted.parameters(config) * dtype.itemsize + spare
    fit, left = 0, spare
    while left >= one:
        fit, left = fit + 1, left - one
    assert formulas.conversations(config, 3, dtype, memory) == fit


def test_no_conversation_fits_beside_weights_that_do_not() -> None:
    assert formulas.conversations(CONFIGS[0], 1, torch.float32, 1) == 0


def test_the_8b_shape_has_128_kib_for_a_token_and_4_gib_for_32k() -> None:
    config = SHAPES["8b"]
    assert binary(formulas.bytes_per_token(config, torch.float16)) == "128 KiB"
    assert formulas.cache_bytes(config, 32768, torch.float16) == 4 << 30
    assert counted.cache_bytes("growing", config, 1, torch.float16) == 128 << 10


def request(**changes: Any) -> Request:
    asked = {"config": CONFIGS[1], "dtype": torch.float16, "tokens": 20, "batch": 3, "memory": 1 << 20}
    return Request(**{**asked, **changes})


def test_a_bill_counts_what_its_formulas_say() -> None:
    found = bill_of(request())
    assert found.exit_code == 0, "\n".join(found.text())
    assert [line.what for line in found.lines if line.counted is None] == ["conversations"]
    assert {line.at for line in found.lines} == {"", "N=6", "N=6 B=2", "N=2"}
    for grown in found.growth:
        assert abs(grown.exponent - grown.leading) < 0.1, grown


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("bytes_per_token", 1),
        ("copied_bytes", 1),
        ("passes_cached", 1),
        ("passes_naive", 1),
        ("parameters", 1),
        ("read_bytes", 1),
        ("flops", Flops(0, 1, 0)),
        ("flops_cached", Flops(1, 0, 0)),
        ("flops_naive", Flops(0, 0, 1)),
    ],
)
def test_a_formula_that_is_off_by_one_is_told_and_exits_with_1(
    name: str, one: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(formulas, name)
    monkeypatch.setattr(formulas, name, lambda *args: right(*args) + one)
    found = bill_of(request())
    assert found.exit_code == 1
    assert any("DIFFERS" in row for row in found.text())
    assert any(row.startswith("    by formula ") for row in found.text())


def test_the_claims_of_the_article() -> None:
    text = "\n".join(article_lines())
    assert "naive 125,250, cached 500" in text
    assert "static cache 0 bytes" in text
    assert "72 KiB per token in float32" in text
    naive = formulas.flops_naive(SIZES["gpt2"], 500)
    assert naive.linear > 5 * naive.attention


def ran(*args: str) -> tuple[int, str, BaseException | None]:
    """Exit code, output and exception of the command."""
    app = typer.Typer()
    app.command()(bill)
    done = CliRunner().invoke(app, args)
    return done.exit_code, done.output, done.exception


def test_the_command_shows_128_kib_and_4_gib_in_80_columns(tmp_path: Path) -> None:
    code, out, error = ran("8b", "--json", str(tmp_path / "bill.json"))
    assert code == 0, (out, error)
    rows = {row[:21].rstrip(): row[21:].split("  ") for row in out.splitlines()}
    assert " 128 KiB  = 128 KiB" in "  ".join(rows["cache of one token"])
    assert " 4 GiB  = " in "  ".join(rows["cache of N tokens"])
    assert max(map(len, out.splitlines())) <= 80
    saved = json.loads((tmp_path / "bill.json").read_text())
    assert next(line for line in saved["lines"] if line["what"] == "cache of N tokens")["value"] == 4 << 30
    assert len(saved["growth"]) == 7


def test_options_replace_what_the_size_says() -> None:
    code, out, _ = ran(
        *("gpt2", "--n-layer", "2", "--n-head", "4", "--n-kv-head", "2", "--head-dim", "8", "--vocab-size", "99"),
        *("--dtype", "float32", "--tokens", "2000", "--batch", "3", "--memory", "1MiB"),
    )
    assert code == 0
    assert "L 2 layers of width d 32, 4 heads" in out
    assert "N 2000 tokens in each of B 3 rows, s 4 bytes for a number (float32)" in out
    assert re.search(r"cache of one token +2\*L\*Hkv\*Dh\*s +256 bytes  = 256 bytes\n", out)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gpt3"], "there is no size 'gpt3'; there are gpt2, gpt2-medium, gpt2-large, gpt2-xl, 8b"),
        (["--tokens", "0"], "--tokens is 0; it must be at least 1"),
        (["--batch", "-1"], "--batch is -1; it must be at least 1"),
        (["--head-dim", "0"], "--head-dim is 0; it must be at least 1"),
        (["--n-layer", "-3"], "--n-layer is -3; it must be at least 1"),
        (["--tokens", "1025"], "gpt2 has 1024 positions, and no room for 1025 tokens"),
        (["--n-head", "5"], "n_head 5 does not divide n_embd 768"),
        (["--n-kv-head", "5"], "n_kv_head 5 does not divide n_head 12"),
        (["--n-embd", "768", "--head-dim", "63"], "--n-embd 768 is not 12 heads of --head-dim 63"),
        (["--memory", "-80GiB"], "--memory '-80GiB' is no size; give a positive number and a unit"),
        (["--memory", "0GiB"], "is no size"),
        (["--memory", "much"], "--memory 'much' is no size"),
        (["--memory", "80"], "--memory '80' is no size"),
        (["--dtype", "int8"], "there is no dtype 'int8'"),
        (["8b", "--tokens", str(10**30)], "larger than 1 EiB"),
        (["8b", "--n-layer", str(10**9)], "--n-layer is 1000000000; give at most 1024"),
    ],
)
def test_bad_input_is_one_line(args: list[str], message: str) -> None:
    code, _, error = ran(*args)
    assert code == 1
    assert isinstance(error, BadInput), error
    assert message in str(error)
    assert "\n" not in str(error)


def test_a_file_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    _, _, error = ran(*("--n-layer", "1", "--n-embd", "12", "--tokens", "3", "--json", str(tmp_path)))
    assert isinstance(error, BadInput)
    assert "give another --json" in str(error)


@pytest.mark.parametrize(
    ("text", "size"), [("80GiB", 80 << 30), ("1.5 KiB", 1536), ("2MB", 2_000_000), (" 1TiB ", 1 << 40)]
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert bytes_in(text) == size


def test_the_options_do_not_import_torch() -> None:
    script = "import sys, kvref.measure.bill_cli; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (3 << 29, "1.5 GiB")]
)
def test_sizes_are_shown_in_binary_units(size: int, text: str) -> None:
    assert binary(size) == text
