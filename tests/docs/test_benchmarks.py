"""The benchmarks' record, page, charts and gate; nothing is timed."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .conftest import ROOT, printed

BENCHMARKS = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
CHARTS = ROOT / "docs" / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"
#: Markup that would load or run something. An address that begins with # is in the same file.
HOST = re.compile(
    r"(?:href=.(?!#)|src|url\((?!#)|@import|<script|<image|foreignObject|<!)", re.IGNORECASE
)

#: Code that writes a record of two parts with different dates, with a missed bar and a met aim.
WRITTEN = """
from dataclasses import replace
import machine, record, report

rows = {
    "2 → 1, tanh(a·b+1)": {"raw C µs": 1.34049, "pjrt-hub µs": 1.5, "jax.jit µs": 123.456},
    "absent": {"raw C µs": 2.0},
}
bars = (
    report.Bar("a call", "2 → 1, tanh(a·b+1)", "pjrt-hub µs", 1.6, 1.55),
    report.Bar("a far aim", "2 → 1, tanh(a·b+1)", "pjrt-hub µs", 1.6, 1.2),
    report.Bar("a missed one", "2 → 1, tanh(a·b+1)", "raw C µs", 1.3),
)
plot = report.Plot("growth", "Growth <of> it", "bytes", "µs",
    {"ours": [(4, 1.0), (1 << 28, 1.25)], "theirs": [(4, 1.0), (1 << 28, 2e5)]},
    x_names={4: "4 B", 1 << 28: "256 MB"})
section = report.Section("A call", "A note.", rows, bars, (plot,), "Why it is missed.")
elsewhere = {"pjrt-hub": {"a call µs": 3.0}, "pypjrt": {"a call µs": 6.0}}
peers = report.Section("Peers", "More.", elsewhere)
other = report.Section("Starting", "Another.", {"pass": {"ms": 10.0}})
here = machine.Machine("a processor", 2, "performance", "Linux 6", "CPython 3", {"jax": ""}, (0.5,))
path = Path(sys.argv[1])
record.keep(path, "start", record.Part("2026-01-01", here, (replace(other, title="Old"),)))
record.keep(path, "call", record.Part("2026-01-02", replace(here, cpus=4), (section, peers)))
record.keep(path, "start", record.Part("2026-01-03", here, (other,)))
"""


def child(code: str, *words: object) -> str:
    """The output of code in a child, because names of benchmark modules could clash with tests'."""
    begin = f"import json, sys; sys.path.insert(0, {str(BENCHMARKS)!r})\nfrom pathlib import Path\n"
    return printed("-c", begin + code, *words)


#: The begin of code that uses the record at the path `sys.argv[1]`.
HELD = "import page, record\nheld = record.read(Path(sys.argv[1]))\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("record") / "figures.json"
    child(WRITTEN, path)
    return path


def charts(path: Path) -> dict[str, str]:
    pytest.importorskip("matplotlib", reason="matplotlib draws the charts: nox -s docs has it")
    return json.loads(child(f"{HELD}print(json.dumps(page.charts(held)))", path))


@pytest.fixture(scope="module")
def drawn(written) -> dict[str, ET.Element]:
    return {name: ET.fromstring(svg) for name, svg in charts(written).items()}


def of_parts(chart: ET.Element, begin: str, tag: str) -> list[ET.Element]:
    """The elements with a tag in the groups whose id begins with a prefix."""
    groups = [each for each in chart.iter() if each.get("id", "").startswith(begin)]
    return [each for group in groups for each in group.iter(f"{SVG}{tag}")]


def corners(path: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] ?(\S+) ([\d.]+)", path.attrib["d"])]


def words(chart: ET.Element) -> list[str | None]:
    return [each.text for each in chart.iter(f"{SVG}text")]


def test_the_page_is_made_of_the_record():
    held = "*map(record.read, (page.RECORD, page.SAME_XLA))"
    shown = child(f"import page, record; print(page.text({held}), end='')")
    assert shown == PAGE.read_text("utf-8"), "python benchmarks/page.py"
    named = set(re.findall(r"\(benchmarks/(\w+\.svg)\)", shown))
    assert {path.name for path in CHARTS.glob("*.svg")} == named
    assert {"one_call.svg", "starting.svg"} < named


def test_the_charts_are_made_of_the_record():
    shown = {path.name: path.read_text("utf-8") for path in CHARTS.glob("*.svg")}
    assert charts(CHARTS / "figures.json") == shown, "python benchmarks/page.py"


