"""First contact with a chosen library: check its file, preload, probe it in a child.

Everything here happens before the library enters this process. The answers of an earlier contact
are trusted for the same bytes if nothing else has changed that they depended on, so a warm start
costs a few stat calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.base import digest, log
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import (
    IncompatiblePluginError,
    PjrtHubError,
    PluginCrashedError,
    PluginLoadError,
    PluginTimeoutError,
)
from pjrt_hub.finding.contract.variables import is_on

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.binary import Problem
    from pjrt_hub.finding.contract.linking import Search
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.finding.discovery.source import World
    from pjrt_hub.finding.store.cache.memo import Probes
    from pjrt_hub.running.capi.values import NamedValue

#: The time limit of the first contact, in seconds; `PJRT_HUB_PROBE_SECONDS` overrides it.
DEADLINE = 30.0

#: The run paths of this process's program also apply to the libraries that it loads.
_PROGRAM = Path("/proc/self/exe")
#: A plugin that died or hung is not tried again for this many seconds.
_CRASH_SECONDS = 600.0
_CRASH_DETAILS = ("signal", "returncode", "stderr", "seconds")
_SHELLS_OWN = {"_", "PWD", "OLDPWD", "SHLVL", "PJRT_HUB_DEBUG"}
#: These variables decide which libraries a plugin finds.
_SEARCHED = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")

#: What the death of a plugin may have depended on, as far as that can be seen.
Around = Mapping[str, str | None]
#: The libraries that this process has tried, each with the key of its client's options.
_TRIED: set[tuple[Path, str]] = set()
_INITIALIZED: set[str] = set()
_INITIALIZING = Lock()


def initialize(path: Path, manifest: Manifest) -> bool:
    """Run a manifest's `initialize()` once in this process; return whether its package has one."""
    from importlib import import_module

    module, home = manifest.module, manifest.path and manifest.path.parent
    if not module or home is None or not isfile(home / "__init__.py"):
        return False
    with _INITIALIZING:
        try:
            function = getattr(import_module(module), "initialize", None)
            if function is not None and module not in _INITIALIZED:
                function()
                _INITIALIZED.add(module)
        except (Exception, SystemExit) as exc:  # A vendor's code may raise anything.
            raise PluginLoadError(
                f"the plugin {manifest.name} cannot be initialized: {module} ({home}) raised "
                f"{type(exc).__name__}: {exc}",
                path=path,
                hint=f"`python -c 'import {module}; {module}.initialize()'` shows where; "
                "install what it needs, or another release of it",
            ) from exc
    return function is not None


class Contact(NamedTuple):
    """A library that is to be met, and what is around it."""

    path: Path
    manifest: Manifest
    world: World
    env: Mapping[str, str]  # What the plugin will see.
    identity: str  # That of the file which was compared with the lock file; others are refused.

    @property
    def dependencies(self) -> tuple[Path, ...]:
        """The libraries to load before it, in that order."""
        return dependencies(self.path, self.manifest, self.world)


def prepare(contact: Contact, create_options: Mapping[str, NamedValue] | None = None) -> None:
    """Check that loading the library into this process is safe, and load its preloads first.

    With `create_options`, the client that is to be made next is tried too.
    """
    from pjrt_hub.running.capi import library

    path = contact.path
    refuse_noexec(path)
    if is_on(contact.env, "PJRT_HUB_CAPTURE"):
        from pjrt_hub.base import native_log

        native_log.capture_native_logs()
    needed = contact.dependencies
    answer = _meet(contact, needed, create_options)
    log.step("probe", "%s: PJRT API %s", path, answer["api_version"], path=str(path))
    _require_range(path, contact.manifest, ApiVersion.parse(answer["api_version"]))
    for dependency in needed:
        log.step("probe", "%s: preload %s", path, dependency, path=str(path))
        library.preload(dependency)


def try_client(contact: Contact, create_options: Mapping[str, NamedValue]) -> None:
    """Check in another process that the plugin survives making a client.

    The plugin's answer there does not matter: this process will get it again. If the plugin has a
    manifest, options were checked against it, so one client that was tried stands for all.
    """
    if (contact.path, _key(contact.manifest, create_options)) not in _TRIED:
        _meet(contact, contact.dependencies, create_options)


