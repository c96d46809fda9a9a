"""What MkDocs is told beyond mkdocs.yml: which files of the repository are pages, and where.

A file is known by its place in the repository, so that a link between two of them holds on the
forge and on the site alike, and pages that lie beside what they describe stay there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]

#: Pages outside of docs/ -> their place on the site. Those of examples/ are found automatically.
ELSEWHERE = {
    "CHANGELOG.md": "changelog.html",
    "CONTRIBUTING.md": "contributing.html",
    "RELEASING.md": "releasing.html",
    "SECURITY.md": "security.html",
    "loader/README.md": "loader.html",
    "registry/README.md": "registry_rows.html",
}
# The reference shows these as attributes, not as methods to call.
griffe.stdlib_decorators["pjrt_hub.base.fork.cached_property"] = {"cached", "property"}

#: How much the search prefers a page. The page of errors has words of many other pages, and the
#: first two pages have words of errors.
BOOSTS = {
    "docs/install.md": 2,
    "docs/from_jax.md": 2.2,
    "docs/from_pytorch.md": 2,
    "docs/troubleshooting.md": 2.4,
}
#: The page that shows an example's code, which a search passes over.
CODE = """\
---
search:
  exclude: true
---
# `{name}`

````python
{code}````
"""
#: The attributes that the theme's elements lack.
_ATTRIBUTES = {
    'class="md-header__button md-icon" for="__drawer"': 'tabindex="0" aria-label="Navigation"',
    'data-md-component="search" role="dialog"': 'aria-label="Search"',
}
#: An option that is alone as code, which browsers would break at its hyphens.
_OPTION = re.compile(r"<code>(?=--?\w[\w-]*</code>)")
#: A name that is alone as code.
_NAME = re.compile(r"(?<=<code>)(\w+)(?=</code>)")


class Code(File):
    """A file of Python, shown as a page: a browser would keep it in a folder."""

    def is_documentation_page(self) -> bool:
        """Say so to MkDocs, which looks at the name alone."""
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Name the files of docs/ from the repository's top, and add those outside of it."""
    ours = [file for file in files if file.src_dir == config.docs_dir]
    places = {f"docs/{file.src_uri}": file.dest_uri for file in ours}
    named = {**places, **ELSEWHERE, **dict(_examples())}
    found = []
    for path, place in named.items():
        kind = Code if path.endswith(".py") else File
        file = kind(path, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=place)
        if kind is Code:
            file.content_string = CODE.format(name=path, code=(ROOT / path).read_text("utf-8"))
        found.append(file)
    for file in found:
        if file.src_uri not in places:  # Otherwise a README would be taken for its section's page.
            file.name = Path(file.dest_uri).stem
            file.inclusion = InclusionLevel.NOT_IN_NAV  # The navigation may still name the page.
    return Files([*found, *(file for file in files if file not in ours)])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Tell the search which pages to show first."""
    if boost := BOOSTS.get(page.file.src_uri):
        page.meta["search"] = {"boost": boost}
    return markdown


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Keep options whole, and links errors, also those that a docstring's module lacks.

    The contents beside troubleshooting are its classes: two hundred messages are for the search.
    """
    html = _OPTION.sub('<code class="option">', html)
    if page.file.src_uri == "docs/troubleshooting.md":
        for title in page.toc:
            for each in title.children:
                each.children.clear()
    return _NAME.sub(lambda found: _linked(found[1]) if found[1] in _errors() else found[0], html)


def on_post_page(output: str, **_: object) -> str:
    """Let the keyboard open the drawer of narrow screens, and name the search for readers."""
    for place, attributes in _ATTRIBUTES.items():
        output = output.replace(place, f"{place} {attributes}", 1)
    return output


def _linked(name: str) -> str:
    return f'<autoref identifier="pjrt_hub.errors.{name}">{name}</autoref>'


@cache
def _errors() -> frozenset[str]:
    source = (ROOT / "pjrt_hub" / "errors.py").read_text("utf-8")
    return frozenset(re.findall(r"^class (\w+)\(", source, re.MULTILINE))


def _examples() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "examples").rglob("*")):
        place = path.relative_to(ROOT)
        if path.name == "README.md":
            yield place.as_posix(), f"{place.parent.as_posix()}.html"
        elif path.suffix == ".py":
            yield place.as_posix(), f"{place.as_posix()}.html"
