"""Where the user's installers look for packages.

Owns reading pip's and uv's configuration. Names no index: the installer itself is asked
for its default one. Must not open a connection.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import quote, urlsplit, urlunsplit

from pjrt_hub.base import digest, safe_path
from pjrt_hub.errors import StoreError
from pjrt_hub.finding.contract.table import parse
from pjrt_hub.finding.store import disk

_INSTALLER_SECONDS = 60
#: The options of pip that say where and how it searches.
_OPTIONS = (
    *("index-url", "extra-index-url", "find-links", "no-index", "cert", "client-cert", "proxy"),
    *("keyring-provider", "no-input", "trusted-host"),
)
_ADDRESS = re.compile(r"https?://[^\s<>)\]]+")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the user's installer looks for packages, and how it gets there."""

    indexes: tuple[str, ...] = field(default=(), repr=False)  # In order; they may hold passwords.
    find_links: tuple[str, ...] = field(default=(), repr=False)  # Pages and folders.
    certificates: str | None = None  # The file of authorities that the installer trusts.
    client_certificate: str | None = None  # A file of key and certificate to show to servers.
    proxy: str | None = field(default=None, repr=False)  # Its address may hold a password.
    keyring: str = "disabled"  # The `keyring-provider` of pip.
    trusted_hosts: tuple[str, ...] = ()  # The installer does not check their certificates; we do.


def read_sources(env: Mapping[str, str], *, directory: Path | None = None) -> Sources:
    """Ask the installers of this environment for their configuration.

    pip is run with `env` and tells its own configuration, so that files and variables mean what
    they mean to pip. uv's variables and files are read where uv documents them, a project's in
    `directory` or the current one. Both configurations are joined, since the pin and not the index
    decides what is accepted; if neither names a main index, the installer is asked for its default.
    If nothing is configured and there is no installer to ask, it raises StoreError.
    """
    pip = _pip_command(env)
    said = _pip_configuration(pip, env) if pip else _pip_variables(env)
    uv = _uv_configuration(env, directory or Path())
    find_links = (*said.get("find-links", "").split(), *uv.find_links)
    connection = _connection(said, uv)
    if _is_true(said.get("no-index", "")) or uv.no_index:
        return replace(connection, find_links=find_links)
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
    return replace(
        connection,
        indexes=tuple(dict.fromkeys(indexes)),
        find_links=tuple(dict.fromkeys(find_links)),
    )


def read_mirror_sources(env: Mapping[str, str]) -> Sources:
    """Return how to reach mirrors: as environment variables say, since no installer is asked."""
    return _connection(_pip_variables(env), _uv_configuration(env, None))


def _connection(said: Mapping[str, str], uv: _Uv) -> Sources:
    # If pip must not prompt, it asks no keyring unless told to, since a keyring may prompt.
    keyring = said.get("keyring-provider", "auto").strip()
    if keyring == "auto" and _is_true(said.get("no-input", "")):
        keyring = "disabled"
    if uv.keyring == "subprocess" and keyring in ("auto", "disabled"):
        keyring = "subprocess"
    return Sources(
        certificates=said.get("cert"),
        client_certificate=said.get("client-cert"),
        proxy=said.get("proxy"),
        keyring=keyring,
        trusted_hosts=(*map(_host, said.get("trusted-host", "").split()), *uv.trusted_hosts),
    )


def _host(text: str) -> str:
    """Return the host of "host", "host:port" or an address."""
    try:
        return urlsplit(text if "://" in text else f"//{text}").hostname or ""
    except ValueError:
        return ""


# The functions from here on ask pip.


def _pip_command(env: Mapping[str, str]) -> list[str] | None:
    from importlib.util import find_spec

    if find_spec("pip") is not None and not safe_path.is_frozen():
        return safe_path.python("-m", "pip")
    found = safe_path.which("pip", env)
    return [found] if found else None


