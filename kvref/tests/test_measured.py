"""The figures in the README are those that were measured; the outputs of the commands lie beside this file."""

import re
from pathlib import Path

import pytest

from kvref.bug import catalogue
from kvref.matrix.reliability import upper_bound
from kvref.tests.test_packaging import ROOT

MEASURED = Path(__file__).parent / "measured"

pytestmark = pytest.mark.skipif(not (ROOT / "README.md").exists(), reason="installed without its repository")


def readme() -> str:
    """The README as one line of words."""
    return " ".join((ROOT / "README.md").read_text().split())


def reliability() -> dict[str, tuple[int, int]]:
    """Seeds that killed each bug, of so many."""
    lines = (MEASURED / "reliability.txt").read_text().splitlines()
    row = r"(\S+) +killed with (\d+) of (\d+) seeds, misses at most [\d.]+%  .*"
    found = [re.fullmatch(row, line) for line in lines]
    return {match[1]: (int(match[2]), int(match[3])) for match in found if match}


def test_the_reliability_in_the_readme_is_what_was_measured() -> None:
    measured = reliability()
    # What was added since is not measured yet; what is there has been.
    assert set(measured) <= set(catalogue())
    assert {seeds for _, seeds in measured.values()} == {1000}
    missed = sum(seeds - killed for killed, seeds in measured.values())
    bound = max(upper_bound(seeds - killed, seeds) for killed, seeds in measured.values())
    bugs, seeds = len(measured), 1000 * len(measured)
    assert f"with 1,000 seeds for each of {bugs} bugs, {missed or 'none'} of the {seeds:,} missed" in readme()
    assert f"at most {bound:.1%} of all seeds miss any one of them (95%, Clopper and Pearson)" in readme()


def test_the_bits_in_the_readme_are_what_was_measured() -> None:
    text = (MEASURED / "bits.txt").read_text()
    (found,) = re.findall(r"^(\d+) schedules, (\d+) tokens run, differing bits in (\d+)$", text, re.M)
    schedules, tokens, differing = map(int, found)
    assert differing == 0
    assert f"in {schedules:,} schedules, {tokens:,} tokens run, no bit differed" in readme()
