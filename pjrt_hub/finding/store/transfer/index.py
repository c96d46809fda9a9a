"""A package's files in the places where the user's installer looks.

Owns the order of places, Simple API pages in HTML and JSON, and the choice of a release if none
is pinned. Must not trust an index's hashes if there is a pin; pins decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from pjrt_hub.base import digest
from pjrt_hub.base.listing import count_text
from pjrt_hub.errors import DownloadError, StoreError
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.store.catalog import Archive
from pjrt_hub.finding.store.transfer import installers
from pjrt_hub.finding.store.transfer.credentials import redact, split
from pjrt_hub.finding.store.transfer.partial import local_path
from pjrt_hub.finding.store.transfer.transport import Late, Page, Patience, Refused, Transport

#: How a place is searched: as a mirror, as the file's own address, as find-links, or as an index.
Kind = Literal["mirror", "own", "find-links", "index"]
#: The forms of an index page; the last one is preferred, since it leaves nothing to guess.
MEDIA_TYPES = (
    "text/html",
    "application/vnd.pypi.simple.v1+html",
    "application/vnd.pypi.simple.v1+json",
)
#: The most seconds for finding addresses, which a lock file can do without.
_LOCATE_SECONDS = 60.0
Failures = list[tuple[str, str]]
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index's statements about one file; none of them is trusted."""

    name: str
    url: str = field(repr=False)  # It may hold a password, so it is not shown.
    sha256: str = ""
    size: int | None = None  # The size in bytes.
    yanked: str | None = None  # Why it was yanked, which may be empty; None if it was not.
    requires_python: str = ""  # The specifier of Python versions.
    provenance: str = ""  # The address of its attestations.

    @property
    def package(self) -> str:
        """The normalized name of its distribution; empty if it is not a wheel."""
        return identity(self.name)[0]

    @property
    def version(self) -> str:
        """Its distribution's version; empty if it is not a wheel."""
        return identity(self.name)[1]


def releases(
    package: str,
    env: Mapping[str, str],
    *,
    version: str = "",
    python: str = "",
    patience: Patience | None = None,
) -> tuple[IndexFile, ...]:
    """List a package's wheels that may be chosen, the newest version first.

    They come from the first place that has any: the mirrors, then the installers' find-links and
    indexes. So no index takes a name over from an earlier one by a higher version. With a
    `version`, yanked files and pre-releases are listed, too. `python` is the version that
    requires-python is compared with, by default the running one.

    Raises:
        DownloadError: no place has one that may be chosen; the message says why.
        StoreError: no place is known.
    """
    failures: Failures = []
    limits = (patience or Patience.from_env(env)).start()
    with suppress(Late), closing(search(env, limits, failures, partial(_wheels, package))) as found:
        for files, transport in found:
            chosen, reasons = _choosable(files, version, python)
            if chosen:
                return chosen
            where, why = transport.redact(files[0].url), transport.hide("; ".join(reasons))
            failures.append((where, why))
            break
    tried = "".join(f"\n  {redact(place)}: {reason}" for place, reason in failures)
    raise DownloadError(
        f"no wheel of {package}{version and f' {version}'} can be chosen:{tried}",
        url=redact(failures[-1][0]) if failures else "",
        hint=f"see what there is with `pip index versions {package}`, or name another version",
    )


def locate(archives: Iterable[Archive], env: Mapping[str, str]) -> dict[str, str]:
    """Find addresses from which installers can get wheels; return those found, by sha256.

    An address is left out if its index gives another sha256, if it has a query, which may be a
    secret, or if it is a path, which other machines lack.
    """
    missing = {each.file_name: each for each in archives}
    found: dict[str, str] = {}

    def look(kind: Kind, place: str, transport: Transport) -> Iterator[list[IndexFile]]:
        for package in sorted({each.package for each in missing.values()}):
            with suppress(Refused):
                yield from _wheels(package, kind, place, transport)

    limits = Patience.from_env(env)
    seconds = min(limits.overall_seconds, _LOCATE_SECONDS)
    limits = replace(limits, tries=1, overall_seconds=seconds).start()
    with suppress(Late, StoreError), closing(search(env, limits, [], look)) as places:
        for files, _ in places:
            for file in files:
                url, archive = split(file.url)[0], missing.get(file.name)
                if not archive or redact(url) != url or url.startswith("file:"):
                    continue
                if file.sha256 in ("", archive.sha256):
                    found[archive.sha256] = url
                    del missing[file.name]
            if not missing:
                break
    return found


