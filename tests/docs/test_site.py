"""The built site is complete, loads nothing from other hosts, and has every public name."""

import json
import os
import re
from collections.abc import Iterable
from functools import partial
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocs")

import pjrt_hub
from pjrt_hub.kit import authoring, conformance, tracing

from . import conftest
from .conftest import ROOT, beside_examples, floats, printed

INDEX = conftest.page("index.md")


class Page(HTMLParser):
    """The references in one page.

    Attributes:
        links: addresses that a reader can click.
        loaded: addresses that a browser fetches by itself.
        ids: the page's anchors.
        levels: the levels of its headings in order.
        nameless: pictures without an alternative text.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.levels: list[int] = []
        self.nameless: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "img" and not found.get("alt"):
            self.nameless.append(found["src"])
        if "src" in found:
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.loaded.append(found["href"])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site: the one that TESTED_SITE names, or else a new build."""
    if named := os.environ.get("TESTED_SITE"):
        return Path(named)
    folder = tmp_path_factory.mktemp("site")
    printed("-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", folder)
    return folder


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def is_elsewhere(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc or parts.scheme not in ("", "data"))


def test_every_page_of_docs_is_on_the_site(site):
    docs = ROOT / "docs"
    names = {str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")}
    names |= {"changelog", "contributing", "examples", "registry_rows"}
    assert [name for name in sorted(names) if not (site / f"{name}.html").is_file()] == []
    assert "<h1" in (site / "examples" / "hello.py.html").read_text("utf-8")


def test_links_and_anchors_lead_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # the server shows it for addresses at any depth
            continue
        for link in page.links:
            parts = urlsplit(link)
            if is_elsewhere(link):
                if parts.scheme != "https" or not parts.hostname:
                    broken.append(f"{path.relative_to(site)}: {link}")
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


def test_a_screen_reader_finds_its_way(site, pages):
    wrong = {}
    for path, page in pages.items():
        steps = [after - before for before, after in pairwise(page.levels)]
        begins_once = page.levels[:1] == [1] and page.levels.count(1) == 1
        if page.nameless or not begins_once or max(steps, default=0) > 1:
            wrong[path.relative_to(site).as_posix()] = page.nameless or page.levels
    assert wrong == {}
    bare = re.compile(r"<th[^>]*></th>")
    assert [path.name for path in pages if bare.search(path.read_text("utf-8"))] == []


def test_the_keyboard_opens_the_drawer_and_the_search_has_a_name_and_the_reference(site):
    page = (site / "cli.html").read_text("utf-8")
    assert 'for="__drawer" tabindex="0" aria-label="Navigation"' in page
    assert 'role="dialog" aria-label="Search"' in page
    assert '<code class="option">--offline</code>' in page
    found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    named = {"api/running.html#pjrt_hub.Client.buffer_from_host", "plugins.html#cuda13"}
    assert named <= {entry["location"] for entry in found}


class Postings(dict):
    """The places of each word; lunr's set of words also contains numbers that occur nowhere.

    Lunr merges nodes by a text of letters and node numbers, which digits in words make ambiguous.
    """

    def __init__(self, postings: dict[str, Any], fields: Iterable[str]) -> None:
        super().__init__(postings)
        self.none = {"_index": -1} | {field: {} for field in fields}

    def __missing__(self, word: str) -> dict[str, Any]:
        return self.none


class Search:
    """The theme's search: lunr with the queries and the ranking of the theme.

    Each query word matches by prefix. Results with more matching words come first, and so do pages
    before its sections.
    """

    def __init__(self, held: dict[str, Any]) -> None:
        lunr = pytest.importorskip("lunr.builder")
        self.separator = re.compile(held["config"]["separator"])
        self.titles: dict[str, str] = {}  # page -> the location of its first section
        builder = lunr.Builder()
        builder.ref("location")
        builder.b(0)
        for name, field in held["config"]["fields"].items():
            builder.field(name, field["boost"], partial(self.words_of, name))
        for doc in held["docs"]:
            self.titles.setdefault(doc["location"].partition("#")[0], doc["location"])
            builder.add(doc, {"boost": doc.get("boost", 1)})
        assert held["config"]["pipeline"] == []  # the index below has no pipeline either
        self.index = builder.build()
        self.index.inverted_index = Postings(self.index.inverted_index, held["config"]["fields"])

    def words_of(self, field: str, doc: dict[str, str]) -> list[str]:
        return self.words(doc.get(field, ""))

    def words(self, text: str) -> list[str]:
        return list(filter(None, self.separator.split(re.sub(r"<[^>]*>", " ", text).lower())))

    def first(self, text: str) -> str | None:
        asked = self.words(text)
        query = self.index.create_query()
        for word in asked:
            query.clause(word, wildcard=query.WILDCARD_TRAILING, use_pipeline=False)
        best, page = 0.0, None
        for found in self.index.query(query):
            terms = found["match_data"].metadata
            matched = sum(any(term.startswith(word) for term in terms) for word in asked)
            place, name = found["ref"], found["ref"].partition("#")[0]
            rank = (self.titles[name] == place) + matched / len(asked)
            score = found["score"] * (1 + rank**2)
            if score > best:
                best, page = score, name
        return page


@pytest.fixture(scope="session")
def search(site: Path) -> Search:
    return Search(json.loads((site / "search" / "search_index.json").read_text("utf-8")))


#: Words that newcomers search for -> the page that they need.
LOOKED_FOR = {
    "gpu": "gpu_machines.html",
    "install": "install.html",
    "tutorial": "tutorial.html",
    "quickstart": "tutorial.html",
    "faq": "troubleshooting.html",
    "report a defect": "troubleshooting.html",
    "jax": "from_jax.html",
    "pytorch": "from_pytorch.html",
    "buffer_from_host": "api/running.html",
}


@pytest.mark.parametrize(("words", "page"), LOOKED_FOR.items())
def test_a_search_shows_the_right_page_first(search, words, page):
    assert search.first(words) == page


def test_a_search_finds_errors_by_their_first_words(search):
    """Exceptions are errors whose first words are another page's topic, such as "the lock file"."""
    messages = re.findall(
        r"^### (.*)$", unescape(conftest.page("troubleshooting.md")), re.MULTILINE
    )
    begin = [[word for word in re.split("[ …]+", each) if word][:5] for each in messages]
    asked = {" ".join(words) for words in begin if len(words) > 2}
    missed = [words for words in asked if search.first(words) != "troubleshooting.html"]
    assert len(asked) > 150
    assert len(missed) < len(asked) / 30, missed


def public_names() -> list[str]:
    """Return the import paths of all names that users may import, except modules."""
    names = [
        f"pjrt_hub.{name}"
        for name in pjrt_hub.__all__
        if not isinstance(getattr(pjrt_hub, name), ModuleType)
    ]
    for module in (authoring, conformance, tracing):
        names += [f"{module.__name__}.{name}" for name in module.__all__]
    names += ["pjrt_hub.jax.register", "pjrt_hub.torch_xla.register"]
    names += [f"pjrt_hub.safetensors.{name}" for name in ("load_file", "open_file", "save_file")]
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


def test_the_reference_shows_what_compiled_classes_do_and_cached_properties(site, pages):
    [running] = [page for path, page in pages.items() if path.match("api/running.html")]
    assert {"pjrt_hub.Buffer.delete", "pjrt_hub.Event.is_ready"} <= running.ids
    [compiling] = [page for path, page in pages.items() if path.match("api/compiling.html")]
    assert "pjrt_hub.LoadedExecutable.__call__" in compiling.ids
    page = (site / "api" / "compiling.html").read_text("utf-8")
    [heading] = re.findall(r'id="pjrt_hub.Topology.platform_name".*?</h3>', page, re.DOTALL)
    assert "doc-symbol-attribute" in heading


def marked(name: str, kind: str = "") -> str:
    """The code block on the front page that follows `<!-- name -->`."""
    [block] = re.findall(rf"<!-- {name} -->\n```{kind}\n(.*?)```", INDEX, re.DOTALL)
    return block


def test_the_commands_of_the_front_page_print_what_is_shown(tmp_path):
    expected = ("cpu", "hardware: needs no special hardware", marked("run prints"))
    commands = marked("commands", "console").splitlines()
    for command, shown in zip(commands, expected, strict=True):
        program, *words = command.split()
        assert program == "pjrt-hub"
        assert shown in beside_examples(tmp_path, "-m", "pjrt_hub", *words)


def test_the_front_page_begins_with_a_result(tmp_path):
    """Before the first heading stand the installation, three lines, their output, and a chart."""
    first_screen = INDEX.partition("\n## ")[0]
    assert len(first_screen.splitlines()) <= 36
    assert marked("install", "console") == "pip install .\n"
    assert marked("example", "python") in first_screen
    assert "](benchmarks/one_call.svg)" in first_screen
    imports, _, lines = marked("example", "python").partition("\n\n")
    assert (len(imports.splitlines()), len(lines.splitlines())) == (1, 3)
    told = floats(beside_examples(tmp_path, "-c", marked("example", "python")))
    assert told == pytest.approx(floats(marked("prints")), abs=1e-6)
