"""The benchmarks' record, page, charts and gate; nothing is timed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
CHARTS = ROOT / "docs" / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"
#: What would load or run something; what begins with # is in the file itself.
HOST = re.compile(
    r"(?:href=.(?!#)|src|url\((?!#)|@import|<script|<image|foreignObject|<!)", re.IGNORECASE
)

#: A record by hand: one part older than the other, a missed bar, an aim that is reached.
WRITTEN = """
from dataclasses import replace
from pathlib import Path
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
    """What code prints: the benchmarks' modules have names as short as those of tests."""
    begin = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
    command = [sys.executable, "-c", begin + code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("record") / "figures.json"
    child(WRITTEN, path)
    return path


@pytest.fixture(scope="module")
def page(written) -> str:
    code = "import page, record; from pathlib import Path\n"
    return child(f"{code}print(page.text(record.read(Path(sys.argv[1]))), end='')", written)


def charts(path: Path) -> dict[str, str]:
    """A chart's file name -> its text."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the charts: nox -s docs has it")
    code = "import json, page, record; from pathlib import Path\n"
    return json.loads(
        child(f"{code}print(json.dumps(page.charts(record.read(Path(sys.argv[1])))))", path)
    )


@pytest.fixture(scope="module")
def drawn(written) -> dict[str, ET.Element]:
    return {name: ET.fromstring(svg) for name, svg in charts(written).items()}


def of_parts(chart: ET.Element, begin: str, tag: str) -> list[ET.Element]:
    """The elements of a tag in the groups whose id begins so."""
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


def test_a_benchmark_that_is_measured_again_takes_its_own_place(written):
    held = json.loads(written.read_text("utf-8"))["benchmarks"]
    assert list(held) == ["call", "start"]
    assert [section["title"] for section in held["start"]["sections"]] == ["Starting"]
    assert (held["call"]["date"], held["start"]["date"]) == ("2026-01-02", "2026-01-03")


def test_figures_are_kept_in_four_digits(written):
    section, _ = json.loads(written.read_text("utf-8"))["benchmarks"]["call"]["sections"]
    assert section["rows"]["2 → 1, tanh(a·b+1)"] == {
        "raw C µs": 1.34,
        "pjrt-hub µs": 1.5,
        "jax.jit µs": 123.5,
    }
    assert section["plots"][0]["series"]["ours"] == [[4, 1], [1 << 28, 1.25]]


def test_reading_a_record_and_writing_it_changes_nothing(written, tmp_path):
    again = tmp_path / "again.json"
    code = "import record; from pathlib import Path\n"
    child(f"{code}record.write(Path(sys.argv[2]), record.read(Path(sys.argv[1])))", written, again)
    assert again.read_bytes() == written.read_bytes()


def test_a_bar_is_shown_with_its_aim(page):
    lines = page.splitlines()
    assert "| a call | 1.50 | 1.60 | 1.55 | aim reached |" in lines
    assert "| a far aim | 1.50 | 1.60 | 1.20 | met |" in lines
    assert "| a missed one | 1.34 | 1.30 |  | [**missed**](#a-call) |" in lines
    assert "**Missed.** Why it is missed." in lines


def test_the_front_page_repeats_the_record(written):
    code = (
        "import page, record; from pathlib import Path\n"
        "held = record.read(Path(sys.argv[1]))\n"
        "page.REPEATED = {'a call, times C': ('A call', '2 → 1, tanh(a·b+1)', 'pjrt-hub µs'), "
        "'a fetch': ('Fetching', '', '')}\n"
        "print(page.front(sys.argv[2], held), end='')"
    )
    before = "text\n| a call, times C | 9.99 |\n| a fetch | 0.63 |\n| a call | 1 |\n"
    after = before.replace("9.99", "1.50")
    assert child(code, written, before) == after


def test_the_front_page_has_the_figures_of_the_last_record():
    code = "import json, page, record\n"
    code += "shown = page.FRONT.read_text('utf-8')\n"
    code += "same = page.front(shown, record.read(page.RECORD)) == shown\n"
    code += "print(json.dumps([same, [f'| {what} |' in shown for what in page.REPEATED]]))"
    assert json.loads(child(code)) == [True, [True] * 6], "python benchmarks/page.py"


def test_what_was_measured_beside_another_jax_has_tables_of_its_own(written):
    code = "import page, record; from pathlib import Path\n"
    code += "held = record.read(Path(sys.argv[1]))\n"
    lines = child(f"{code}print(page.text(held, held), end='')", written).splitlines()
    at = lines.index("## Beside JAX of the same XLA")
    assert lines.index("## Starting") < at < lines.index("### A call, beside JAX of the same XLA")
    assert lines.count("| 2 → 1, tanh(a·b+1) | 1.34 | 1.50 | 124 |") == 2
    assert "- a processor, 4 CPUs, governor performance, Linux 6" in lines[at:]


def test_a_table_has_a_column_for_each_figure(page):
    lines = page.splitlines()
    at = lines.index("## A call")
    assert lines[at + 2] == "A note."
    assert "| what | raw C µs | pjrt-hub µs | jax.jit µs |" in lines[at:]
    assert "| 2 → 1, tanh(a·b+1) | 1.34 | 1.50 | 124 |" in lines[at:]
    assert "| absent | 2.00 |  |  |" in lines[at:]
    assert "![Growth <of> it](benchmarks/growth.svg)" in lines[at:]


def test_each_machine_is_named_once_with_what_was_measured_on_it(page):
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
import json
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
    verdicts, without, left = json.loads(judged)
    assert verdicts == [["call", holds, seen]]
    assert without == []
    assert left == {"call": []}


def test_the_gate_tells_both_figures_and_where_to_look():
    out = child(GATE, json.dumps({"call": [1.2, 1.1], "start": [0.4], "compile": [None, None]}))
    assert re.search(r"^FAIL +1\.20 then 1\.10 +1\.00 +0\.50 +call: what$", out, re.MULTILINE)
    assert re.search(r"^pass +0\.40 +1\.00 +0\.50 +start: what$", out, re.MULTILINE)
    assert "hint: call: python benchmarks/instructions.py" in out
    assert "compile gave no figures" in out
    assert "hint: start" not in out


def test_the_gates_are_benchmarks():
    found = child("import gate, session; print(*sorted(set(gate.GATES) - set(session.names())))")
    assert found.split() == []


def test_children_see_the_installed_package():
    """`python -c` looks into the working directory first, and a checkout's package is not built."""
    texts = {file.name: file.read_text("utf-8") for file in BENCHMARKS.glob("*.py")}
    starting = {name for name, text in texts.items() if '"-c"' in text}
    assert {"compile.py", "start.py", "weights.py"} <= starting
    assert {name for name in starting if 'cwd="/"' not in texts[name]} == set()
