"""`kvref measure`: what is timed is what is said, equal first, and nothing of it is lost."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kvref.bug import catalogue
from kvref.config import GPTConfig
from kvref.decoder import Decoder
from kvref.errors import BadInput
from kvref.lens import Lens
from kvref.measure import article, latency, limits, picture, run, summary
from kvref.measure.curves import curves
from kvref.measure.formulas import read_bytes
from kvref.measure.latency import measure_generation, measure_latency, random_tokens
from kvref.measure.limits import Limits
from kvref.measure.peers import same_weights
from kvref.measure.same import require_same
from kvref.measure.samples import NAIVE, Sample, Setting, spaced
from kvref.measure.subjects import Subject, labels, reference_subject
from kvref.tests.helpers import BENCH
from kvref.tests.test_cli import kvref as kvref
from kvref.weights import loud

SMALL = GPTConfig(block_size=32, vocab_size=13, n_layer=1, n_head=2, n_embd=8)
SETTING = Setting(prompt=3, tokens=12, positions=(4, 8, 12), repeats=2)
TINY = ("measure", "--size", "tiny", "--tokens", "20", "--prompt", "4", "--repeats", "2", "--places", "4", "--no-peers")


def small(*kinds: str, peers: bool = False) -> Subject:
    """A small reference."""
    return reference_subject("small", loud(SMALL), kinds or ("growing", "static"), peers=peers)


class Recorder:
    """A decoder that notes which tokens it is given."""

    vocab_size, block_size, device = 13, 32, torch.device("cpu")

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[list[int]]]] = []

    def full(self, tokens: torch.Tensor) -> torch.Tensor:
        self.calls.append(("full", tokens.tolist()))
        return torch.zeros(*tokens.shape, self.vocab_size)

    def start(self, batch: int, capacity: int | None) -> list[int]:
        self.calls.append(("start", [[batch, capacity or 0]]))
        return []

    def step(self, cache: list[int], tokens: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        self.calls.append(("step", tokens.tolist()))
        return torch.zeros(*tokens.shape, self.vocab_size), cache


def test_every_way_runs_the_same_tokens_each_once() -> None:
    ways = {"one": Recorder(), "two": Recorder()}
    subject = Subject(
        "recorded", {name: Decoder(way, name, Lens("native", torch.float32)) for name, way in ways.items()}
    )
    samples = list(measure_latency(subject, 2, SETTING))
    sequence = random_tokens(subject, 2, 12).tolist()
    for way in ways.values():
        starts = [number for number, (call, _) in enumerate(way.calls) if call == "start"]
        assert len(starts) == 3  # the first is the warm-up
        for begin, end in zip(starts, [*starts[1:], len(way.calls)], strict=True):
            assert way.calls[begin] == ("start", [[2, 12]])
            steps = [given for call, given in way.calls[begin:end] if call == "step"]
            assert [len(step[0]) for step in steps] == [3] + [1] * 9
            assert [[token for step in steps for token in step[row]] for row in range(2)] == sequence
    naive = [given for call, given in ways["one"].calls if call == "full"]
    assert naive == 3 * [[row[:end] for row in sequence] for end in (3, 4, 8, 12)]  # the warm-up meets every length
    assert not any(call == "full" for call, _ in ways["two"].calls)
    assert [sample.what for sample in samples] == 2 * (["prefill"] + ["token"] * 9)
    for sample in samples:
        assert (NAIVE in sample.seconds) == (sample.what == "prefill" or sample.position in SETTING.positions)
        assert sample.seconds.keys() >= {"one", "two"}
        assert all(seconds > 0 for seconds in sample.seconds.values())


def made(naive: float, cached: float, repeat: int = 0) -> Iterator[Sample]:
    """Samples of a naive way that takes `naive` seconds for each token, and a cached one that always takes the same."""
    yield Sample("s", 1, repeat, "prefill", 2, {NAIVE: 2 * naive, "cached": cached})
    for at in range(3, 13):
        seconds = {"cached": cached, NAIVE: at * naive} if at in (3, 6, 12) else {"cached": cached}
        yield Sample("s", 1, repeat, "token", at, seconds)


def test_ratios_are_of_pairs_and_the_whole_is_their_sum() -> None:
    curve = curves([*made(0.5, 2.0), *made(1.0, 2.0, 1), *made(3.0, 4.0, 2)])
    assert curve.positions == [3, 6, 12]
    spread = curve.ratio(NAIVE, "cached", 12)
    assert (spread.middle, spread.low, spread.high) == (6.0, 3.0, 9.0)  # and not 12 / 2, the ratio of the medians
    assert curve.whole("cached") == {0: 20.0, 1: 20.0, 2: 40.0}  # ten steps, each counted
    rest = sum(range(4, 13)) + 3  # every token behind the prompt; the first is at the first position that was timed
    assert curve.whole(NAIVE) == pytest.approx({0: 0.5 * rest, 1: 1.0 * rest, 2: 3.0 * rest})
    assert curve.slope(NAIVE).value == pytest.approx(1.0)
    assert curve.exponent(NAIVE).value == pytest.approx(1.0)
    assert curve.exponent("cached").value == pytest.approx(0.0)


def test_a_cached_way_is_timed_by_its_last_steps_and_summed_by_all() -> None:
    samples = [Sample("s", 1, 0, "prefill", 2, {"cached": 1.0})]
    for at in range(3, 43):
        seconds = {"cached": float(at + 100 * (at % 10 == 0))}
        samples.append(Sample("s", 1, 0, "token", at, seconds | ({NAIVE: 1.0} if at in (7, 42) else {})))
    curve = curves(samples)
    assert curve.at("cached", 7).middle == 5.0
    assert curve.at("cached", 42).middle == 41.0  # of 38, 39, 140, 41, 42
    assert curve.whole("cached") == {0: float(sum(range(3, 43)) + 400)}


def test_the_lines_say_what_was_measured() -> None:
    said = "\n".join(summary.summary(curves([*made(0.5, 2.0), *made(1.0, 2.0, 1)])))
    assert re.search(r"naive / cached +4\.50   \[3\.00, 6\.00\]", said)
    assert "naive 1500.0 ms, cached 2000.0 ms" in said
    assert "of one row: cached 0.5" in said
    four = [replace(sample, batch=4) for sample in made(0.5, 2.0)]
    assert "of all rows: cached 2.0" in "\n".join(summary.summary(curves(four)))
    assert "growth cached               +0.000 ms per 100 tokens" in said


def test_the_limits_are_shares_of_what_has_to_be_read() -> None:
    # A shape whose caches are large enough that a batch shows in what is printed.
    subject, most = replace(small(), config=GPTConfig()), Limits(bytes_per_second=1e6, flops_per_second=1e9)
    curve = curves([*made(0.5, 2.0)])
    assert subject.config is not None
    for batch in (1, 4):
        read = read_bytes(subject.config, 11, torch.float32, batch)
        said = list(summary.limits(replace(curve, batch=batch), subject, most))
        assert f"{read / 1e6:.1f} MB to read for a token behind 12, {read / 1e6 / 2.0:.0%} of the bandwidth" in said[1]


def test_generations_are_set_against_the_last_cache() -> None:
    runs = [Sample("s", 1, n, "generate", 9, {"static": 2.0, "other": 3.0 + n}) for n in range(3)]
    said = list(summary.generations(runs, "static", ["static", "other", "odd"]))
    assert re.search(r"other / static +2\.00   \[1\.50, 2\.50\]", said[1])
    assert said[2] == "  odd is not compared: it gives other tokens"


def test_a_gpu_is_waited_for_before_and_behind_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr(latency, "synchronize", lambda device: done.append(f"wait {device}"))
    latency.seconds_of({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, torch.device("cuda:1"))
    assert done == ["wait cuda:1", "a", "wait cuda:1", "wait cuda:1", "b", "wait cuda:1"]


def test_ways_take_turns() -> None:
    order = list[str]()

    class Noting(Recorder):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def start(self, batch: int, capacity: int | None) -> list[int]:
            order.append(self.name)
            return super().start(batch, capacity)

    native = Lens("native", torch.float32)
    list(measure_latency(Subject("s", {name: Decoder(Noting(name), name, native) for name in "ab"}), 1, SETTING))
    assert "".join(order) == "ab" + "ab" + "ba"


def test_a_decoder_that_raises_while_it_is_timed_is_said() -> None:
    class Late(Recorder):
        def full(self, tokens: torch.Tensor) -> torch.Tensor:
            if tokens.size(1) > 10:
                raise ValueError("too late")
            return super().full(tokens)

    subject = Subject("s", {"late": Decoder(Late(), "late", Lens("native", torch.float32))})
    with pytest.raises(BadInput, match="naive raised while it was timed: ValueError: too late"):
        list(measure_latency(subject, 1, SETTING))


def test_a_repeat_that_was_cut_short_counts_where_it_got_to() -> None:
    curve = curves([*made(1.0, 2.0), *list(made(9.0, 2.0, 1))[:5]])
    assert curve.positions == [3, 6, 12]
    assert curve.at(NAIVE, 3).high == 27.0
    assert list(curve.whole(NAIVE)) == [0]


@pytest.mark.parametrize(("first", "last", "places"), [(9, 512, 12), (1, 3, 12), (5, 5, 4), (2, 9, 1)])
def test_positions_are_spaced_from_the_first_to_the_last(first: int, last: int, places: int) -> None:
    found = spaced(first, last, places)
    assert found[-1] == last
    assert list(found) == sorted(set(found))
    assert len(found) == min(places, last - first + 1)
    if places > 1:
        assert found[0] == first


@pytest.mark.parametrize("batch", [1, 3])
def test_the_reference_is_equal_by_bits_before_it_is_timed(batch: int) -> None:
    subject = small()
    for decoder in subject.decoders.values():
        assert require_same(decoder, batch, subject.weight_bytes) == "the same bits (tile)"


@pytest.mark.parametrize(
    "name", ["stale-cache", "missing-position-offset", "causal-during-decode", "free-slots-attended"]
)
def test_what_is_wrong_is_not_timed(name: str) -> None:
    decoder = catalogue()[name].target(BENCH).decoders()[-1]
    with pytest.raises(BadInput, match="other logits with its cache than without"):
        require_same(decoder, 1, None)


def test_large_weights_are_compared_under_their_own_kernels() -> None:
    decoder = next(iter(small("static").decoders.values()))
    assert require_same(decoder, 1, 2**40).startswith("equal within")
    wrong = catalogue()["stale-cache"].target(BENCH).decoders()[-1]
    with pytest.raises(BadInput, match="other logits"):
        require_same(wrong, 1, 2**40)


def test_peers_have_the_same_weights_and_say_the_same() -> None:
    model = loud(SMALL)
    tokens = torch.arange(10)[None] % 13
    torch.testing.assert_close(same_weights(model)(tokens).logits, model(tokens)[0], rtol=1e-4, atol=1e-4)
    samples = list(measure_generation(small(peers=True), 2, 3, 9, 2))
    assert [sample.what for sample in samples] == ["generate", "generate"]
    assert set(samples[0].seconds) == {"growing", "static", "transformers dynamic", "transformers static"}


def test_peers_that_say_something_else_are_not_compared() -> None:
    odd = replace(small("static"), peers={"odd": lambda prompt, new: [[0] * new for _ in prompt]})
    (sample,) = measure_generation(odd, 2, 3, 9, 1)
    assert set(sample.seconds) == {"static"}


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["one"], ["cached"]),
        (["hf:x (dynamic cache, sdpa attention)", "hf:x (static cache, sdpa attention)"], ["dynamic", "static"]),
        (["a b", "a"], ["a b", "a"]),
    ],
)
def test_ways_are_called_by_what_tells_them_apart(names: Sequence[str], short: Sequence[str]) -> None:
    assert labels(names) == short


def test_a_roofline_is_the_larger_of_both_limits() -> None:
    most = Limits(bytes_per_second=10.0, flops_per_second=100.0)
    assert (most.seconds(50.0, 100.0), most.seconds(10.0, 400.0)) == (5.0, 4.0)


def test_a_run_says_ratios_first_and_keeps_all(kvref: Any) -> None:
    code, out, err = kvref(*TINY, "--picture", "plot.svg", "--picture", "plot.png")
    assert (code, err) == (0, "")
    assert out.index("naive / static") < out.index("ms for the next token")
    assert "growing: the same bits (tile)" in out
    assert "to read for a token behind 20" in out
    kept = json.loads(Path(".kvref/measure.json").read_text())
    assert kept["environment"]["torch"] == torch.__version__
    assert len(kept["samples"]) == 2 * (1 + 16)
    assert not kept["stopped"]
    lines = [json.loads(line) for line in Path(".kvref/measure.jsonl").read_text().splitlines()]
    assert lines[1:] == kept["samples"]
    assert lines[0]["setting"]["tokens"] == 20
    assert ET.parse("plot.svg").getroot().tag.endswith("svg")
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_is_stopped_keeps_its_rows(kvref: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = run.measure_latency

    def stopped(*given: Any) -> Iterator[Sample]:
        for number, sample in enumerate(real(*given)):
            yield sample
            # The row is on disk before the next is measured, so that a run that is killed has it too.
            assert len(Path(".kvref/measure.jsonl").read_text().splitlines()) == number + 2
            if number == 12:
                raise KeyboardInterrupt

    monkeypatch.setattr(run, "measure_latency", stopped)
    code, out, _ = kvref(*TINY, "--picture", "plot.svg")
    assert code == 4
    assert "stopped before the end" in out
    assert "naive / static" in out
    assert Path("plot.svg").exists()
    kept = json.loads(Path(".kvref/measure.json").read_text())
    assert kept["stopped"]
    assert len(kept["samples"]) == 13


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_run_that_is_stopped_at_once_has_nothing_to_say(
    kvref: Any, monkeypatch: pytest.MonkeyPatch, stopped: int
) -> None:
    real = run.measure_latency

    def early(*given: Any) -> Iterator[Sample]:
        yield from list(real(*given))[:stopped]
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "measure_latency", early)
    code, out, _ = kvref(*TINY, "--picture", "plot.svg")
    assert code == 4
    assert "stopped before the end" in out
    assert not Path("plot.svg").exists()


def test_a_target_of_ones_own_is_timed_with_each_of_its_caches(kvref: Any) -> None:
    given = ("--tokens", "20", "--prompt", "4", "--repeats", "2", "--places", "4", "--batch", "2")
    code, out, err = kvref("measure", "hf-config:gpt2", *given)
    assert (code, err) == (0, "")
    assert "naive / dynamic" in out
    assert "dynamic / static" in out
    assert "batch 2" in out


def test_the_claims_of_the_article_stand_beside_what_was_measured() -> None:
    said = "\n".join(article.claims(curves(list(made(1.0, 2.0)))))
    assert "naive: at 12 tokens 4.00 times that at 3" in said
    assert "cached: at 12 tokens 1.00 times that at 3" in said
    assert "token passes for 12 tokens: naive 78, cached 12" in said
    assert not list(article.claims(curves(list(made(1.0, 2.0))[:1])))


def test_the_operators_of_a_step_grow_with_layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = [article.kernels()]
    for layers in (1, 2):
        article.kernels.cache_clear()
        monkeypatch.setattr(article, "SHAPE", GPTConfig(n_layer=layers))
        counted.append(article.kernels())
    article.kernels.cache_clear()
    twelve, one, two = counted
    assert twelve == one + 11 * (two - one)
    assert two > one


BAD = {
    "more tokens than the context": (("--size", "gpt2", "--tokens", "1025"), "exceed the context of gpt2, 1024"),
    "none behind the prompt": (("--tokens", "8"), "leaves none behind a prompt of 8"),
    "tokens below zero": (("--tokens", "-1"), "leaves none behind"),
    "no prompt": (("--prompt", "0"), "--prompt is 0"),
    "no row": (("--batch", "0"), "--batch is 0"),
    "no repeat": (("--repeats", "0"), "--repeats is 0"),
    "no place": (("--places", "0"), "--places is 0"),
    "no thread": (("--threads", "0"), "--threads is 0; it must be from 1 to"),
    "no such size": (("--size", "gpt5"), "there is no size 'gpt5'"),
    "no such target": (("nonesuch",), "'nonesuch' is no target"),
    "no such dtype": (("--dtype", "int4"), "there is no dtype 'int4'"),
    "no such cache": (("--cache", "paged"), "there is no 'paged' cache"),
    "two kinds of attention": (("hf-config:llama", "--attn", "eager,sdpa"), "give one kind of attention"),
    "the article of another model": (("--article", "--size", "tiny"), "the article is about GPT-2 small"),
    "a shape for a target that has one": (("hf-config:gpt2", "--size", "gpt2"), "--size is for the reference"),
    "both a target and weights": (("hf-config:gpt2", "--weights", "x"), "give a target or --weights"),
    "no picture": (("--picture", "plot.bmp"), "ends in .png or .svg"),
    "a picture nowhere": (("--picture", "none/plot.png"), "is no directory"),
    "no memory left": (("--size", "gpt2-xl", "--batch", "1000000"), "GiB are free"),
    "a bug": (("bug:stale-cache", "--tokens", "10"), "other logits with its cache than without"),
    "a context of its own": (("hf-config:gpt2", "--tokens", "100000"), "exceed the context of hf-config:gpt2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line(kvref: Any, name: str) -> None:
    args, said = BAD[name]
    code, _, err = kvref("measure", *args)
    assert (code, len(err.splitlines())) == (2, 1), err
    assert said in err


def test_bad_input_leaves_what_was_measured_before(kvref: Any) -> None:
    Path(".kvref").mkdir()
    for name in ("measure.json", "measure.jsonl"):
        Path(".kvref", name).write_text("before")
    assert kvref("measure", "nonesuch")[0] == 2
    assert [Path(".kvref", name).read_text() for name in ("measure.json", "measure.jsonl")] == ["before", "before"]


def test_a_folder_that_cannot_be_written_to_is_said_before_anything_is_measured(kvref: Any) -> None:
    Path("file").write_text("")
    code, out, err = kvref(*TINY, "--out", "file/below")
    assert (code, out) == (2, "")
    assert "cannot be written to" in err


def test_a_picture_needs_its_extra(kvref: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = kvref(*TINY, "--picture", "plot.png")
    assert code == 2
    assert "pip install 'kvref[plot]'" in err


def test_without_uniplot_a_line_says_how_to_have_the_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = curves(list(made(1.0, 2.0)))
    assert len(picture.terminal(curve)) > 10
    assert all(len(line) <= 80 for line in picture.terminal(curve))
    monkeypatch.setitem(sys.modules, "uniplot", None)
    assert picture.terminal(curve) == ["(the plot is drawn here with uniplot: pip install 'kvref[plot]')"]


def test_memory_is_asked_of_the_system(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 9 kB\nMemAvailable:    8 kB\n")
    cpu = torch.device("cpu")
    assert limits.free_memory(cpu, info) == 8 * 1024
    assert limits.free_memory(cpu, tmp_path / "none") is None