def _meet(
    contact: Contact, needed: tuple[Path, ...], create_options: Mapping[str, NamedValue] | None
) -> dict[str, Any]:
    """Return the plugin's answers at first contact: remembered, else asked now and remembered."""
    from pjrt_hub.finding.discovery.hardware import drivers

    path, manifest, world, env, identity = contact
    probes = memory(world)
    client = None if create_options is None else _key(manifest, create_options)
    around = {name: env.get(name, "") for name in _SEARCHED}
    around |= {"drivers": drivers(world.root), "preloaded": " ".join(map(str, needed))}
    answer = probes.recall(path) if probes else None
    is_known = _holds(answer, path, around, client)
    if not is_known:
        refuse(path, list(problems(path, world, needed, env)))
        log.step("probe", "%s: its headers fit %s", path, world.host, path=str(path))
        answer = probes.recall_content(path) if probes else None
        is_known = _holds(answer, path, around, client)
    if answer is not None and is_known:
        text = "%s: known from an earlier contact, and nothing has changed that it depended on"
        log.step("probe", text, path, path=str(path))
    else:
        log.step("probe", "%s: first contact, in a process of its own", path, path=str(path))
        before = answer["clients"] if answer and _holds(answer, path, around, None) else []
        exactly = around | {"client": client, "else": _digest(_all_else(path, world, env))}
        if probes and (crash := probes.recall_crash(path)):
            _raise_again(crash, path, exactly)
        try:
            answer = first_contact(path, needed, env, create_options, identity)
        except (PluginCrashedError, PluginTimeoutError) as exc:
            if probes and digest.identity_if_any(path) == identity:
                _remember_crash(probes, path, exc, exactly)
            raise
        made = [client] if answer["client_error"] == "" else []
        files = {*answer["libraries"], *answer["modules"]} - {str(path)}
        answer["files"] = {file: digest.identity_if_any(file) for file in sorted(files)}
        answer |= {"path": str(path), "around": around, "clients": [*before, *made]}
        # If the file was replaced meanwhile, the answer is about other bytes.
        if probes and digest.identity_if_any(path) == identity:
            probes.remember(path, answer)
    if client is not None:
        _TRIED.add((path, client))
    return answer


def forget_crash(path: Path, world: World) -> None:
    """Forget that a plugin died or hung not long ago, so that it is tried again."""
    if (probes := memory(world)) and probes.recall_crash(path):
        probes.remember_crash(path, {})


def _remember_crash(
    probes: Probes, path: Path, exc: PluginCrashedError | PluginTimeoutError, around: Around
) -> None:
    details = {name: getattr(exc, name) for name in _CRASH_DETAILS if hasattr(exc, name)}
    message = exc.message.partition("; its last output:")[0]
    said = {"type": type(exc).__name__, "message": message, "details": details}
    probes.remember_crash(path, {"when": time.monotonic(), "around": around, **said})


def _raise_again(crash: Mapping[str, Any], path: Path, around: Around) -> None:
    """Raise the error of an earlier contact, if nothing has changed and it was not long ago.

    Not everything that a plugin needs can be seen: another process may have held its device. So the
    plugin is tried again after a while, as a restarted service needs.
    """
    ago = time.monotonic() - crash.get("when", 0.0)  # The clock begins at 0 when a machine starts.
    if crash.get("around") != around or not 0 <= ago < _CRASH_SECONDS:
        return
    said = f"{crash['message']}, {ago:.0f} s ago, and nothing that can be seen has changed"
    hint = f"`pjrt-hub doctor {path}` tries it again at once and shows what it says"
    if crash["type"] == PluginCrashedError.__name__:
        raise PluginCrashedError(said, **crash["details"], hint=hint)
    raise PluginTimeoutError(said, **crash["details"], hint=hint)


def _key(manifest: Manifest, create_options: Mapping[str, NamedValue]) -> str:
    """Return a key that is equal for clients whose options behave alike."""
    if manifest.path is not None or not create_options:
        return ""
    return _digest(create_options)


