"""A report as one page of HTML, which needs no other file, to open or to publish.

Its style and its script are in page.html.in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from pjrt_hub.kit.conformance import difference, table
from pjrt_hub.kit.conformance.cause import OPS, op_and_types
from pjrt_hub.kit.conformance.verdict import Report, Result, Verdict

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.difference import Change

_SEVERITY = [Verdict(each) for each in ("skip", "unsupported", "pass", "fail", "timeout", "crash")]


def to_html(report: Report, other: Report | None = None) -> str:
    """Make the page of a report; compare it with `other`, a report of another plugin or version."""
    changes = difference.changes(other, report) if other else []
    sections = [
        *_head(report),
        *_facts(report),
        *_hosts(report),
        *(_comparison(other, changes) if other else ()),
        *_areas(report),
        *_matrix(report),
        *_defects(report),
        *_all(report),
    ]
    template = Template(Path(__file__).with_name("page.html.in").read_text("utf-8"))
    return template.substitute(name=escape(report.plugin.name), sections="\n".join(sections))


def _head(report: Report) -> Iterator[str]:
    yield f"<h1>{escape(report.plugin.name)}</h1>"
    verdict = "fail" if report.defects else "pass"
    of = f"pjrt-hub {escape(report.pjrt_hub)}, {escape(report.date)}"
    yield f"<p>{_chip(verdict, table.outcome(report))}"
    yield f'<span class="dim">PJRT conformance, {of}</span></p>'
    yield _bar(report.results, "bar big")
    yield '<div class="legend">'
    for verdict, count in report.counts.items():
        box = f'<input type="checkbox" value="{verdict}" checked>'
        yield f"<label>{box} {_chip(verdict, f'{count} {verdict}')}</label>"
    yield '<input type="search" placeholder="find a check" aria-label="find a check"></div>'


def _facts(report: Report) -> Iterator[str]:
    plugin = report.plugin
    extensions = (f"{name} ({size} bytes)" for name, size in plugin.extensions.items())
    kinds = [f"{plugin.devices.count(kind)} x {kind}" for kind in dict.fromkeys(plugin.devices)]
    rows = {
        "library": plugin.path,
        "sha256": plugin.sha256,
        "PJRT API": plugin.api_version or "it cannot be loaded",
        "platform": f"{plugin.platform} {plugin.platform_version}",
        "devices": ", ".join(kinds) or "none",
        "through": plugin.layers,
        "described machine": plugin.target,
        "extensions": ", ".join(extensions),
        "attributes": _words(plugin.attributes),
        "create options": _words(plugin.options),
        "machine": report.host,
        "took": f"{report.seconds:.0f} s",
        "interrupted": f"{report.left} checks were not made" if report.left else "",
    }
    told = {name: escape(text) for name, text in rows.items() if text.strip()}
    yield "<h2>The plugin</h2>"
    yield _table("facts", (f"<tr><th>{name}</th><td>{told[name]}</td></tr>" for name in told))


def _hosts(report: Report) -> Iterator[str]:
    told = [each for each in report.results if each.area == "hosts" and (each.notes or each.text)]
    if not told:
        return
    words = ((each.verdict, escape((each.notes or (each.text,))[-1])) for each in told)
    yield "<h2>Hosts</h2>"
    yield _table("results", (f"<tr>{_chip_cell(of)}<td>{text}</td></tr>" for of, text in words))


def _words(values: object) -> str:
    return json.dumps(values, default=str).strip("{}").replace('"', "")


def _comparison(other: Report, changes: Sequence[Change]) -> Iterator[str]:
    plugin = other.plugin
    whose = f"{plugin.name}, PJRT API {plugin.api_version or 'unknown'}, of {other.date}"
    yield f"<h2>Against {escape(whose)}</h2>"
    if not changes:
        yield "<p>The verdicts of the checks that both have are the same.</p>"
    rest = [each for each in changes if each.trend is difference.Trend.OTHER]
    yield from _changes([each for each in changes if each.trend is not difference.Trend.OTHER])
    if rest:
        yield f"<details><summary>{len(rest)} other differences</summary>"
        yield from _changes(rest)
        yield "</details>"


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    yield _table("results", (_row(each.trend, each.name, escape(each.text)) for each in changes))


def _areas(report: Report) -> Iterator[str]:
    yield '<h2>Areas</h2><table class="areas">'
    for area, results in report.areas():
        passed = sum(each.verdict is Verdict.PASS for each in results)
        defects = sum(each.verdict.is_defect for each in results)
        count = f"{defects} defect{'s' * (defects > 1)}" if defects else ""
        yield (
            f'<tr><td><a href="#{escape(area)}">{escape(area)}</a></td><td>{_bar(results)}</td>'
            f'<td class="number">{passed} of {len(results)} pass</td>'
            f'<td class="number">{count}</td></tr>'
        )
    yield "</table>"


def _chip(style: str, words: str) -> str:
    return f'<span class="chip {style}">{words}</span>'


def _table(style: str, rows: Iterable[str]) -> str:
    return "\n".join([f'<table class="{style}">', *rows, "</table>"])


def _row(style: str, name: str, cell: str) -> str:
    """Write a row: a verdict or a trend, a check's name, and a cell of HTML about it."""
    cells = f'{_chip_cell(style)}<td class="name">{escape(name)}</td><td>{cell}</td>'
    return f'<tr class="{style}">{cells}</tr>'


