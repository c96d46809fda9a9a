"""First contact with a plugin (layer 1), in a child process with a deadline.

An abort, a segfault, an exit or a hang of the plugin becomes an exception here instead of the
end of the user's process. Must not remember anything: the caller keeps the answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pjrt_hub import errors
from pjrt_hub._capi import watch
from pjrt_hub._capi.child import Child, signal_name
from pjrt_hub.abi import ApiVersion

#: What the child's error tells beside its words, so that the same error is raised here.
_DETAILS = ("path", "need", "have", "function", "since", "code")
_TPU_LOCK = "/tmp/libtpu_lockfile"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a plugin says of itself before any client exists.

    Attributes:
        api_version: as text, "0.81".
        extensions: name to the size of the extension's node in bytes.
        attributes: of the plugin (`PJRT_Plugin_Attributes`).
        libraries: the files that the loader mapped for it, itself among them (Linux only).
    """

    api_version: str
    extensions: dict[str, int]
    attributes: dict[str, object]
    libraries: list[str] = field(default_factory=list)

    @property
    def version(self) -> ApiVersion:
        """The PJRT API version."""
        return ApiVersion.parse(self.api_version)


def probe(
    path: Path,
    *,
    env: Mapping[str, str],
    preload: Sequence[Path] = (),
    seconds: float = 30.0,
) -> ProbeResult:
    """Loads and initializes a plugin in a child process.

    Args:
        path: of the library.
        env: the child's environment.
        preload: libraries to load before it, as the parent will.
        seconds: the deadline; a child that passes it is ended, with all that it started.

    Raises:
        PluginLoadError: the library cannot be loaded.
        IncompatiblePluginError: its API version cannot be driven.
        UnsupportedByPluginError: it lacks a function that every plugin must have.
        PjrtError: its initialization failed.
        PluginCrashedError: the child died of a signal or exited by itself.
        PluginTimeoutError: the deadline passed.
    """
    deadline = time.monotonic() + seconds
    said: dict[str, Any] = {}
    with Child(__spec__.name, [str(path), *map(str, preload)], env=env) as child:
        for answer in child.answers(deadline):
            said.update(answer)
        late = not child.silent
    step = f" in {said['step']}" if said.get("step") else ""
    if late:
        raise errors.PluginTimeoutError(
            f"{path} did not finish loading within {seconds:g} s{step and f': it hung{step}'}",
            seconds=seconds,
            hint=_timeout_hint(path),
        )
    if "api_version" in said:
        names = ("api_version", "extensions", "attributes", "libraries")
        return ProbeResult(**{name: said[name] for name in names})
    if "error" in said:
        raise getattr(errors, said["error"])(said["message"], hint=said["hint"], **said["details"])
    raise _crash(path, said.get("status", child.status()), step, child.words())


def _crash(path: Path, status: int, step: str, tail: str) -> errors.PluginCrashedError:
    name = signal_name(-status) if status < 0 else None
    how = f"died of {name}" if name else f"exited with status {status}"
    last_words = f"; its last words:\n{tail}" if tail else ""
    return errors.PluginCrashedError(
        f"{path}: the process that loaded it {how}{step}{last_words}",
        signal=name,
        returncode=status,
        stderr=tail,
        hint="the library is damaged or not made for this machine; try another release of it",
    )


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


def _load(tell: watch.Tell, path: str, *preload: str) -> int:
    """What the child's child does: it meets the plugin."""
    try:
        from pjrt_hub._capi import library
    except ImportError as exc:
        tell(error="InternalError", message=str(exc), hint="reinstall pjrt-hub", details={})
        return 1
    before = set(_mapped())
    try:
        tell(step="dlopen")
        for dependency in preload:
            library.preload(dependency)
        api = library.load(path, lambda step: tell(step=step))
    except errors.PjrtHubError as exc:
        details = {name: getattr(exc, name) for name in _DETAILS if hasattr(exc, name)}
        tell(error=type(exc).__name__, message=exc.message, hint=exc.hint, details=details)
        return 1
    mapped = [each for each in _mapped() if each not in before]
    tell(**asdict(ProbeResult(str(api.version), api.extensions, dict(api.attributes), mapped)))
    return 0


def _mapped() -> list[str]:
    """The files with code in this process, in the order of their addresses."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            rows = [line.rstrip("\n").split(maxsplit=5) for line in file]
    except OSError:
        return []  # not Linux
    return list(
        dict.fromkeys(
            row[5] for row in rows if len(row) == 6 and "x" in row[1] and row[5][0] == "/"
        )
    )


if __name__ == "__main__":
    watch.serve(_load)
