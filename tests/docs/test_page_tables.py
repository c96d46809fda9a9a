"""Pages whose tables are generated from the code or list parts of it are complete and current."""

import json
import re
import runpy
import tomllib

import pytest
from packaging.requirements import Requirement

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.base import abi
from pjrt_hub.cli.__main__ import ALIASES
from pjrt_hub.finding.contract import manifest
from pjrt_hub.finding.store import pylock
from pjrt_hub.finding.store.cache import layout
from pjrt_hub.finding.store.catalog import read_rows
from pjrt_hub.frameworks.jax import framework
from pjrt_hub.kit.conformance.host import newest
from pjrt_hub.kit.tracing import recording
from pjrt_hub.running.executable import serialized

from .conftest import ROOT, page, printed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REQUIRED = [Requirement(each) for each in PROJECT["project"]["dependencies"]]


def run_tool(name: str) -> dict[str, object]:
    return runpy.run_path(str(ROOT / "tools" / name))


@pytest.mark.parametrize("name", ["plugins", "troubleshooting", "variables"])
def test_the_page_is_what_its_tool_writes(name):
    tool = {"plugins": "plugins_page.py"}.get(name, f"{name}.py")
    assert run_tool(tool)["page"]() == page(f"{name}.md"), f"python tools/{tool}"


def section(text: str, name: str) -> str:
    """The text between a heading and the next heading of the same level."""
    [(level, below)] = re.findall(
        rf"^(#+) {name}\n(.*?)(?=^\1 |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert level in ("##", "###")
    return below


def test_what_hosts_need_is_made_of_their_profiles():
    text = page("authoring.md")
    assert run_tool("hosts/page.py")["page"](text) == text, "python tools/hosts/page.py"
    (jax,) = [host for host in newest() if host.name == "JAX"]
    assert jax.unimplemented["PJRT_LoadedExecutable_GetDeviceAssignment"].at == "jit"
    [row] = [line for line in text.splitlines() if line.startswith("| `PJRT_LoadedExecutable`")]
    _, _, null, unimplemented, _, _ = row.split("|")
    assert "GetDeviceAssignment" in null
    assert "GetDeviceAssignment" in unimplemented


def test_each_dependency_and_extra_and_what_builds_is_named():
    first, _, rest = page("dependencies.md").partition("\n## ")
    assert re.findall(r"^\| `([^`]+)` \|", first, re.MULTILINE) == sorted(
        each.name for each in REQUIRED
    )
    table = rest.partition("Extras")[2].partition("## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`", " ".join(cells))) == {
        *PROJECT["project"]["optional-dependencies"]
    }
    build = [Requirement(each).name for each in PROJECT["build-system"]["requires"]]
    assert [each for each in build if each not in rest.partition("## To build")[2]] == []


@pytest.mark.parametrize("requirement", REQUIRED, ids=lambda each: each.name)
def test_the_release_in_the_row_is_one_that_we_take(requirement):
    [cells] = re.findall(rf"^\| `{requirement.name}` \|(.*)\|$", page("dependencies.md"), re.M)
    release, _, month = cells.split("|")[3].strip().partition(", ")
    assert requirement.specifier.contains(release)
    assert re.fullmatch(r"20\d\d-[01]\d", month)


RUNNER = ROOT / "tools" / "jax_tests"
FIGURES = json.loads((RUNNER / "figures.json").read_text("utf-8"))
#: Code for a child process, because the names of the runner's modules could clash with tests'.
OF_FIGURES = """
import json, sys
sys.path.insert(0, sys.argv[1])
import page
sys.stdout.write(page.page(json.loads(page.FIGURES.read_text("utf-8"))))
"""


def test_the_page_of_jaxs_tests_is_written_from_its_figures_whose_causes_are_known():
    assert printed("-c", OF_FIGURES, RUNNER) == page("jax_tests.md")
    known = json.loads((RUNNER / "known.json").read_text("utf-8"))[FIGURES["platform"]]
    of_file = {}
    for name, what in known.items():
        causes = of_file.setdefault(name.partition("::")[0], {})
        cause = what.partition(": ")[2]
        causes[cause] = causes.get(cause, 0) + 1
    assert of_file == {row["file"]: row["causes"] for row in FIGURES["files"] if row["causes"]}
    assert "unexplained" not in {cause for causes in of_file.values() for cause in causes}


@pytest.mark.parametrize("row", FIGURES["files"], ids=lambda row: row["file"])
def test_a_row_counts_each_failure_once(row):
    bad = sum(row[outcome] for outcome in ("failed", "error", "crash", "timeout"))
    assert bad == sum(row["causes"].values())
    assert row["passed"] > 0


