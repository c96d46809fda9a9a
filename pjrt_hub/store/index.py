"""A package's files on the index that the user's installer is configured for (layer 2).

Owns the reading of pip's and uv's configuration, and of Simple API pages. Names no index:
the default one is the installer's, asked of it. Must not trust an index's hashes; pins decide.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pjrt_hub.errors import StoreError
from pjrt_hub.store.catalog import Artifact
from pjrt_hub.store.transport import Page, Refused, Transport, redacted

_INSTALLER_SECONDS = 60
_ADDRESS = re.compile(r"https?://[^\s<>)\]]+")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the user's installer looks for packages.

    Attributes:
        indexes: bases of Simple APIs, as URLs or directories, in the order to try.
        find_links: pages and directories that name or hold files.
        certificates: the file of certificate authorities that the installer trusts, or None.
        proxy: the address of the proxy that the installer uses, or None.
    """

    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    certificates: str | None = None
    proxy: str | None = None


def configured(env: Mapping[str, str], *, directory: Path | None = None) -> Sources:
    """Asks the installers of this environment where they look.

    pip answers for itself, so that its files and variables mean what they mean to pip. uv's
    variables and files are read where uv documents them. What both say is put together, since the
    pin and not the index decides what is accepted; where neither names a main index, the
    installer's own default is asked of it.

    Args:
        env: the variables; pip runs with them.
        directory: where uv's project files are looked for; the current directory by default.

    Raises:
        StoreError: nothing is configured and there is no installer to ask.
    """
    pip = _pip_command(env)
    said = _pip_configuration(pip, env) if pip else _pip_variables(env)
    uv = _uv_configuration(env, directory or Path())
    find_links = (*said.get("find-links", "").split(), *uv.find_links)
    reached = said.get("cert"), said.get("proxy")
    if _is_true(said.get("no-index", "")) or uv.no_index:
        return Sources((), find_links, *reached)
    main = said.get("index-url", "").split()
    indexes = [*main, *uv.indexes, *said.get("extra-index-url", "").split()]
    if not main and not uv.has_default and (default := _default_index(pip, env)):
        indexes.append(default)
    if not indexes and not find_links:
        raise StoreError(
            "no package index is known: neither pip nor uv is installed or configured here",
            hint="install pip, set PIP_INDEX_URL, or set PJRT_HUB_MIRRORS to a directory or an "
            "address that holds the file",
        )
    return Sources(tuple(dict.fromkeys(indexes)), tuple(dict.fromkeys(find_links)), *reached)


def mirrors(env: Mapping[str, str]) -> tuple[str, ...]:
    """`PJRT_HUB_MIRRORS`: Simple APIs, or places that hold files by name, in the order to try."""
    return tuple(filter(None, map(str.strip, env.get("PJRT_HUB_MIRRORS", "").split(","))))


def on_mirror(artifact: Artifact, base: str, transport: Transport) -> Iterator[str]:
    """The addresses that the pinned file may have on a mirror.

    Raises:
        Refused: the mirror cannot be read.
    """
    if (path := _local(base)) is not None:
        if (path / artifact.file_name).is_file():
            yield (path / artifact.file_name).absolute().as_uri()
        elif _project(path, artifact).is_dir():
            yield from on_index(artifact, base, transport)
        else:
            raise Refused("the directory does not hold the file")
        return
    with suppress(Refused):
        yield from on_index(artifact, base, transport)
    # Not a Simple API, or one without the file: the place itself may hold it by name.
    yield f"{base.rstrip('/')}/{quote(artifact.file_name)}"


def on_index(artifact: Artifact, base: str, transport: Transport) -> Iterator[str]:
    """The addresses of the pinned file on one index, yanked or not, since it is pinned.

    Raises:
        Refused: the index cannot be read, or does not hold the file.
    """
    if (path := _local(base)) is not None:
        page = _local_page(_project(path, artifact) / "index.html")
    else:
        page = _page(f"{base.rstrip('/')}/{_normal(artifact.package)}/", transport)
    yield from _matching(artifact, page, base)


