"""The report of a check as one page of HTML: it needs no network, runs no script, and prints."""

import platform
from collections.abc import Sequence
from string import Template
from typing import TYPE_CHECKING

import torch

import kvref
from kvref.bug import catalogue
from kvref.case import Case
from kvref.diagnosis.diagnose import Diagnosis
from kvref.expected import reason_for
from kvref.finding import Finding
from kvref.markup import Markup, joined, tag
from kvref.operations import count
from kvref.plot import plot
from kvref.search import Outcome, Status
from kvref.targets import Named

if TYPE_CHECKING:
    from kvref.checked import Checked

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
$body
</body>
</html>
""")

STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b6470; --line: #d5dae1; --back: #fff; --box: #f5f7f9;
  --good: #18794e; --bad: #c01f2e; --odd: #8a5a00; }
@media screen and (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --soft: #a3adb9; --line: #3a424c;
  --back: #14171b; --box: #1d2228; --good: #4cc38a; --bad: #ff7b83; --odd: #f0b44c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; color: var(--text); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; }
p { margin: .4rem 0; } a { color: inherit; } .soft, figcaption { color: var(--soft); }
code, .mono, ol, dd { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; }
.held, .caught { color: var(--good); }
.broken, .raised, .meddled, .died, .timed-out, .survived { color: var(--bad); font-weight: 600; }
.skipped, .blocked { color: var(--soft); } .vacuous, .cut-short, .undecided { color: var(--odd); font-weight: 600; }
table { width: 100%; border-collapse: collapse; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; } td.status, td.number, th.number { white-space: nowrap; }
td.number, th.number { text-align: right; }
section.finding { background: var(--box); border: 1px solid var(--line); border-left: 4px solid var(--bad);
  border-radius: 4px; padding: .2rem 1.2rem 1rem; margin: 1rem 0; }
section.known { border-left-color: var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; } dd.words { font-family: inherit; font-size: inherit; }
ol { margin: 0; padding-left: 2rem; } li.wrong { color: var(--bad); font-weight: 600; }
li.wrong span { font: 600 .85em system-ui, sans-serif; border: 1px solid; border-radius: 3px; padding: 0 .4em;
  margin-left: .6em; }
figure { margin: 1rem 0 0; } svg { width: 100%; height: auto; max-width: 45rem; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg text.first { fill: var(--bad); font-weight: 600; }
svg line.grid { stroke: var(--line); } svg line.floor { stroke: var(--soft); stroke-dasharray: 5 4; }
svg line.first { stroke: var(--bad); } svg circle { stroke-width: 1.5; }
svg circle.wrong { fill: var(--bad); stroke: var(--bad); } svg circle.right { fill: var(--back); stroke: var(--good); }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } section.finding, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; } }
"""


def page(checked: "Checked") -> str:
    """The whole page."""
    title = f"kvref: {checked.verdict}"
    findings = [outcome for outcome in checked.outcomes if outcome.finding]
    body = [
        tag("h1", title),
        *head(checked),
        targets(checked.targets),
        *(laws(target, checked) for target in checked.targets),
        *(looks_like(said) for said in checked.diagnoses),
        *([tag("h2", "Findings")] if findings else []),
        *(section(outcome, checked) for outcome in findings),
        bugs(checked),
        tag("p", checked.strength, class_="soft") if checked.strength else "",
    ]
    names = ", ".join(target.name for target in checked.targets)
    return PAGE.substitute(title=joined(f"{title} - {names}"), style=STYLE, body=joined(*body))


def head(checked: "Checked") -> list[Markup]:
    """What was run, with what, and what is amiss beside the findings."""
    bench, seconds = checked.bench, f"{checked.seconds:.1f} s"
    versions = f"kvref {kvref.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    lines = [tag("p", f"{versions}, {bench.device}; lens {bench.lens}; {checked.effort}; {seconds}", class_="soft")]
    totals = [(status, sum(outcome.status is status for outcome in checked.outcomes)) for status in Status]
    said = [tag("span", f"{number} {status}", class_=class_of(status)) for status, number in totals if number]
    lines.append(tag("p", *separated(said)) if said else tag("p", "Nothing ran."))
    if checked.stopped:
        lines.append(tag("p", "Stopped before the end: what is here was done.", class_="undecided"))
    return lines + [tag("p", f"No longer there, though expected: {known}") for known in checked.unmet]


def separated(parts: Sequence[Markup]) -> Sequence[object]:
    """Parts with commas between."""
    return [piece for part in parts for piece in (", ", part)][1:]


def class_of(status: Status) -> str:
    """The class that gives a status its colour."""
    return status.replace(" ", "-")


def table(heads: Sequence[Markup], rows: Sequence[Markup]) -> Markup:
    """A table with a line of heads."""
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))