def _pip_configuration(pip: list[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return what `pip install` would use: [global] below [install] below the environment."""
    import ast

    layers: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in _output([*pip, "config", "list"], env).splitlines():
        name, equals, value = line.partition("=")
        section, dot, option = name.partition(".")
        if equals and dot and section in layers:
            try:
                layers[section][option] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                raise StoreError(
                    f"cannot read pip's configuration of {option}: {value}",
                    hint="see `pip config list`",
                ) from None
    return {**layers["global"], **layers["install"], **layers[":env:"]}


def _pip_variables(env: Mapping[str, str]) -> dict[str, str]:
    variables = {name: env.get(f"PIP_{name.upper().replace('-', '_')}", "") for name in _OPTIONS}
    return {name: value for name, value in variables.items() if value}


def _default_index(pip: list[str] | None, env: Mapping[str, str]) -> str | None:
    """Read the index that an installer uses by default from its own help."""
    if pip:
        return _address_after("--index-url", _output([*pip, "download", "--help"], env))
    if uv := safe_path.which("uv", env):
        return _address_after("--default-index", _output([uv, "help", "pip", "install"], env))
    return None


def _address_after(option: str, text: str) -> str | None:
    """Return the first address in the help's entry of an option."""
    entry = re.search(rf"^\s*(?:-\w, )?{option} ", text, re.MULTILINE)
    found = _ADDRESS.search(text, entry.end()) if entry else None
    return found.group().rstrip(".,") if found else None


def _output(command: list[str], env: Mapping[str, str]) -> str:
    # A wide terminal keeps an address on one line of the help.
    wide = {**safe_path.environment(env), "COLUMNS": "1000", "NO_COLOR": "1"}
    try:
        return safe_path.ask(command, wide, _INSTALLER_SECONDS)
    except (OSError, subprocess.SubprocessError) as exc:
        said = (getattr(exc, "stderr", "") or "").strip().splitlines()
        raise StoreError(
            f"cannot ask the installer for its index: `{' '.join(command)}` failed"
            + (f": {said[-1]}" if said else f": {exc}"),
            hint="run that command, or set PJRT_HUB_MIRRORS to a place that holds the file",
        ) from exc


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on", "y", "t")


# The functions from here on read the configuration of uv.


@dataclass(frozen=True, slots=True)
class _Uv:
    indexes: tuple[str, ...]
    find_links: tuple[str, ...]
    has_default: bool
    no_index: bool
    keyring: str
    trusted_hosts: tuple[str, ...]


def _uv_configuration(env: Mapping[str, str], directory: Path | None) -> _Uv:
    """Return the indexes of uv: its variables before its files, the default index last."""
    extra = env.get("UV_INDEX", "").split() + env.get("UV_EXTRA_INDEX_URL", "").split()
    default = [env.get("UV_DEFAULT_INDEX", ""), env.get("UV_INDEX_URL", "")]
    find_links = re.split(r"[,\s]+", env.get("UV_FIND_LINKS", ""))
    no_index = _is_true(env.get("UV_NO_INDEX", ""))
    keyring = [env.get("UV_KEYRING_PROVIDER", "")]
    trusted = env.get("UV_INSECURE_HOST", "").split()
    for table in _uv_tables(env, directory) if directory is not None else ():
        for index in filter(_is_table, _items(table, "index")):
            urls = [_with_login(url, index.get("name"), env) for url in _texts(index, "url")]
            (default if index.get("default") else extra).extend(urls)
        for part in filter(_is_table, (table, table.get("pip"))):
            extra += _texts(part, "extra-index-url")
            default += _texts(part, "index-url")
            find_links += _texts(part, "find-links")
            no_index = no_index or part.get("no-index") is True
            keyring += _texts(part, "keyring-provider")
            trusted += _texts(part, "allow-insecure-host")
    main = [_index_url(url, env) for url in default if url][:1]
    others = [_index_url(url, env) for url in extra if url]
    return _Uv(
        (*others, *main),
        tuple(filter(None, find_links)),
        bool(main),
        no_index,
        next(filter(None, keyring), "disabled"),
        tuple(map(_host, trusted)),
    )


def _items(table: dict[str, Any], key: str) -> list[Any]:
    """Return a value as a list, or a list itself; leave wrong types for uv to complain about."""
    value = table.get(key, [])
    return value if isinstance(value, list) else [value]


def _texts(table: dict[str, Any], key: str) -> list[str]:
    return [item for item in _items(table, key) if isinstance(item, str)]


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _index_url(index: str, env: Mapping[str, str]) -> str:
    """Return the address of an index that may be written "name=url", with its login."""
    named = re.match(r"([\w.-]+)=", index)
    return _with_login(index[named.end() :], named.group(1), env) if named else index


def _with_login(url: str, name: object, env: Mapping[str, str]) -> str:
    """Add the login in UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD."""
    variable = re.sub(r"[^A-Z0-9]", "_", name.upper()) if isinstance(name, str) else ""
    user, password = (
        env.get(f"UV_INDEX_{variable}_{part}", "") for part in ("USERNAME", "PASSWORD")
    )
    with suppress(ValueError):
        parts = urlsplit(url)
        if variable and (user or password) and parts.hostname and "@" not in parts.netloc:
            login = f"{quote(user, safe='')}:{quote(password, safe='')}"
            return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))
    return url


def _uv_tables(env: Mapping[str, str], directory: Path) -> Iterator[dict[str, Any]]:
    if _is_true(env.get("UV_NO_CONFIG", "")):
        return
    if chosen := env.get("UV_CONFIG_FILE"):
        yield _toml(Path(chosen))
        return
    with suppress(FileNotFoundError):  # The current directory may be gone.
        directory = directory.absolute()
    for folder in (directory, *directory.parents):
        if path := disk.find(folder, "uv.toml"):
            yield _toml(path)
            break
        path = disk.find(folder, "pyproject.toml")
        tool = _toml(path).get("tool") if path else None
        if _is_table(tool) and _is_table(tool.get("uv")):
            yield tool["uv"]
            break
    for base in _uv_bases(env):
        yield _toml(base / "uv" / "uv.toml")


def _uv_bases(env: Mapping[str, str]) -> Iterable[Path]:
    if os.path.isabs(base := env.get("XDG_CONFIG_HOME", "")):
        yield Path(base)
    elif home := env.get("HOME"):
        yield Path(home) / ".config"
    yield from map(Path, filter(os.path.isabs, env.get("XDG_CONFIG_DIRS", "").split(":")))
    yield Path("/etc")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return parse(digest.content(path))
    except (OSError, ValueError):  # The file is absent, or uv reports the error.
        return {}
