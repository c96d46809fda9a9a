"""First contact with a plugin, in a child process with a deadline.

An abort, a segfault, an exit or a hang of the plugin becomes an exception here instead of the
end of the user's process. Must not remember anything: the caller keeps the answer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.running.sandbox import watch
from pjrt_hub.running.sandbox.child import Child, crash, listen
from pjrt_hub.running.sandbox.mapped import code_files

if TYPE_CHECKING:
    from pjrt_hub.running.capi.library import Api
    from pjrt_hub.running.capi.values import NamedValue

#: The attributes of the child's error, which are sent here to raise the same error again.
_DETAILS = ("path", "need", "have", "function", "since", "code")
_TPU_LOCK = "/tmp/libtpu_lockfile"
_CREATE = "PJRT_Client_Create"
_DESCRIBE = "PJRT_TopologyDescription_Create"


class ProbeResult(NamedTuple):
    """What a plugin says of itself."""

    api_version: str  # The version of the PJRT API, such as "0.81".
    extensions: dict[str, int]  # The size in bytes of each extension's node, by name.
    attributes: dict[str, object]  # The attributes that `PJRT_Plugin_Attributes` tells.
    libraries: list[str]  # The files that the loader mapped, including the plugin's (Linux only).
    modules: list[str]  # The files of the Python modules that the plugin imported.
    client_error: str | None  # Why no client was made; empty if one was, None if not tried.
    topology_error: str | None  # Why it cannot describe absent devices; empty and None as above.

    @property
    def version(self) -> ApiVersion:
        """The PJRT API version."""
        return ApiVersion.parse(self.api_version)


def probe(
    path: Path,
    *,
    env: Mapping[str, str],
    preload: Sequence[Path] = (),
    create_options: Mapping[str, NamedValue] | None = None,
    describe: bool = False,
    seconds: float = 30.0,
    identity: str = "",
) -> ProbeResult:
    """Load and initialize a plugin in a child process, and make a client there.

    `preload` are libraries to load before it, as the parent will. Create options of None make no
    client; `describe` asks whether the plugin describes devices that are not there. Loading and
    making a client may each take `seconds`; a child that takes longer is ended, with all that it
    started. `identity` and the errors are as for `library.load`, plus PluginCrashedError if the
    child ended by itself, and PluginTimeoutError.
    """
    deadline = time.monotonic() + seconds
    said: dict[str, Any] = {}
    words = [
        str(path),
        identity or digest.identity_if_any(path),
        json.dumps([create_options, describe]),
        *map(str, preload),
    ]
    with Child(__name__, words, env=env) as child:
        while not child.silent and time.monotonic() < deadline:
            for _, answer in listen([child], deadline):
                said.update(answer)
                if answer.get("step") == _CREATE:
                    deadline = time.monotonic() + seconds
        late = not child.silent
    step = f" in {said['step']}" if said.get("step") else ""
    doing = "make a client" if said.get("step") == _CREATE else "finish loading"
    if late:
        raise errors.PluginTimeoutError(
            f"{path} did not {doing} within {seconds:g} s{step and f': it hung{step}'}",
            seconds=seconds,
            hint=_timeout_hint(path),
        )
    if "api_version" in said:
        return ProbeResult(**{name: said[name] for name in ProbeResult._fields})
    if "error" in said:
        raise getattr(errors, said["error"])(said["message"], hint=said["hint"], **said["details"])
    hint = "the library is damaged or not made for this machine; try another release of it"
    if step.endswith(_CREATE):
        hint = "see that its device is here and free, that its driver fits, and that it takes the "
        hint += "create options given; else try another release of it"
    raise crash(path, step, said.get("status", child.status()), child.words.text(), hint)


def _timeout_hint(path: Path) -> str:
    if "tpu" in path.name and os.path.exists(_TPU_LOCK):
        return (
            f"{_TPU_LOCK} exists: another process holds the TPU, or left it behind; "
            f"end that process, or `sudo rm {_TPU_LOCK}` where there is none"
        )
    return (
        "another process may hold the device, or the plugin waits for a server; see its own "
        "documentation for a setting that skips the wait, or set PJRT_HUB_PROBE_SECONDS"
    )


def work(tell: watch.Tell, path: str, identity: str, asked: str, *preload: str) -> int:
    """Load the plugin and describe it, in the process that `watch.run` forks."""
    try:
        from pjrt_hub.running.capi import library
    except ImportError as exc:
        tell(error="InternalError", message=str(exc), hint="reinstall pjrt-hub", details={})
        return 1
    files, modules = set(code_files()), set(sys.modules)
    try:
        tell(step="dlopen")
        for dependency in preload:
            library.preload(dependency)
        api = library.load(path, lambda step: tell(step=step), identity=identity)
    except errors.PjrtHubError as exc:
        details = {name: getattr(exc, name) for name in _DETAILS if hasattr(exc, name)}
        tell(error=type(exc).__name__, message=exc.message, hint=exc.hint, details=details)
        return 1
    (options, describe), client_error, topology_error = json.loads(asked), None, None
    if options is not None:
        tell(step=_CREATE)
        try:
            api.call(_CREATE, create_options=options)
            client_error = ""
        except errors.PjrtHubError as exc:
            client_error = exc.message
    if describe:
        tell(step=_DESCRIBE)
        topology_error = _topology_error(api)
    mapped = [each for each in code_files() if each not in files]
    those = (getattr(sys.modules.get(n), "__file__", None) for n in sys.modules.keys() - modules)
    imported = sorted({file for file in those if isinstance(file, str)})
    version, attributes = str(api.version), dict[str, object](api.attributes)
    found = (version, api.extensions, attributes, mapped, imported, client_error, topology_error)
    tell(**ProbeResult(*found)._asdict())
    return 0


def _topology_error(api: Api) -> str:
    """Return why no absent devices are described; errors about the name or options do not count."""
    try:
        api.call(_DESCRIBE, topology_name="", create_options={})
    except (errors.UnimplementedError, errors.UnsupportedByPluginError) as exc:
        return exc.message
    except errors.PjrtHubError:  # The plugin only demands a name or options.
        pass
    return ""
