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

from pjrt_hub import errors
from pjrt_hub.abi import ApiVersion

_STDERR_TAIL = 2000  # characters of the plugin's last words that an error carries
_TO_END = 1.0  # seconds that a hung child has between being asked and being made to end

#: What the child's error tells beside its words, so that the same error is raised here.
_DETAILS = ("path", "need", "have", "function", "since", "code")


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
        PluginLoadError: the library cannot be loaded.
        IncompatiblePluginError: its API version cannot be driven.
        UnsupportedByPluginError: it lacks a function that every plugin must have.
        PjrtError: its initialization failed.
        PluginCrashedError: the child died of a signal or exited by itself.
        PluginTimeoutError: the deadline passed.
    """
    command = [sys.executable, "-P", "-m", __spec__.name, str(path), *map(str, preload)]
    package_root = str(Path(__file__).resolve().parents[2])
    python_path = os.pathsep.join(filter(None, [package_root, env.get("PYTHONPATH", "")]))
    with subprocess.Popen(
        command,
        env={**env, "PYTHONPATH": python_path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # whatever the plugin starts ends with it
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as exc:
            raise errors.PluginTimeoutError(
                f"{path} did not finish loading within {seconds:g} s",
                seconds=seconds,
                hint="another process may hold the device, or the plugin waits for a server; "
                "see its own documentation for a setting that skips the wait",
            ) from exc
        finally:
            _end(child)
    tail = stderr.decode("utf-8", "replace")[-_STDERR_TAIL:].strip()
    answer = _last_line(stdout)
    if child.returncode == 0 and "api_version" in answer:
        return ProbeResult(**answer)
    if child.returncode == 1 and "error" in answer:
        raise getattr(errors, answer["error"])(
            answer["message"], hint=answer["hint"], **answer["details"]
        )
    name = _signal_name(-child.returncode) if child.returncode < 0 else None
    how = f"died of {name}" if name else f"exited with status {child.returncode}"
    last_words = f"; its last words:\n{tail}" if tail else ""
    raise errors.PluginCrashedError(
        f"{path}: the process that loaded it {how}{last_words}",
        signal=name,
        returncode=child.returncode,
        stderr=tail,
        hint="the library is damaged or not made for this machine; try another release of it",
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the child's process group: itself, or what the plugin started."""
    with contextlib.suppress(ProcessLookupError):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_TO_END)
        os.killpg(child.pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # between SIGRTMIN and SIGRTMAX they have no names
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


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

    try:
        for dependency in preload:
            library.preload(dependency)
        api = library.load(path)
    except errors.PjrtHubError as exc:
        details = {name: getattr(exc, name) for name in _DETAILS if hasattr(exc, name)}
        words = {"message": exc.message, "hint": exc.hint, "details": details}
        _answer({"error": type(exc).__name__, **words})
        return 1
    _answer(asdict(ProbeResult(str(api.version), api.extensions, dict(api.attributes))))
    return 0


def _answer(answer: dict[str, Any]) -> None:
    """Prints a line of its own: the plugin may have left one without its end."""
    print("\n" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    status = _main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # the plugin's exit handlers have nothing to add
