"""The command line: what it prints, and the exit code of every way it can end."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kvref import cli
from kvref.config import GPTConfig
from kvref.diagnosis import diagnose
from kvref.errors import BadInput
from kvref.law import Law, choose
from kvref.matrix import record
from kvref.search import Outcome
from kvref.tests.helpers import tiny
from kvref.weights import loud, save

TINY_RUN = ["--examples", "5", "--law", "cached-logits-equal-uncached-logits", "--cache", "growing"]


def run(*args: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """Exit code, output and errors of the command line."""
    monkeypatch.setattr(sys, "argv", ["kvref", *args])
    threads = torch.get_num_threads()
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    torch.set_num_threads(threads)
    out, err = capfd.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, out, err


@pytest.fixture
def kvref(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the command line in this process, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    # Probes would take most of the time here, and have tests of their own; a guess by laws alone is printed still.
    monkeypatch.setattr(diagnose, "SECONDS", 0.0)
    return lambda *args: run(*args, capfd=capfd, monkeypatch=monkeypatch)


def test_a_law_that_holds_exits_with_0(kvref) -> None:
    code, out, err = kvref("check", "reference", *TINY_RUN)
    assert (code, err) == (0, "")
    assert re.search(r"held +cached-logits-equal-uncached-logits +5 examples", out)
    assert "\x1b" not in out


def test_a_bug_exits_with_1_and_shows_the_smallest_schedule(kvref) -> None:
    code, out, _ = kvref("check", "bug:missing-position-offset", "--law", "cached-logits-equal-uncached-logits")
    assert code == 1
    assert "->   3. extend cache 0 by 1 token: [0]" in out
    assert "diverges  step 3, row 0, position 1: the logit of token" in out
    assert "cache     step 3, row 0, position 1: keys of layer 0, head 0 are not those of one prefill" in out
    assert "replay    kvref check bug:missing-position-offset:growing --law cached-logits-equal-uncached-logits" in out


def test_the_replay_command_finds_the_same(kvref) -> None:
    _, first, _ = kvref("check", "bug:stale-cache", "--law", "crop-equals-never-having-appended", "--seed", "3")
    (command,) = re.findall(r"replay +kvref (.*)", first)
    code, again, _ = kvref(*command.split())
    assert code == 1
    assert finding_of(again) == finding_of(first)


def finding_of(out: str) -> str:
    """What is printed of a finding."""
    return out[out.index("is broken by") : out.index("replay")]


def test_a_bug_by_its_module_is_the_same_bug(kvref) -> None:
    code, out, _ = kvref("check", "kvref.bugs.stale_cache:bug", *TINY_RUN[:4], "--examples", "40")
    assert code == 1
    assert "bug:stale-cache" in out


def test_a_law_that_never_met_its_case_exits_with_4(kvref) -> None:
    code, out, _ = kvref("check", "reference:growing", "--examples", "1", "--law", "crop-equals-never-having-appended")
    assert code == 4
    assert "vacuous" in out


def test_a_checkpoint_of_too_few_tokens_for_the_prompts_is_refused(kvref, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A cache is allowed because the model is causal. " * 3)
    code, out, _ = kvref("check", "--weights", checkpoint(tmp_path), "--text", str(text), *TINY_RUN)
    assert code == 2, out


def test_a_checkpoint_that_takes_bytes_with_prompts_from_a_file(kvref, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A cache is allowed because the model is causal. " * 3)
    save(loud(GPTConfig(block_size=16, vocab_size=257, n_layer=1, n_head=2, n_embd=8)), tmp_path / "bytes")
    code, out, _ = kvref("check", "--weights", str(tmp_path / "bytes"), "--text", str(text), *TINY_RUN)
    assert code == 0
    assert "held" in out


def checkpoint(directory: Path) -> str:
    """A small checkpoint."""
    save(tiny(), directory / "checkpoint")
    return str(directory / "checkpoint")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "nonsense"], "'nonsense' is no target, and nothing is called so; give reference, bug:NAME"),
        (["check", "bug:stale-cash"], "there is no bug 'stale-cash'; did you mean stale-cache?"),
        (["check", "bug:zzz"], "there is no bug 'zzz'; there are bidirectional-ignored"),
        (["check", "reference:paged"], "the reference has growing and static caches"),
        (["check", "reference:growing", "--cache", "static"], "give one of them"),
        (["check", "bug:stale-cache", "--cache", "static"], "is about the growing cache"),
        (["check", "no.such.module:make"], "no.such.module cannot be imported (ModuleNotFoundError"),
        (["check", "no_such_file.py:make"], "no_such_file.py does not exist"),
        (["check", "kvref.bugs.stale_cache:bag"], "has no 'bag'; did you mean bug?"),
        (["check", "math:pi"], "is a float; a target is a factory"),
        (["check", "math:sqrt"], "math:sqrt() raised TypeError"),
        (["check", "builtins:dict"], "has no `full`"),
        (["check", "--device", "abacus"], "device 'abacus' cannot be used here"),
        (["check", "--device", "meta"], "device 'meta' is not supported"),
        (["check", "--cache", "ring"], "there is no 'ring' cache"),
        (["check", "--law", "gravity"], "there is no law 'gravity'"),
        (["check", "--law", "crop-equals"], "did you mean crop-equals-never-having-appended?"),
        (["check", "--examples", "0"], "Invalid value for '--examples'"),
        (["check", "--weights", "/no/such/dir"], "/no/such/dir is not a directory"),
        (["check", "--text", "/no/such/file"], "cannot be read: No such file"),
        (["check", "--weights", "./" + "a" * 300], "cannot be looked at: File name too long"),
        (["check", "--device", "hpu"], "device 'hpu' cannot be used here"),
        (["check", "reference", "--weights", "x"], "give a target or --weights, not both"),
        (["check", "--text", "x", "--prompt", "y"], "give --text or --prompt, not both"),
        (["check", "--no-such-option"], "No such option: --no-such-option"),
        (["chekc"], "No such command 'chekc'"),
    ],
)
def test_bad_input_is_one_line_and_exits_with_2(kvref, args: list[str], message: str) -> None:
    code, out, err = kvref(*args)
    assert code == 2
    assert out == ""
    assert err.startswith("kvref: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_prompt_longer_than_the_context_exits_with_2(kvref, tmp_path: Path) -> None:
    from kvref.config import GPTConfig
    from kvref.weights import loud

    save(loud(GPTConfig(block_size=8, vocab_size=257, n_layer=1, n_head=1, n_embd=4)), tmp_path)
    code, _, err = kvref("check", "--weights", str(tmp_path), "--prompt", "longer than eight")
    assert code == 2
    assert "the prompt has 17 tokens and the context 8: shorten the prompt" in err


def test_a_prompt_that_is_not_text_is_still_a_prompt(kvref) -> None:
    code, _, err = kvref("check", "reference", *TINY_RUN, "--prompt", "\udcff")
    assert code in (0, 4)
    assert err == ""


def test_a_vocabulary_too_small_for_text_exits_with_2(kvref, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    code, _, err = kvref("check", "--weights", checkpoint(tmp_path), "--text", str(tmp_path / "text.txt"))
    assert code == 2
    assert "a vocabulary of 7 tokens is too small for text" in err


def test_a_fault_of_our_own_exits_with_3(kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvref.law.choose", lambda _: 1 / 0)
    code, _, err = kvref("check")
    assert code == 3
    assert err.splitlines()[-1] == "kvref: kvref broke (ZeroDivisionError); please report the lines above"


def test_stopping_keeps_what_is_done(kvref, monkeypatch: pytest.MonkeyPatch) -> None:
    import kvref.checking as check_module

    done = check_module.search

    def interrupted(law: Law, *args: Any) -> Outcome:
        if "chunking" in law.name:
            raise KeyboardInterrupt
        return done(law, *args)

    monkeypatch.setattr(check_module, "search", interrupted)
    code, out, _ = kvref("check", "reference:growing", "--examples", "20")
    assert code == 4
    assert "held      cached-logits-equal-uncached-logits" in out
    assert "stopped before the end" in out


@pytest.mark.parametrize("ended", ["raised", "given"])
def test_ctrl_c_says_so_and_exits_with_4(kvref, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    """Older versions of typer let the exception through; newer ones give a code of their own."""

    def interrupted(**_: Any) -> int:
        if ended == "raised":
            raise KeyboardInterrupt
        return 130

    monkeypatch.setattr(cli, "app", interrupted)
    assert kvref("env") == (4, "", "kvref: stopped\n")


def test_a_check_ends_with_its_strength(kvref) -> None:
    law = "what-fits-works-and-one-token-more-is-refused"
    _, out, _ = kvref("check", "reference:static", "--law", law, "--examples", "10")
    last = out.splitlines()[-1]
    assert last.startswith(f"strength: 1 law kills {len(record().kills) - len(record().alive({law: 10}))} of ")
    assert "up to 10 examples; alive: " in last


def test_help_and_version_do_not_import_torch() -> None:
    for args in (["--help"], ["check", "--help"], ["bugs", "run", "--help"], ["--version"]):
        script = f"import sys; sys.argv = ['kvref', *{args!r}]; from kvref import cli\ntry: cli.main()\n"
        script += "finally: print('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "False"


def test_a_command_is_needed(kvref) -> None:
    assert kvref() == (2, "", "kvref: give a command, such as `kvref check`; see `kvref --help`\n")


def test_bad_input_is_an_exception_of_its_own() -> None:
    with pytest.raises(BadInput, match="there is no law"):
        choose(["gravity"])