def _chip_cell(style: str) -> str:
    return f"<td>{_chip(style, style)}</td>"


def _bar(results: Iterable[Result], style: str = "bar") -> str:
    counts = Counter(each.verdict for each in results)
    parts = "".join(
        f'<i class="{verdict}" style="flex:{count}" title="{count} {verdict}"></i>'
        for verdict in Verdict
        if (count := counts[verdict])
    )
    return f'<div class="{style}">{parts}</div>'


def _defects(report: Report) -> Iterator[str]:
    if not report.defects:
        return
    yield "<h2>Causes of defects</h2>"
    for each in report.defects:
        number = f' <span class="dim">no.&nbsp;{each.number}</span>' if each.number else ""
        yield (
            f'<div class="card {each.verdict}"><p>{_chip(each.verdict, each.verdict)} '
            f'<span class="name">{escape(each.name)}</span>{number}</p>'
            f'<p class="dim">{escape(each.title)}</p><p>{escape(each.text)}</p>'
        )
        yield from (f'<p class="dim">{escape(note)}</p>' for note in each.notes)
        if hidden := report.hidden(each.name):
            names = escape(", ".join(other.name for other in hidden))
            counted = table.count_hidden(hidden)
            yield f"<details><summary>{counted}</summary><p>{names}</p></details>"
        if each.words:
            yield f"<details><summary>its last output</summary><pre>{escape(each.words)}</pre>"
            yield "</details>"
        yield "</div>"


def _matrix(report: Report) -> Iterator[str]:
    """Yield a table of ops by element types: each cell has the worst verdict of its checks."""
    cells: dict[tuple[str, str], list[Result]] = {}
    for each in report.results:
        if each.area == OPS:
            op, (source, *_) = op_and_types(each)
            cells.setdefault((op, source), []).append(each)
    if not cells:
        return
    kinds = list(dict.fromkeys(kind for _, kind in cells))
    yield '<h2>Ops by element type</h2><div class="scroll"><table class="matrix"><thead><tr>'
    yield "".join(f"<th>{escape(kind)}</th>" for kind in ("", *kinds)) + "</tr></thead><tbody>"
    for op in sorted({op for op, _ in cells}):
        row = (_cell(cells.get((op, kind), [])) for kind in kinds)
        yield f"<tr><th>{escape(op)}</th>{''.join(row)}</tr>"
    yield "</tbody></table></div>"


def _cell(results: Sequence[Result]) -> str:
    if not results:
        return "<td></td>"
    worst = max(results, key=lambda each: _SEVERITY.index(each.verdict)).verdict
    lines = (f"{each.name}: {each.verdict} {each.text}".strip() for each in results)
    told = escape("\n".join(lines))
    return f'<td><span class="cell {worst}" title="{told}"></span></td>'


def _all(report: Report) -> Iterator[str]:
    yield "<h2>All checks</h2>"
    for area, results in report.areas():
        yield (
            f'<details class="area" id="{escape(area)}"><summary>{escape(area)} '
            f'<span class="dim">{len(results)}</span></summary>'
        )
        yield _table("results", (_row(each.verdict, each.name, _finding(each)) for each in results))
        yield "</details>"


def _finding(result: Result) -> str:
    told = "<br>".join(escape(text) for text in (result.text, *result.notes) if text)
    return f'<span class="dim">{escape(result.title)}</span><br>{told}'
