"""First contact with a plugin (layer 1), in a child process with a deadline.

An abort, a segfault, an exit or a hang of the plugin becomes an exception here instead of the
end of the user's process. Must not remember anything: the caller keeps the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pjrt_hub.abi import ApiVersion
from pjrt_hub.errors import PluginCrashedError, PluginLoadError, PluginTimeoutError

_STDERR_TAIL = 2000  # characters of the plugin's last words that an error carries


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a plugin says of itself before any client exists.

    Attributes:
        api_version: as text, "0.81".
        extensions: name to the size of the extension's node in bytes.
        attributes: of the plugin (`PJRT_Plugin_Attributes`).
    """

    api_version: str
    extensions: dict[str, int]
    attributes: dict[str, object]

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
        seconds: the deadline; a child that passes it is ended.

    Raises:
        PluginLoadError: the child could load or drive the library no better than we could; also for
            an incompatible version, with the same text.
        PluginCrashedError: the child died of a signal or exited by itself.
        PluginTimeoutError: the deadline passed.
    """
    command = [sys.executable, "-P", "-m", __spec__.name, str(path), *map(str, preload)]
    package_root = str(Path(__file__).resolve().parents[2])
    python_path = os.pathsep.join(filter(None, [package_root, env.get("PYTHONPATH", "")]))
    child = subprocess.Popen(
        command,
        env={**env, "PYTHONPATH": python_path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # whatever the plugin starts ends with it
    )
    try:
        stdout, stderr = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as exc:
        _end(child)
        raise PluginTimeoutError(
            f"{path} did not finish loading within {seconds:g} s",
            seconds=seconds,
            hint="another process may hold the device, or the plugin waits for a server; "
            "see its own documentation for a setting that skips the wait",
        ) from exc
    except BaseException:
        _end(child)
        raise
    tail = stderr.decode("utf-8", "replace")[-_STDERR_TAIL:].strip()
    answer = _last_line(stdout)
    if child.returncode == 0 and "api_version" in answer:
        return ProbeResult(**answer)
    if child.returncode == 1 and "error" in answer:
        raise PluginLoadError(answer["error"], path=path, hint=answer["hint"])
    name = signal.Signals(-child.returncode).name if child.returncode < 0 else None
    how = f"died of {name}" if name else f"exited with status {child.returncode}"
    last_words = f"; its last words:\n{tail}" if tail else ""
    raise PluginCrashedError(
        f"{path}: the process that loaded it {how}{last_words}",
        signal=name,
        returncode=child.returncode,
        stderr=tail,
        hint="the library is damaged or not made for this machine; try another release of it",
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    for step in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, step)
        try:
            child.communicate(timeout=1.0)
            return
        except subprocess.TimeoutExpired:
            continue


def _last_line(stdout: bytes) -> dict[str, Any]:
    """The child's answer; a plugin may have printed to stdout before it."""
    lines = stdout.decode("utf-8", "replace").strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _main(path: str, *preload: str) -> int:
    from pjrt_hub._capi import library
    from pjrt_hub.errors import PjrtHubError

    try:
        for dependency in preload:
            library.preload(dependency)
        api = library.load(path)
    except PjrtHubError as exc:
        print(json.dumps({"error": exc.message, "hint": exc.hint}), flush=True)
        return 1
    result = ProbeResult(str(api.version), api.extensions, dict(api.attributes))
    print(json.dumps(asdict(result)), flush=True)
    return 0


if __name__ == "__main__":
    status = _main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the plugin's exit handlers have nothing to add
