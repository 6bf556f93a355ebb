"""The README's way from a file of the user's own to its bug: the file, the commands and what they print."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import kvref as library
from kvref.tests.test_cli import kvref as kvref

README = Path(library.__path__[0]).resolve().parent / "README.md"

pytestmark = pytest.mark.skipif(not README.exists(), reason="installed without its repository")


def require_shown(shown: str, out: str) -> None:
    """Every line that is shown has to be printed, in that order; `...` stands for others, and there may be more."""
    printed = iter(out.splitlines())
    for line in shown.splitlines():
        assert line == "..." or line in printed, f"not printed, or not in this order: {line}"


def test_three_commands_lead_from_a_file_to_its_bug(kvref: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    readme = README.read_text()
    (name, code), *more = re.findall(r"```python (\S+\.py)\n(.*?)```", readme, re.S)
    assert not more
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 15
    (tmp_path / name).write_text(code)

    (block,) = re.findall(r"```console\n(\$ pip install path/to/kvref\n.*?)```", readme, re.S)
    _, *commands = re.split(r"^\$ kvref ", block, flags=re.M)
    for command, ends in zip(commands, (1, 0), strict=True):
        asked, _, shown = command.partition("\n")
        exit_code, out, err = kvref(*shlex.split(asked))
        assert (exit_code, err) == (ends, "")
        require_shown(shown, out)

    (mended,) = re.findall(r"Once `(\+ .*?)` stands behind the `arange`", " ".join(readme.split()))
    found = "torch.arange(tokens.size(1), device=tokens.device)"
    assert code.count(found) == 1
    (tmp_path / name).write_text(code.replace(found, f"{found} {mended}"))
    exit_code, out, _ = kvref("replay")
    assert exit_code == 0
    assert {line.split()[0] for line in out.splitlines()[::2]} == {"fixed"}


def test_a_line_that_is_not_printed_is_not_shown() -> None:
    require_shown("a\n...\nc", "a\nadded\nb\nc\nd\n")
    for shown in ("a\nx", "c\na"):
        with pytest.raises(AssertionError, match="not printed, or not in this order"):
            require_shown(shown, "a\nb\nc\n")