PLUGINS = page("plugins.md")
ROWS = [row for path in (ROOT / "registry").glob("*.toml") for row in read_rows(path)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file_name)
def test_every_row_of_the_registry_stands_below_its_plugin(row):
    text = section(PLUGINS, row.plugin)
    lines = re.findall(rf"^\| {re.escape(row.version)} \|.*", text, re.MULTILINE)
    arch = {"x86_64": "x86-64", "aarch64": "ARM64"}[row.host.arch]
    mine = (line for line in lines if f"`{row.package}`" in line)
    [line] = [line for line in mine if re.search(rf" on {arch}\b", line)]
    assert ".".join(map(str, row.host.version)) in line
    assert f"| {round(row.size / 1e6)} MB | {round(row.nbytes / 1e6)} MB |" in line
    assert f"`{row.package}` | {row.license} |" in line
    assert ("not measured" if row.api_version is None else f"{row.api_version}, accepted") in line


@pytest.mark.parametrize("name", sorted({row.platform for row in ROWS}))
def test_every_platform_has_an_anchor_and_a_line_at_a_glance(name):
    assert section(PLUGINS, name)
    assert f"| {name} |" in section(PLUGINS, "At a glance")


@pytest.mark.parametrize(
    ("plugin", "told"),
    [
        ("cuda13", "driver 580 or newer"),
        ("cuda13", 'pip install "pjrt-hub[cuda13]"`, which brings `nvidia-cublas`'),
        ("cuda13", "`libcudart.so.13`"),
        ("cuda13", "`H100`"),
        ("cuda13", "| `memory_fraction`, or `XLA_CLIENT_MEM_FRACTION`, or"),
        ("tpu", "`v5e:2x2`"),
    ],
)
def test_what_a_person_needs_is_told(plugin, told):
    assert told in section(PLUGINS, plugin)


def test_a_plugin_that_is_too_old_is_said_to_be_refused():
    old = ROWS[0]._replace(api_version=abi.ApiVersion(0, 40))
    told = run_tool("plugins_page.py")["_api"](old)
    assert told.startswith("0.40, refused: needs PJRT API 0.57 or newer")


def test_every_fault_has_a_test_that_is_there():
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\| (`tests/.*`) \|$", page("reliability.md"), re.M)
    counts = {"D": 11, "K": 9, "C": 5, "A": 6, "S": 9, "P": 11}
    assert [name for name, _ in rows] == [
        f"{letter}{number}" for letter, count in counts.items() for number in range(1, count + 1)
    ]
    named = {path for _, cell in rows for path in re.findall(r"`([^`]+)`", cell)}
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def messages(name: str) -> list[tuple[str, str]]:
    """The error messages and their hints under the heading of a class."""
    text = section(page("troubleshooting.md"), name)
    return re.findall(r"^### (.*)\n\n(.*)$", text, re.MULTILINE)


def begins_as(shown: str, told: str) -> bool:
    """Whether a message begins as the page shows it, where … stands for any text."""
    return bool(re.fullmatch(".*".join(map(re.escape, shown.split("…"))), told, re.DOTALL))


def test_an_error_is_found_by_its_words(tmp_path):
    """A real error matches one heading, and every heading has a hint below it."""
    with pytest.raises(errors.PjrtHubError) as caught:
        pjrt_hub.load(tmp_path / "nothing.so")
    below = messages(type(caught.value).__name__)
    [step] = [step for text, step in below if begins_as(text, str(caught.value.message))]
    assert begins_as(step, caught.value.hint)
    classes = re.findall(r"^## (\w+)$", page("troubleshooting.md"), re.MULTILINE)
    assert len(classes) > 12
    assert [each for name in classes for each in messages(name) if not each[1]] == []


@pytest.mark.parametrize(
    "row",
    [
        f"| `pylock.pjrt.toml` | `format = {pylock.FORMAT}` |",
        f"| manifests, `pjrt_plugin.toml` | `schema = {manifest.SCHEMA}` |",
        f"| the store | its folder `{layout.LAYOUT}` |",
        f"the first line `\\x93{serialized.MAGIC[1:-1].decode()}` |",
        f"| recordings of `pjrt-hub trace` | their version, {recording.VERSION} |",
        f"| PJRT C API | {abi.OLDEST} |",
        f"| JAX | {'.'.join(map(str, framework.OLDEST))} |",
        f"| Python | {PROJECT['project']['requires-python'].removeprefix('>=')} |",
    ],
)
def test_what_a_file_or_a_version_is_marked_by(row):
    assert row in page("versions.md")


def test_what_versions_promise_is_kept():
    """Old command names still work, a newer plugin runs, and no dependency has an upper bound."""
    commands = {"plugins", "diagnose", "get"}
    assert set(ALIASES) == commands | {"out", "into"}
    for name in ALIASES:
        assert f"`{name if name in commands else f'--{name}'}`" in page("versions.md")
    assert abi.compatible(abi.DECLARED, abi.ApiVersion(0, 9999)).ok
    assert not abi.compatible(abi.DECLARED, abi.ApiVersion(0, abi.OLDEST.minor - 1)).ok
    assert {mark.operator for each in REQUIRED for mark in each.specifier} == {">="}