def search(
    env: Mapping[str, str],
    patience: Patience,
    failures: Failures,
    look: Callable[[Kind, str, Transport], Iterable[_Found]],
    own: Iterable[str] = (),
) -> Generator[tuple[_Found, Transport], None, None]:
    """Yield what `look` finds in every place worth trying, looking as late as possible.

    Each place that could not be used is added to `failures`, and why. The `own` addresses come
    after the mirrors. Without any place it raises StoreError; when the overall time is over, Late.
    """

    def visit(
        sources: installers.Sources, places: list[tuple[Kind, str]]
    ) -> Iterator[tuple[_Found, Transport]]:
        if not places:
            return
        with Transport(env, sources=sources, patience=patience) as transport:
            for kind, place in places:
                try:
                    for found in look(kind, place, transport):
                        yield found, transport
                except Late as exc:
                    failures.append((place, transport.hide(str(exc))))
                    raise
                except (Refused, OSError) as exc:  # A page may repeat the login.
                    failures.append((place, transport.hide(str(exc))))

    named: list[tuple[Kind, str]] = [("mirror", base) for base in mirrors(env)]
    named += [("own", url) for url in own]
    yield from visit(installers.read_mirror_sources(env), named)
    try:
        sources = installers.read_sources(env)
    except StoreError as exc:
        if not failures:
            raise
        failures.append(("package index", exc.message))
        return
    places: list[tuple[Kind, str]] = [("find-links", place) for place in sources.find_links]
    places += [("index", base) for base in sources.indexes]
    yield from visit(sources, places)


def mirrors(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the places in `PJRT_HUB_MIRRORS`, in the order to try."""
    return tuple(filter(None, map(str.strip, env.get("PJRT_HUB_MIRRORS", "").split(","))))


def addresses(artifact: Archive, kind: Kind, place: str, transport: Transport) -> Iterator[str]:
    """Yield the addresses of the pinned file in a place, yanked or not, since it is pinned.

    A place that cannot be read, or does not hold the file, raises Refused.
    """
    path = _local(place)
    if kind == "own":
        yield place if path is None else path.absolute().as_uri()
    elif path is not None and kind != "index" and (path / artifact.file_name).is_file():
        yield (path / artifact.file_name).absolute().as_uri()
    elif path is None and kind == "mirror":
        yield f"{place.rstrip('/')}/{quote(artifact.file_name)}"
        # The file is not there under its name, so the place may be a Simple API.
        with suppress(Refused):
            yield from _named_urls(artifact, _page(place, artifact.package, transport), place)
    else:
        yield from _named_urls(artifact, _read(artifact.package, kind, place, transport), place)


def _wheels(
    package: str, kind: Kind, place: str, transport: Transport
) -> Iterator[list[IndexFile]]:
    path = _local(place)
    if path is not None and kind != "index" and path.is_dir() and not _project(path, package):
        files = [
            IndexFile(child.name, child.absolute().as_uri(), size=child.stat().st_size)
            for child in path.iterdir()
            if child.is_file()
        ]
    else:
        files = _files(_read(package, kind, place, transport), place)
    ours = [file for file in files if file.package == canonical(package)]
    if not ours:
        raise Refused(f"it names {count_text(len(files), 'file')}, and no wheel of {package}")
    yield ours


def _choosable(
    files: Iterable[IndexFile], version: str, python: str
) -> tuple[tuple[IndexFile, ...], list[str]]:
    """Return the files that may be chosen, the newest version first, and why not the others."""
    import platform

    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    running = python or platform.python_version()
    left, reasons = [], dict.fromkeys(["its versions are others"] if version else [])
    for file in files:
        if version and Version(file.version) != Version(version):
            continue
        if file.yanked is not None and not version:
            reasons[f"{file.version} is yanked{file.yanked and f': {file.yanked}'}"] = None
            continue
        # A malformed requires-python excludes nobody, as in pip.
        with suppress(InvalidSpecifier):
            if not SpecifierSet(file.requires_python).contains(running, prereleases=True):
                reasons[f"{file.version} needs Python {file.requires_python}"] = None
                continue
        left.append(file)
    finals = [file for file in left if not Version(file.version).is_prerelease]
    chosen = left if version or not finals else finals
    newest = sorted(chosen, key=lambda file: Version(file.version), reverse=True)
    return tuple(newest), list(reasons)


def _named_urls(artifact: Archive, page: Page, base: str) -> Iterator[str]:
    files = _files(page, base)
    found = [file.url for file in files if file.name == artifact.file_name]
    if not found:
        raise Refused(f"the page names {len(files)} files, and not {artifact.file_name}")
    yield from found


def _files(page: Page, base: str) -> list[IndexFile]:
    """Return the files that a page names, with its index's password for those of the same host."""
    kind = page.content_type.partition(";")[0].strip().lower()
    read = _in_json if kind.endswith("json") else _in_html
    try:
        # File names are ASCII, whatever the encoding of the page.
        return [
            IndexFile(
                unquote(urlsplit(url).path.rpartition("/")[2]), _with_credentials(url, base), **said
            )
            for url, said in read(page.content.decode("utf-8", "replace"), page.url)
            # A page from the network must not name files of this machine.
            if urlsplit(url).scheme != "file" or urlsplit(page.url).scheme == "file"
        ]
    # json raises RecursionError for deep nesting; html raises AssertionError for odd markup.
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, AssertionError) as exc:
        why = str(exc)[:200] or type(exc).__name__
        raise Refused(f"the page {redact(page.url)} is malformed: {why}") from exc