def targets(these: Sequence[Named]) -> Markup:
    """What was checked, and what it offers; what it refuses, with its reasons."""
    rows = list[Markup]()
    for target in these:
        refused = [tag("p", f"{name}: {why}", class_="soft") for name, why in sorted(target.refusals().items())]
        offers = ", ".join(sorted(target.capabilities())) or "nothing more than a decoder has to"
        rows.append(tag("tr", tag("td", tag("code", target.name)), tag("td", offers), tag("td", *refused)))
    heads = [tag("th", name) for name in ("target", "offers", "refuses")]
    return joined(tag("h2", "Targets"), table(heads, rows))


def laws(target: Named, checked: "Checked") -> Markup:
    """What came of each law on a target, and why."""
    rows = [law(outcome, checked) for outcome in checked.outcomes if outcome.target == target.name]
    heads = [tag("th", "law"), tag("th", "status"), tag("th", "examples", class_="number"), tag("th", "why")]
    return joined(tag("h2", "Laws on ", tag("code", target.name)), table(heads, rows))


def law(outcome: Outcome, checked: "Checked") -> Markup:
    """What came of one law."""
    why = joined(outcome.reason)
    if outcome.finding:
        known = reason_for(outcome, checked.expected)
        why = tag("a", str(outcome.finding.divergence), href=f"#{anchor(outcome.finding)}")
        why = joined(f"expected: {known}; ", why) if known else why
    return tag(
        "tr",
        tag("td", outcome.law.name, title=outcome.law.sentence),
        tag("td", outcome.status, class_=f"status {class_of(outcome.status)}"),
        tag("td", outcome.examples, class_="number"),
        tag("td", why),
    )


def looks_like(said: Diagnosis) -> Markup:
    """Which known bugs a target looks like, each with what is wrong in it."""
    heading = tag("h2", "What ", tag("code", said.target), " looks like")
    if not said.named:
        return joined(heading, tag("p", str(said)))
    known = catalogue()
    rows = [
        tag(
            "tr",
            tag("td", f"{guess.score:.2f}", class_="number"),
            tag("td", guess.bug),
            tag("td", known[guess.bug].wrong),
        )
        for guess in said.named
    ]
    heads = [tag("th", "score", class_="number"), tag("th", "bug"), tag("th", "what is wrong in it")]
    return joined(heading, tag("p", said.evidence), table(heads, rows))


def anchor(finding: Finding) -> str:
    """Where on the page a finding is."""
    return f"case-{Case.of(finding).id}"


def section(outcome: Outcome, checked: "Checked") -> Markup:
    """A finding: its schedule with the first wrong step marked, all that is said of it, and its plot."""
    finding = outcome.finding
    assert finding is not None
    known = reason_for(outcome, checked.expected)
    parts = [tag("h3", finding.headline())]
    parts += [tag("p", f"Expected: {known}.")] if known else []
    rows = finding.details()
    entries = [entry(label, text) for label, text in rows[:2]]
    entries.append(joined(tag("dt", "schedule"), tag("dd", schedule(finding))))
    entries += [entry(label, text) for label, text in rows[2:]]
    entries.append(entry("case", f"kvref replay {Case.of(finding).id}"))
    parts += [tag("dl", *entries), plot(finding)]
    return tag("section", *parts, id=anchor(finding), class_="finding known" if known else "finding")


def entry(label: str, text: str) -> Markup:
    """One of the things that are said of a finding."""
    return joined(tag("dt", label), tag("dd", text, class_="words" if label == "law" else None))


def schedule(finding: Finding) -> Markup:
    """The operations as a numbered list."""
    mark = tag("span", "first wrong step")
    steps = [
        tag("li", op, mark, class_="wrong") if index == finding.divergence.step else tag("li", op)
        for index, op in enumerate(finding.schedule.ops)
    ]
    return tag("ol", *steps)


def bugs(checked: "Checked") -> Markup:
    """Which bugs of the catalogue were caught, and by what; nothing where none was tried."""
    if not checked.kills:
        return Markup()
    rows = list[Markup]()
    for kill in checked.kills:
        by = (
            f"{kill.cell.law}, at example {kill.cell.killed_after}"
            if kill.cell
            else f"none of {count(kill.tried, 'law')}"
        )
        mark = "caught" if kill.cell else "survived"
        rows.append(tag("tr", tag("td", kill.bug), tag("td", mark, class_=f"status {mark}"), tag("td", by)))
    caught = sum(kill.cell is not None for kill in checked.kills)
    heads = [tag("th", name) for name in ("bug", "status", "by")]
    return joined(tag("h2", f"Bugs: {caught} of {len(checked.kills)} caught"), table(heads, rows))