def in_find_links(artifact: Artifact, place: str, transport: Transport) -> Iterator[str]:
    """The addresses of the pinned file in one find-links place: a directory or a page.

    Raises:
        Refused: it cannot be read, or does not hold the file.
    """
    path = _local(place)
    if path is None:
        yield from _matching(artifact, _page(place, transport), place)
    elif path.is_dir():
        if not (path / artifact.file_name).is_file():
            raise Refused("the directory does not hold the file")
        yield (path / artifact.file_name).absolute().as_uri()
    else:
        yield from _matching(artifact, _local_page(path), place)


def _matching(artifact: Artifact, page: Page, base: str) -> Iterator[str]:
    from unearth.collector import IndexPage, parse_html_page, parse_json_response
    from unearth.link import Link

    kind = page.content_type.partition(";")[0].strip().lower()
    parse = parse_json_response if kind.endswith("json") else parse_html_page
    # Names of files are ASCII, whatever the rest of the page is written in.
    content = page.content.decode("utf-8", "replace").encode()
    try:
        links = list(parse(IndexPage(Link(page.url), content, "utf-8", kind)))
        found = [link for link in links if link.filename == artifact.file_name]
    except (ValueError, TypeError, AttributeError, KeyError) as exc:
        raise Refused(f"the page {redacted(page.url)} is malformed: {exc}") from exc
    if not found:
        raise Refused(f"the page names {len(links)} files, and not {artifact.file_name}")
    for link in found:
        yield _with_credentials(link.url_without_fragment, base)


def _with_credentials(url: str, base: str) -> str:
    """Carries an index's user and password to its own files, and nowhere else."""
    ours, theirs = urlsplit(base), urlsplit(url)
    same = (ours.scheme, ours.hostname, ours.port) == (theirs.scheme, theirs.hostname, theirs.port)
    if "@" not in ours.netloc or "@" in theirs.netloc or not same:
        return url
    credentials = ours.netloc.rpartition("@")[0]
    return urlunsplit(theirs._replace(netloc=f"{credentials}@{theirs.netloc}"))


def _normal(package: str) -> str:
    from packaging.utils import canonicalize_name

    return canonicalize_name(package)


def _project(base: Path, artifact: Artifact) -> Path:
    return base / _normal(artifact.package)


def _local(place: str) -> Path | None:
    """The path of a place on this machine; None for an address elsewhere."""
    try:
        parts = urlsplit(place)
    except ValueError as exc:
        raise Refused(f"not a usable address: {exc}") from exc
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if "://" in place else Path(place).expanduser()


def _page(url: str, transport: Transport) -> Page:
    from unearth.collector import SUPPORTED_CONTENT_TYPES

    # Listed from HTML to JSON; the last one leaves nothing to guess.
    wishes = enumerate(SUPPORTED_CONTENT_TYPES, start=1)
    return transport.page(url, accept=", ".join(f"{kind};q=0.{wish}" for wish, kind in wishes))


def _local_page(path: Path) -> Page:
    try:
        return Page(path.absolute().as_uri(), path.read_bytes(), "text/html")
    except OSError as exc:
        raise Refused(f"cannot read {path}: {exc.strerror}") from exc


# pip


def _pip_command(env: Mapping[str, str]) -> list[str] | None:
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip", path=env.get("PATH", os.defpath))
    return [found] if found else None


def _pip_configuration(pip: list[str], env: Mapping[str, str]) -> dict[str, str]:
    """What `pip install` would use: [global] below [install] below the environment."""
    import ast

    layers: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in _said([*pip, "config", "list"], env).splitlines():
        name, equals, value = line.partition("=")
        section, dot, option = name.partition(".")
        if equals and dot and section in layers:
            try:
                layers[section][option] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError) as exc:
                raise StoreError(
                    f"cannot read pip's configuration of {option}: {value}",
                    hint="see `pip config list`",
                ) from exc
    return {**layers["global"], **layers["install"], **layers[":env:"]}


def _pip_variables(env: Mapping[str, str]) -> dict[str, str]:
    names = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "proxy")
    variables = {name: env.get(f"PIP_{name.upper().replace('-', '_')}", "") for name in names}
    return {name: value for name, value in variables.items() if value}