def _in_json(text: str, url: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parse a page of the Simple API in JSON, versions 1.x."""
    page = json.loads(text)
    api = str(page.get("meta", {}).get("api-version", "1.0"))
    if api.partition(".")[0] != "1":
        raise ValueError(f"its API version is {api}, not 1")
    for file in page["files"]:
        size, yanked = file.get("size"), file.get("yanked")
        yield (
            urljoin(url, _text(file["url"])),
            {
                "sha256": _text(file.get("hashes", {}).get("sha256")),
                "size": size if type(size) is int and size >= 0 else None,
                "yanked": _text(yanked) if isinstance(yanked, str) or yanked is True else None,
                "requires_python": _text(file.get("requires-python")),
                "provenance": _text(file.get("provenance")),
            },
        )


def _in_html(text: str, url: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parse a page of the Simple API in HTML, or any page with links."""
    from html.parser import HTMLParser

    found: dict[str, list[dict[str, str | None]]] = {"base": [], "a": []}

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in found:
                found[tag].append(dict(attrs))

    Links().feed(text)
    base = urljoin(url, next(filter(None, (each.get("href") for each in found["base"])), ""))
    for anchor in found["a"]:
        if (href := anchor.get("href")) is None:
            continue
        address, _, fragment = urljoin(base, href).partition("#")
        algorithm, _, digest = fragment.partition("=")
        yield (
            address,
            {
                "sha256": digest if algorithm == "sha256" else "",
                "yanked": (anchor["data-yanked"] or "") if "data-yanked" in anchor else None,
                "requires_python": anchor.get("data-requires-python") or "",
                "provenance": anchor.get("data-provenance") or "",
            },
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _with_credentials(url: str, base: str) -> str:
    """Add an index's user and password to addresses of its own files only."""
    ours, theirs = urlsplit(base), urlsplit(url)
    same = (ours.scheme, ours.hostname, ours.port) == (theirs.scheme, theirs.hostname, theirs.port)
    if "@" not in ours.netloc or "@" in theirs.netloc or not same:
        return url
    credentials = ours.netloc.rpartition("@")[0]
    return urlunsplit(theirs._replace(netloc=f"{credentials}@{theirs.netloc}"))


def identity(name: str) -> tuple[str, str]:
    """Return the package and the version in a wheel's file name; empty for other files."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        package, version, _, _ = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return "", ""
    return package, str(version)


def _project(base: Path, package: str) -> Path | None:
    """Find the folder of a package in an index that is a folder."""
    path = base / canonical(package)
    return path if path.is_dir() else None


def _local(place: str) -> Path | None:
    """Return the path of a place on this machine; None for an address elsewhere."""
    try:
        parts = urlsplit(place)
    except ValueError as exc:
        raise Refused(f"not a usable address: {exc}") from None
    if parts.scheme == "file":
        return local_path(place)
    return None if "://" in place else Path(place).expanduser()


def _read(package: str, kind: Kind, place: str, transport: Transport) -> Page:
    """Read the page of a place that names a package's files."""
    path = _local(place)
    if path is None:
        return _page(place, "" if kind == "find-links" else package, transport)
    if kind == "find-links" and not path.is_dir():
        return _local_page(path)
    project = _project(path, package)
    if project is None:
        raise Refused("the directory does not hold the file")
    return _local_page(project / "index.html")


def _page(url: str, package: str, transport: Transport) -> Page:
    if package:
        url = f"{url.rstrip('/')}/{canonical(package)}/"
    wishes = enumerate(MEDIA_TYPES, start=1)
    return transport.page(url, accept=", ".join(f"{kind};q=0.{wish}" for wish, kind in wishes))


def _local_page(path: Path) -> Page:
    try:
        return Page(path.absolute().as_uri(), digest.content(path), "text/html")
    except OSError as exc:
        raise Refused(f"cannot read {path}: {exc.strerror}") from None