def test_a_record_keeps_the_last_of_each_benchmark_in_four_digits(written, tmp_path):
    held = json.loads(written.read_text("utf-8"))["benchmarks"]
    assert list(held) == ["call", "start"]
    assert [section["title"] for section in held["start"]["sections"]] == ["Starting"]
    assert (held["call"]["date"], held["start"]["date"]) == ("2026-01-02", "2026-01-03")
    section, _ = held["call"]["sections"]
    figures = {"raw C µs": 1.34, "pjrt-hub µs": 1.5, "jax.jit µs": 123.5}
    assert section["rows"]["2 → 1, tanh(a·b+1)"] == figures
    assert section["plots"][0]["series"]["ours"] == [[4, 1], [1 << 28, 1.25]]
    again = tmp_path / "again.json"
    child(f"{HELD}record.write(Path(sys.argv[2]), held)", written, again)
    assert again.read_bytes() == written.read_bytes()


def test_the_front_page_repeats_the_record(written):
    code = (
        f"{HELD}page.REPEATED = {{'a call, times C': ('A call', '2 → 1, tanh(a·b+1)', "
        "'pjrt-hub µs'), 'a fetch': ('Fetching', '', '')}\n"
        "print(page.front(sys.argv[2], held), end='')"
    )
    before = "text\n| a call, times C | 9.99 |\n| a fetch | 0.63 |\n| a call | 1 |\n"
    after = before.replace("9.99", "1.50")
    assert child(code, written, before) == after


def test_the_front_page_has_the_figures_of_the_last_record():
    code = "import page, record\n"
    code += "shown = page.FRONT.read_text('utf-8')\n"
    code += "same = page.front(shown, record.read(page.RECORD)) == shown\n"
    code += "print(json.dumps([same, [f'| {what} |' in shown for what in page.REPEATED]]))"
    assert json.loads(child(code)) == [True, [True] * 6], "python benchmarks/page.py"


def test_what_was_measured_beside_another_jax_has_tables_of_its_own(written):
    lines = child(f"{HELD}print(page.text(held, held), end='')", written).splitlines()
    at = lines.index("## Beside JAX of the same XLA")
    assert lines.index("## Starting") < at < lines.index("### A call, beside JAX of the same XLA")
    assert lines.count("| 2 → 1, tanh(a·b+1) | 1.34 | 1.50 | 124 |") == 2
    assert "- a processor, 4 CPUs, governor performance, Linux 6" in lines[at:]


def test_the_page_shows_bars_with_aims_and_tables_and_each_machine_once(written):
    page = child(f"{HELD}print(page.text(held), end='')", written)
    lines = page.splitlines()
    assert "| a call | 1.50 | 1.60 | 1.55 | aim reached |" in lines
    assert "| a far aim | 1.50 | 1.60 | 1.20 | met |" in lines
    assert "| a missed one | 1.34 | 1.30 |  | [**missed**](#a-call) |" in lines
    assert "**Missed.** Why it is missed." in lines
    below = lines[lines.index("## A call") :]
    assert below[2] == "A note."
    assert "| what | raw C µs | pjrt-hub µs | jax.jit µs |" in below
    assert "| 2 → 1, tanh(a·b+1) | 1.34 | 1.50 | 124 |" in below
    assert "| absent | 2.00 |  |  |" in below
    assert "![Growth <of> it](benchmarks/growth.svg)" in below
    [told] = re.findall(r"## Where and when\n(.*?)\n## ", page, re.DOTALL)
    assert told.count("a processor, 4 CPUs, governor performance, Linux 6") == 1
    assert "On 2026-01-02, at a load average of 0.50:\n`call`." in told
    assert "On 2026-01-03, at a load average of 0.50:\n`start`." in told
    assert "2026-01-01" not in told


def test_a_chart_is_small_and_loads_nothing():
    for path in CHARTS.glob("*.svg"):
        svg = path.read_text("utf-8")
        assert len(svg.encode()) < 20_000, path
        assert not HOST.search(svg), path
        lit, _, dark = svg.partition("<style>@media (prefers-color-scheme:dark)")
        colours = set(re.findall(r"(?:fill|stroke): #\w+", lit + dark.partition("</style>")[2]))
        assert colours == set(re.findall(r'\[style\*="(.*?)"\]', dark)), path


def test_bars_have_the_lengths_of_their_figures(drawn):
    chart = drawn["one_call.svg"]
    assert "1.34 µs" in words(chart)
    assert "1.50 µs, 1.12 times" in words(chart)
    assert "3.00 µs, 2.24 times" in words(chart), "6 µs of a process where pjrt-hub took 3"
    _ground, _axes, *bars = of_parts(chart, "patch", "path")
    floor, ours, *others = [corners(bar)[1][0] - corners(bar)[0][0] for bar in bars]
    assert ours / floor == pytest.approx(1.5 / 1.34, rel=0.01)
    assert max(others) < floor * 4, "the bar of 123 µs is cut"
    assert len(of_parts(chart, "cut", "path")) == 1