def _default_index(pip: list[str] | None, env: Mapping[str, str]) -> str | None:
    """The index that an installer uses when nothing is configured, read off its own help."""
    if pip:
        return _address_after("--index-url", _said([*pip, "download", "--help"], env))
    uv = shutil.which("uv", path=env.get("PATH", os.defpath))
    if uv:
        return _address_after("--default-index", _said([uv, "help", "pip", "install"], env))
    return None


def _address_after(option: str, text: str) -> str | None:
    """The first address in the help's entry of an option."""
    entry = re.search(rf"^\s*(?:-\w, )?{option} ", text, re.MULTILINE)
    found = _ADDRESS.search(text, entry.end()) if entry else None
    return found.group().rstrip(".,") if found else None


def _said(command: list[str], env: Mapping[str, str]) -> str:
    # A wide terminal keeps an address on one line of the help.
    wide = {**env, "COLUMNS": "1000", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command,
            env=wide,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALLER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        said = (getattr(exc, "stderr", "") or "").strip().splitlines()
        raise StoreError(
            f"cannot ask the installer for its index: `{' '.join(command)}` failed"
            + (f": {said[-1]}" if said else f": {exc}"),
            hint="run that command, or set PJRT_HUB_MIRRORS to a place that holds the file",
        ) from exc
    return done.stdout


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on", "y", "t")


# uv


@dataclass(frozen=True, slots=True)
class _Uv:
    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    has_default: bool
    no_index: bool


def _uv_configuration(env: Mapping[str, str], directory: Path) -> _Uv:
    """The indexes of uv: its variables before its files, the default index after the others."""
    tables = list(_uv_tables(env, directory))
    extra, default, find_links = [], [], []
    extra += env.get("UV_INDEX", "").split()
    extra += env.get("UV_EXTRA_INDEX_URL", "").split()
    default += [env.get("UV_DEFAULT_INDEX", ""), env.get("UV_INDEX_URL", "")]
    find_links += re.split(r"[,\s]+", env.get("UV_FIND_LINKS", ""))
    no_index = _is_true(env.get("UV_NO_INDEX", ""))
    for table in tables:
        for index in filter(_is_table, _items(table, "index")):
            (default if index.get("default") else extra).extend(_texts(index, "url"))
        for part in filter(_is_table, (table, table.get("pip"))):
            extra += _texts(part, "extra-index-url")
            default += _texts(part, "index-url")
            find_links += _texts(part, "find-links")
            no_index = no_index or part.get("no-index") is True
    main = [_unnamed(url) for url in default if url][:1]
    others = [_unnamed(url) for url in extra if url]
    return _Uv((*others, *main), tuple(filter(None, find_links)), bool(main), no_index)


def _items(table: dict[str, Any], key: str) -> list[Any]:
    """A value, or each of several; what has another type is for uv to complain about."""
    value = table.get(key, [])
    return value if isinstance(value, list) else [value]


def _texts(table: dict[str, Any], key: str) -> list[str]:
    return [item for item in _items(table, key) if isinstance(item, str)]


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _unnamed(index: str) -> str:
    """The address of an index that may be written "name=url"."""
    return re.sub(r"^[\w.-]+=", "", index)


def _uv_tables(env: Mapping[str, str], directory: Path) -> Iterator[dict[str, Any]]:
    if _is_true(env.get("UV_NO_CONFIG", "")):
        return
    if chosen := env.get("UV_CONFIG_FILE"):
        yield _toml(Path(chosen))
        return
    with suppress(FileNotFoundError):  # the current directory is gone
        directory = directory.absolute()
    for folder in (directory, *directory.parents):
        if (folder / "uv.toml").is_file():
            yield _toml(folder / "uv.toml")
            break
        tool = _toml(folder / "pyproject.toml").get("tool")
        if _is_table(tool) and _is_table(tool.get("uv")):
            yield tool["uv"]
            break
    for base in _uv_bases(env):
        yield _toml(base / "uv" / "uv.toml")


def _uv_bases(env: Mapping[str, str]) -> Iterable[Path]:
    if home := env.get("XDG_CONFIG_HOME"):
        yield Path(home)
    elif home := env.get("HOME"):
        yield Path(home) / ".config"
    yield from map(Path, filter(None, env.get("XDG_CONFIG_DIRS", "").split(":")))
    yield Path("/etc")


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):  # absent, or for uv to complain about
        return {}
