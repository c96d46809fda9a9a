"""A report as one page of HTML, which needs no other file, to open or to publish."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from pjrt_hub.kit.conformance import difference, table
from pjrt_hub.kit.conformance.cause import OPS, op_and_types
from pjrt_hub.kit.conformance.verdict import Report, Result, Verdict

if TYPE_CHECKING:
    from pjrt_hub.kit.conformance.difference import Change

_SEVERITY = [Verdict(each) for each in ("skip", "unsupported", "pass", "fail", "timeout", "crash")]

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1c2128; --dim: #59636e; --line: #d8dee4; --ground: #fff; --raised: #f6f8fa;
  --pass: #2da44e; --fail: #cf222e; --crash: #8250df; --timeout: #d4791b;
  --unsupported: #8c959f; --skip: #c8ced5; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e2e8ee; --dim: #96a0aa; --line: #323941; --ground: #0f1419; --raised: #171d24;
  --pass: #3fb45f; --fail: #f0574f; --crash: #a67ff5; --timeout: #e0903a;
  --unsupported: #7a838d; --skip: #3d454e; } }
* { box-sizing: border-box } [hidden] { display: none !important }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 72rem; color: var(--ink);
  background: var(--ground); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.7rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem }
a { color: inherit; text-decoration-color: var(--dim) }
code, .name { font-family: ui-monospace, monospace; font-size: .9em }
.dim { color: var(--dim) } p { margin: .25rem 0 }
.bar { display: flex; height: .55rem; border-radius: .3rem; overflow: hidden; gap: 1px;
  background: var(--line) }
.bar.big { height: 1rem; margin: 1.5rem 0 .75rem }
.pass { --of: var(--pass) } .fail { --of: var(--fail) } .crash { --of: var(--crash) }
.timeout { --of: var(--timeout) } .unsupported { --of: var(--unsupported) }
.skip { --of: var(--skip) } .none { --of: var(--line) }
.worse { --of: var(--fail) } .better { --of: var(--pass) } .other { --of: var(--unsupported) }
.bar i, .cell { background: var(--of) }
.chip { display: inline-block; min-width: 6.2em; padding: 0 .6em; border-radius: 1em;
  font-size: .8rem; text-align: center; color: var(--ink);
  background: color-mix(in srgb, var(--of) 28%, transparent) }
.legend { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center }
.legend label { cursor: pointer; user-select: none }
.legend input[type=search] { flex: 1; min-width: 12rem; padding: .3rem .6rem; font: inherit;
  color: inherit; background: var(--raised); border: 1px solid var(--line); border-radius: .4rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .3rem .6rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line) }
th { font-weight: 600; color: var(--dim); white-space: nowrap }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.facts th { width: 11rem } .facts td { overflow-wrap: anywhere }
.areas td:nth-child(2) { width: 45%; vertical-align: middle }
.card { border: 1px solid var(--line); border-left: .3rem solid var(--of); border-radius: .4rem;
  padding: .7rem 1rem; margin: .6rem 0; background: var(--raised); overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0 0; font-size: .82rem }
details { border-bottom: 1px solid var(--line) } .card details { border: 0 }
summary { cursor: pointer; padding: .45rem 0; font-weight: 600 }
.results td:first-child { width: 7.5rem } .results td:nth-child(2) { width: 19rem }
.results td { overflow-wrap: anywhere }
.scroll { overflow-x: auto }
.matrix { width: auto } .matrix th, .matrix td { padding: 1px 2px; border: 0; font-size: .72rem }
.matrix thead th { writing-mode: vertical-rl; transform: rotate(180deg); font-weight: 400 }
.matrix tbody th { font-weight: 400; padding-right: .6rem; position: sticky; left: 0;
  background: var(--ground) }
.cell { display: block; width: 1rem; height: 1rem; border-radius: .2rem }
@media (max-width: 45rem) {
  body { padding: 1.5rem 1rem 3rem } .facts th { width: 8rem }
  .areas tr { display: grid; grid-template-columns: 1fr auto auto; align-items: center;
    border-bottom: 1px solid var(--line) }
  .areas td { border: 0 } .areas td:nth-child(2) { grid-column: 1 / -1; order: 1; width: auto }
  .results, .results tbody { display: block }
  .results tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line) }
  .results td, .results td:nth-child(n) { display: block; width: auto; padding: .1rem 0; border: 0 }
}
"""

_SCRIPT = """
const boxes = [...document.querySelectorAll(".legend input[type=checkbox]")];
const search = document.querySelector("input[type=search]");
const show = () => {
  const verdicts = new Set(boxes.filter(box => box.checked).map(box => box.value));
  const words = search.value.toLowerCase().split(/\\s+/);
  for (const area of document.querySelectorAll("details.area")) {
    let shown = 0;
    for (const row of area.querySelectorAll("tr")) {
      const text = row.textContent.toLowerCase();
      const fits = verdicts.has(row.className) && words.every(word => text.includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    area.hidden = !shown;
    if (search.value) area.open = true;
  }
};
boxes.forEach(box => box.addEventListener("change", show));
search.addEventListener("input", show);
"""


def to_html(report: Report, other: Report | None = None) -> str:
    """Make the page of a report; compare it with `other`, a report of another plugin or version."""
    changes = difference.changes(other, report) if other else []
    name = escape(report.plugin.name)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{name}: PJRT conformance</title><style>{_STYLE}</style></head><body>",
            *_head(report),
            *_facts(report),
            *_hosts(report),
            *(_comparison(other, changes) if other else ()),
            *_areas(report),
            *_matrix(report),
            *_defects(report),
            *_all(report),
            f"<script>{_SCRIPT}</script></body></html>\n",
        ]
    )


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
