"""The built site: whole, without anything from elsewhere, and with every public name in it."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs")

import pjrt_hub
from pjrt_hub.kit import authoring, conformance, tracing

ROOT = Path(__file__).parents[2]
INDEX = (ROOT / "docs" / "index.md").read_text("utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")

#: A figure of the front page -> the bar of docs/benchmarks.md that it repeats.
FIGURES = {
    "a call, times a loop in C over the same plugin": "`exe(a, a)`, times a raw C loop over",
    "a call, times the dispatch of `jax.jit`": "`exe(a, a)`, times the dispatch of `jax.jit`",
    "a call of 30 arguments and results, times C": "30 arguments and results, times raw C",
    "a fresh process's first result, times JAX's": "a fresh process's first result, times",
    "a fetch, verified, times pip's": "a fetch, verified and published, times pip's",
    "a put of 64 MB, times the plugin's own copy": "a copying put of 64 MB, times",
}
#: Another day's run of the benchmarks gives other digits; the page then still tells the truth.
NEAR = 0.15


class Page(HTMLParser):
    """What one page refers to.

    Attributes:
        links: of the reader.
        loaded: what a browser fetches by itself.
        ids: its anchors.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if "src" in found:
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.loaded.append(found["href"])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that TESTED_SITE names, else one that is built now."""
    if named := os.environ.get("TESTED_SITE"):
        return Path(named)
    folder = tmp_path_factory.mktemp("site")
    command = ["mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", folder]
    words = [sys.executable, "-m", *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def is_elsewhere(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc or parts.scheme not in ("", "data"))


def test_every_page_of_docs_is_on_the_site(site):
    missing = [
        path.name
        for path in (ROOT / "docs").rglob("*.md")
        if not (site / path.relative_to(ROOT / "docs").with_suffix(".html")).is_file()
    ]
    assert missing == []
    for name in ("changelog", "contributing", "examples", "registry_rows"):
        assert (site / f"{name}.html").is_file()
    assert "<h1" in (site / "examples" / "hello.py.html").read_text("utf-8")


def test_links_and_anchors_lead_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # it may be shown for an address at any depth
            continue
        for link in page.links:
            parts = urlsplit(link)
            if is_elsewhere(link):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            there = target.is_file() and target.is_relative_to(site)
            if there and parts.fragment and target in pages:
                there = unquote(parts.fragment) in pages[target].ids
            if not there:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site, pages):
    loaded = {link for page in pages.values() for link in page.loaded}
    assert {"site.css", "../site.css"} <= loaded
    assert [link for link in sorted(loaded) if is_elsewhere(link)] == []
    sheets = [path.read_text("utf-8") for path in site.rglob("*.css")]
    urls = [url for text in sheets for url in re.findall(r"url\(\s*['\"]?([^'\")]+)", text)]
    imports = [url for text in sheets for url in re.findall(r"@import\s+['\"]([^'\"]+)", text)]
    assert sheets
    assert [url for url in urls + imports if is_elsewhere(url)] == []


def test_the_search_knows_the_reference(site):
    found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    places = {entry["location"] for entry in found}
    assert "api/running.html#pjrt_hub.Client.buffer_from_host" in places
    assert "plugins.html#cuda13" in places


def public_names() -> list[str]:
    """Return every name that users may import, but modules, by the path that they import it by."""
    ours = {name: getattr(pjrt_hub, name) for name in pjrt_hub.__all__}
    names = [
        f"pjrt_hub.{name}" for name, value in ours.items() if not isinstance(value, ModuleType)
    ]
    names += [f"pjrt_hub.kit.authoring.{name}" for name in authoring.__all__]
    names += [f"pjrt_hub.kit.conformance.{name}" for name in conformance.__all__]
    names += [f"pjrt_hub.kit.tracing.{name}" for name in tracing.__all__]
    names += ["pjrt_hub.jax.register", "pjrt_hub.torch_xla.register"]
    names += [f"pjrt_hub.safetensors.{name}" for name in ("load", "open_file", "save_file")]
    names += [
        f"pjrt_hub.errors.{name}"
        for name, value in vars(pjrt_hub.errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    return names


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_in_the_reference(pages, name):
    shown = [path.stem for path, page in pages.items() if name in page.ids]
    assert len(shown) == 1, "a line `::: name` in one page of docs/api/"


def test_the_reference_shows_what_compiled_classes_do(pages):
    [running] = [page for path, page in pages.items() if path.match("api/running.html")]
    assert {"pjrt_hub.Buffer.delete", "pjrt_hub.Event.is_ready"} <= running.ids
    [compiling] = [page for path, page in pages.items() if path.match("api/compiling.html")]
    assert "pjrt_hub.LoadedExecutable.__call__" in compiling.ids


def test_the_front_page_repeats_what_was_measured():
    [table] = re.findall(r"<!-- figures -->\n((?:\|.*\n)+)", INDEX)
    shown = dict(re.findall(r"^\| (.*) \| ([\d.]+) \|$", table, re.MULTILINE))
    assert shown.keys() == FIGURES.keys()
    for what, bar in FIGURES.items():
        [measured] = re.findall(rf"^\| {re.escape(bar)}.*? \| ([\d.]+) \|", BENCHMARKS, re.M)
        assert float(shown[what]) == pytest.approx(float(measured), rel=NEAR), what


def test_the_commands_of_the_front_page_print_what_is_shown(tmp_path):
    [commands] = re.findall(r"<!-- commands -->\n```console\n(.*?)```", INDEX, re.DOTALL)
    [printed] = re.findall(r"<!-- prints -->\n```\n(.*?)```", INDEX, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    install, listing, run = commands.splitlines()
    assert install == "pip install ."
    for command, shown in ((listing, "cpu"), (run, printed)):
        program, *words = command.split()
        assert program == "pjrt-hub"
        done = subprocess.run(
            [sys.executable, "-m", "pjrt_hub.cli", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert shown in done.stdout


def test_the_code_of_the_front_page_runs(tmp_path):
    [code] = re.findall(r"<!-- example -->\n```python\n(.*?)```", INDEX, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    first = float(done.stdout.strip("[] \n").split()[0])
    assert first == pytest.approx(math.tanh(2), abs=1e-6)