def _all_else(path: Path, world: World, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what else a plugin may depend on and can be seen: variables, installed packages."""
    changed = {}
    for folder in {*map(str, world.installed.sys_path), str(path.parent)}:
        with suppress(OSError):
            changed[folder] = os.stat(folder).st_mtime_ns
    return {name: env[name] for name in env.keys() - _SHELLS_OWN} | {"": changed, "path": str(path)}


def _digest(values: Mapping[str, Any]) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _holds(
    answer: Mapping[str, Any] | None, path: Path, around: Mapping[str, str], client: str | None
) -> bool:
    """Check whether a remembered answer is still valid and covers the wanted client."""
    if answer is None or answer.get("around") != around:
        return False
    if client is not None and client not in answer.get("clients", ()):
        return False
    files = answer.get("files", {})
    if files and answer.get("path") != str(path):
        return False  # A copy in another place may find other files.
    return all(digest.identity_if_any(file) == known for file, known in files.items())


def dependencies(path: Path, manifest: Manifest, world: World) -> tuple[Path, ...]:
    """List the libraries to load before the plugin's library at `path`, in that order."""
    from pjrt_hub.finding.discovery.library import preloads

    return preloads(world, manifest, path).paths


def refuse_noexec(path: Path) -> None:
    """Refuse a library on a noexec file system, which the loader does not report."""
    from pjrt_hub.finding.store import disk

    if disk.is_noexec(path):
        raise PluginLoadError(
            f"{path} cannot be loaded: its file system is mounted with noexec, which forbids "
            "to run what lies there",
            path=path,
            hint="set PJRT_HUB_CACHE to a directory on a file system without noexec, or have "
            "this one mounted with exec",
        )


def problems(
    path: Path, world: World, preloaded: tuple[Path, ...], env: Mapping[str, str]
) -> Iterator[Problem]:
    """Read the library's headers and yield every reason why it will not load here.

    A file that is no library at all raises PluginLoadError.
    """
    from pjrt_hub.finding.contract import headers, linking

    binary = headers.inspect(path)
    yield from linking.problems(binary, world.host, search(preloaded, env))


def search(preloaded: tuple[Path, ...], env: Mapping[str, str], program: Path = _PROGRAM) -> Search:
    """Return where the loader looks, with these variables and after it loaded `preloaded`."""
    import re

    from pjrt_hub.finding.contract import headers
    from pjrt_hub.finding.contract.linking import Search

    def split(name: str, separators: str) -> list[str]:
        return re.split(separators, env[name]) if env.get(name) else []

    earlier = (Path(each) for each in split("LD_PRELOAD", "[: ]") if "/" in each)
    try:
        # `$ORIGIN` is the folder of the file, not of a link to it.
        rpath = headers.inspect(program.resolve()).rpath
    except PluginLoadError:  # Only ELF files have run paths.
        rpath = ()
    return Search(
        # An empty entry stands for the working directory.
        library_path=tuple(each or "." for each in split("LD_LIBRARY_PATH", "[:;]")),
        preloaded=(*earlier, *preloaded),
        program=rpath,
    )


def first_contact(
    path: Path,
    dependencies: tuple[Path, ...],
    env: Mapping[str, str],
    create_options: Mapping[str, NamedValue] | None = None,
    identity: str = "",
    *,
    describe: bool = False,
) -> dict[str, Any]:
    """Load the library in a child process and return its answers.

    A client is made there, unless `create_options` is None. Only the file of `identity` is loaded,
    by default the one at `path`. `describe` asks whether the library describes devices that are not
    there. A child that dies raises PluginCrashedError, and one that hangs PluginTimeoutError.
    """
    from pjrt_hub.running.sandbox.probe import probe

    return probe(
        path,
        env=env,
        preload=dependencies,
        create_options=create_options,
        describe=describe,
        seconds=seconds("PJRT_HUB_PROBE_SECONDS", env.get("PJRT_HUB_PROBE_SECONDS"), DEADLINE),
        identity=identity,
    )._asdict()


def seconds(name: str, said: str | None, default: float) -> float:
    """Read a variable that holds a number of seconds; raise PjrtHubError if it holds none."""
    text = said or default
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= threading.TIMEOUT_MAX:  # This refuses nan, too.
        raise PjrtHubError(
            f"{name} is {text!r}, which is not a number of seconds",
            hint="set it to a number such as 60, or unset it",
        )
    return number


def _require_range(path: Path, manifest: Manifest, version: ApiVersion) -> None:
    """Check the plugin's version against its manifest's range."""
    low, high = manifest.api_minimum, manifest.api_maximum
    if (low is None or low <= version) and (high is None or version <= high):
        return
    need = f"{low or 'any'} to {high or 'any'}"
    raise IncompatiblePluginError(
        f"{path} has PJRT API {version}, its manifest {manifest.path} describes {need}",
        need=need,
        have=str(version),
        hint=f"install the release of {manifest.name} that its manifest belongs to",
    )


def memory(world: World) -> Probes | None:
    """Return the memory of first contacts, or None without a cache."""
    from pjrt_hub.finding.store.cache.memo import Probes

    return Probes(world.cache.root) if world.cache else None


def refuse(path: Path, found: list[Problem]) -> None:
    """Raise the errors found in a library, if any, as one PluginLoadError."""
    if not found:
        return
    hints = "; ".join(dict.fromkeys(each.hint for each in found if each.hint))
    hints = hints or "`pjrt-hub list` shows the plugins that fit this machine"
    what = "; ".join(each.text for each in found)
    raise PluginLoadError(f"{path} cannot be loaded here: {what}", path=path, hint=hints)
