"""The page of a check: whole, escaped, in need of nothing else, and with a plot of what is wrong where."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvref.bug import catalogue
from kvref.decoder import Decoder
from kvref.expected import Expected
from kvref.finding import Finding
from kvref.html_report import page
from kvref.markup import Markup, shown, tag
from kvref.matrix.gate import Kill
from kvref.operations import Crop, Extend, Prefill, Start
from kvref.plot import HEIGHT, WIDTH, plot
from kvref.positions import Error, errors_by_position
from kvref.schedule import Schedule
from kvref.search import Outcome, Status
from kvref.tests.helpers import BENCH, reference
from kvref.tests.test_checked import EQUAL, checked
from kvref.tests.test_checked import broken as broken
from kvref.tests.test_checked import held as held
from kvref.tests.test_cli import kvref as kvref

HOSTILE = "<script>alert('\"&\x1b[31m')</script>"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Elements, addresses and text of a page; raises where elements do not close as they opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def every(self, name: str, kind: str | None = None) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag == name and kind in (None, attrs.get("class"))]


def finding_of(outcome: Outcome) -> Finding:
    assert outcome.finding is not None
    return outcome.finding


def test_the_page_shows_all_that_a_check_prints(broken: Outcome, held: Outcome) -> None:
    skipped = replace(held, status=Status.SKIPPED, reason="it has none")
    # One target, for outcomes of another have no table.
    here = [replace(outcome, target="reference:growing") for outcome in (broken, held, skipped)]
    shown = Page(page(checked(*here, kills=[Kill("stale-cache", None, 3, 1.0)])))
    finding = finding_of(broken)
    for text in ("kvref: findings", "1 held", "it has none", "none of 3 laws", "Bugs: 0 of 1 caught", "lens tile"):
        assert text in shown.text
    for text in (finding.headline(), *(said for _, said in finding.details()), *map(str, finding.schedule.ops)):
        assert text in shown.text
    assert len(shown.every("li")) == len(finding.schedule)
    assert [attrs.get("class") for attrs in shown.every("li")].index("wrong") == finding.divergence.step
    (link,) = shown.every("a")
    assert [link["href"]] == [f"#{section['id']}" for section in shown.every("section")]


def test_a_finding_that_is_known_says_so(broken: Outcome) -> None:
    text = Page(page(checked(broken, expected=[Expected(EQUAL, "*", "it is let be")]))).text
    assert "kvref: nothing new, 1 known finding" in text
    assert "Expected: it is let be." in text


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(broken: Outcome) -> None:
    text = page(checked(broken))
    shown = Page(text)
    assert {tag for tag, _ in shown.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base"})
    for _, attrs in shown.tags:
        assert not any(name.startswith("on") or name in ("src", "action", "style", "xlink:href") for name in attrs)
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|://", text)
    assert "default-src 'none'" in text


def test_names_that_are_markup_are_text(broken: Outcome) -> None:
    finding = finding_of(broken)
    hostile = replace(
        finding,
        target=HOSTILE,
        decoder=HOSTILE,
        replay=HOSTILE,
        divergence=replace(finding.divergence, message=HOSTILE),
    )
    outcome = replace(broken, target=HOSTILE, finding=hostile, reason=HOSTILE)
    target = replace(reference(), name=HOSTILE)
    one = replace(checked(outcome, expected=[Expected(EQUAL, "*", HOSTILE)]), targets=[target])
    text = page(one)
    shown = Page(text)
    assert not shown.every("script")
    assert "\x1b" not in text
    said = HOSTILE.replace("\x1b", "\ufffd")
    assert shown.text.count(said) >= 7
    assert "<script" not in one.to_markdown().replace(str(hostile), "")


def test_markup_is_escaped_once_and_what_cannot_be_shown_is_marked() -> None:
    inner = tag("b", "1 < 2")
    assert tag("a", inner, "&", href='"', text_anchor=None) == '<a href="&quot;"><b>1 &lt; 2</b>&amp;</a>'
    assert shown("a\x07\ud800\n") == "a\ufffd\ufffd\n"
    assert isinstance(inner, Markup)


def test_errors_are_those_of_each_position(broken: Outcome) -> None:
    """A position that is not moved on by the past is wrong wherever there is one."""
    schedule = Schedule((Start(1), Extend(((1, 2),)), Extend(((3,),)), Extend(((4,),))))
    decoder = catalogue()["missing-position-offset"].target(BENCH).decoders()[0]
    errors = errors_by_position(decoder, schedule)
    seen = [(error.step, error.position, error.gap > 0) for error in errors]
    assert seen == [(2, 0, False), (2, 1, False), (3, 2, True), (4, 3, True)]
    finding = finding_of(broken)
    (first, *_) = (error for error in finding.errors if error.gap)
    assert (first.step, first.row, first.position) == tuple(number for _, number in finding.divergence.places())
    assert first.gap == finding.divergence.gap


def test_a_healthy_decoder_has_no_errors_and_padding_is_no_position() -> None:
    decoder: Decoder = reference().decoders()[0]
    schedule = Schedule((Start(2), Prefill(((1, 2, 3), (1,)), 1), Extend(((2,), (3,))), Crop(1), Extend(((4,), (5,)))))
    errors = errors_by_position(decoder, schedule)
    assert {error.gap for error in errors} == {0.0}
    places = [(error.step, error.row, error.position) for error in errors]
    assert places == [(2, 0, 0), (2, 0, 1), (2, 0, 2), (2, 1, 0), (3, 0, 3), (3, 1, 1), (5, 0, 1), (5, 1, 1)]


@pytest.mark.parametrize("gaps", [[0.0], [math.inf, 0.0], [1e-300, 1e300], [0.0, 3e-8, 0.5, 0.5]])
def test_every_error_has_a_place_on_the_plot(broken: Outcome, gaps: list[float]) -> None:
    errors = tuple(Error(2, n % 2, n // 2, gap) for n, gap in enumerate(gaps))
    drawn = plot(replace(finding_of(broken), errors=errors))
    shown = Page(drawn)
    wrong = sum(gap > 0 for gap in gaps)
    assert len(shown.every("circle", "wrong")) == wrong
    assert len(shown.every("circle", "right")) == len(gaps) - wrong
    assert len(shown.every("line", "first")) == bool(wrong)
    numbers = [
        (name, float(value or ""))
        for _, attrs in shown.tags
        for name, value in attrs.items()
        if name[0] in "cxy" and name != "class"
    ]
    for name, value in numbers:
        assert 0 <= value <= (WIDTH if "x" in name else HEIGHT)
    heights = [float(circle["cy"] or "") for circle in shown.every("circle")]
    assert sorted(heights, reverse=True) == [height for _, height in sorted(zip(gaps, heights, strict=True))]
    assert (f"{wrong} of" in drawn) == bool(wrong)
    assert ("what is wrong is not in them" in drawn) != bool(wrong)


def test_without_logits_there_is_no_plot(broken: Outcome) -> None:
    assert not plot(replace(finding_of(broken), errors=()))


def test_a_check_writes_its_page(kvref: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    args = ("--law", EQUAL, "--cache", "growing", "--examples", "12")
    assert kvref("check", "bug:missing-position-offset", *args)[0] == 1
    text = (tmp_path / ".kvref/report.html").read_text()
    shown = Page(text)
    assert "2 of 2" not in text
    assert len(shown.every("svg")) == 1
    assert str(tmp_path) not in text
    assert BENCH.lens in text
