"""What is installed, exported and printed agrees with what is there."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

import kvref
from kvref import bugs, properties
from kvref.bug import catalogue
from kvref.capability import Capability
from kvref.config import GPTConfig
from kvref.expected import expected_by_project
from kvref.law import laws
from kvref.search import Effort, Status, search
from kvref.targets.resolve import resolve
from kvref.tests.helpers import BENCH, try_law
from kvref.weights import loud

ROOT = Path(kvref.__path__[0]).resolve().parent
PROJECT = ROOT / "pyproject.toml"

pytestmark = pytest.mark.skipif(not PROJECT.exists(), reason="installed without its repository")


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["packages"])
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "kvref").rglob("__init__.py")
        if "tests" not in path.parts
    }
    assert listed == found | {"kvref.properties", "kvref.bugs"}


def test_the_exported_names_are_sorted_and_all_there() -> None:
    assert kvref.__all__ == sorted(kvref.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(getattr(kvref, name) is not None for name in kvref.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kvref.nonsense


def test_every_family_of_laws_is_listed() -> None:
    files = {path.stem.removeprefix("test_") for path in Path(properties.__path__[0]).glob("test_*.py")}
    assert set(properties.FAMILIES) == files


def test_every_law_says_what_it_is_why_it_breaks_and_what_it_must_see() -> None:
    for law in laws().values():
        assert law.sentence.endswith((".", "gives.", "are."))
        assert len((law.check.__doc__ or "").split("\n\n")) >= 2 or "without one" in law.sentence
        assert law.must_see


def test_the_readme_names_the_laws_and_bugs_that_there_are() -> None:
    readme = (ROOT / "README.md").read_text()
    for name in re.findall(r"bug:([a-z-]+)", readme):
        assert (Path(bugs.__path__[0]) / f"{name.replace('-', '_')}.py").exists()
    for name in re.findall(r"--law ([a-z0-9-]+)", readme):
        assert name in laws()
    assert f"{len(laws())} laws" in readme
    families = list(dict.fromkeys(bug.family for bug in catalogue().values()))
    (listed,) = re.findall(r"There are more than seventy, in\neleven families:\n([a-z, ]+)\.", readme)
    assert sorted(listed.split(", ")) == sorted(families)
    assert "stand more than seventy variants" in readme
    assert len(catalogue()) > 70
    bare = [
        law
        for law in laws().values()
        if not law.lacks(frozenset({Capability.BATCH, Capability.ATOMIC, Capability.LOSSLESS}))
    ]
    assert len(bare) == 9
    assert "Nine of\nthe laws need nothing more" in readme


def test_the_finding_in_the_readme_is_what_is_printed() -> None:
    shown = re.search(
        r"```console\n\$ kvref check bug:(\S+) --law (\S+)\n(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    assert shown is not None
    bug, law, finding = shown.groups()
    assert finding.strip() == str(try_law(law, bug, Effort()).finding)


def test_the_code_in_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    tokens = torch.zeros(1, 3, dtype=torch.long)
    model = loud(GPTConfig(8, 7, 1, 1, 4))
    exec(code, {"model": model, "tokens": tokens})  # what it shows a reader has to work as it stands


def test_the_bug_in_the_readme_is_found_by_its_file_alone(tmp_path: Path) -> None:
    (code,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "crop_loses_a_token.py").write_text(code)
    (target,) = resolve(f"{tmp_path / 'crop_loses_a_token.py'}:bug", BENCH)
    outcome = search(laws()["crop-equals-never-having-appended"], target, Effort(shrink=False))
    assert outcome.status is Status.BROKEN


def test_the_expected_finding_in_the_readme_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (table,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tmp_path / "pyproject.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    (expected,) = expected_by_project()
    assert expected.law in laws()
    assert expected.reason == "its window is meant to forget, since 2026-11-30"