def test_lines_go_through_their_points(drawn):
    chart = drawn["growth.svg"]
    (ours_first, ours_last), (theirs_first, theirs_last) = [
        corners(of_parts(chart, name, "path")[0]) for name in ("ours", "theirs")
    ]
    assert ours_first == theirs_first
    assert ours_last[0] == theirs_last[0] > ours_first[0]
    assert theirs_last[1] < ours_last[1] < ours_first[1]
    points = [(each.get("x"), each.get("y")) for each in of_parts(chart, "ours", "use")]
    assert [(float(x), float(y)) for x, y in points] == [ours_first, ours_last]
    assert {"Growth <of> it", "4 B", "256 MB", "ours", "theirs", "bytes", "µs"} <= set(words(chart))


GATE = """
import gate, machine, record, report
runs = json.loads(sys.argv[1])
here = machine.Machine("", 1, "", "", "", {})
def run(name):
    value = runs[name].pop(0)
    if value is None:
        return None
    bars = (report.Bar("what", "row", "column", 1.0, 0.5),)
    section = report.Section("t", "n", {"row": {"column": value}}, bars)
    return record.Part("2026-01-01", here, (section,))
verdicts, without = gate.judge(runs, run)
print(json.dumps([[(each.benchmark, each.holds, each.values) for each in verdicts], without, runs]))
print(gate.told(verdicts, without))
"""


@pytest.mark.parametrize(
    ("values", "holds", "seen"),
    [
        ([0.9], True, [0.9]),
        ([1.0], True, [1.0]),
        ([1.2, 0.8], True, [1.2, 0.8]),
        ([1.2, 1.1], False, [1.2, 1.1]),
        ([None, 0.9], True, [0.9]),
        ([1.2, None], False, [1.2]),
    ],
)
def test_the_gate_measures_what_is_missed_once_more(values, holds, seen):
    judged = child(GATE, json.dumps({"call": values})).splitlines()[0]
    assert json.loads(judged) == [[["call", holds, seen]], [], {"call": []}]  # all runs were used


def test_the_gate_tells_both_figures_and_where_to_look():
    out = child(GATE, json.dumps({"call": [1.2, 1.1], "start": [0.4], "compile": [None, None]}))
    assert re.search(r"^FAIL +1\.20 then 1\.10 +1\.00 +0\.50 +call: what$", out, re.MULTILINE)
    assert re.search(r"^pass +0\.40 +1\.00 +0\.50 +start: what$", out, re.MULTILINE)
    assert "hint: call: python benchmarks/instructions.py" in out
    assert "compile gave no figures" in out
    assert "hint: start" not in out


def test_the_gates_are_benchmarks_and_children_see_the_installed_package():
    """`python -c` looks into the working directory first, and a checkout is not compiled."""
    found = child("import gate, session; print(*sorted(set(gate.GATES) - set(session.names())))")
    assert found.split() == []
    texts = {file.name: file.read_text("utf-8") for file in BENCHMARKS.glob("*.py")}
    starting = {name for name, text in texts.items() if '"-c"' in text}
    assert {"compile.py", "start.py", "weights.py"} <= starting
    assert {name for name in starting if 'cwd="/"' not in texts[name]} == set()


#: 12 instructions of a library, 30 of code that was made at run time, and a call between them.
PROFILE = """\
# callgrind format
version: 1
events: Ir

ob=(2) /opt/lib/libpython3.11.so.1.0
fl=(1) ceval.c
fn=(1) run
10 4
+2 3
cob=(3) ???
cfi=(2) ???
cfn=(2) 0x00000000
calls=2 0
* 30
-1 5

ob=(3)
fl=(2)
fn=(2)
0 10
* 20

totals: """


def test_what_a_call_takes_is_counted_where_it_was_spent():
    """A profile that cannot be read completely is refused."""
    code = "import callgrind\nprint(json.dumps(callgrind.by_file(sys.argv[1])))"
    counts = json.loads(child(code, f"{PROFILE}42\n"))
    assert counts == {"libpython3.11.so.1.0": 12, "???": 30}
    refused = "import callgrind\ntry: callgrind.by_file(sys.argv[1])\n"
    refused += "except ValueError as exc: print(exc)"
    assert "42 instructions, its total is 43" in child(refused, f"{PROFILE}43\n")
