"""What a fork does: each function is one walk through the store, by its public entry points.

They are imported by the warm process; see forks.py.
"""

import errno
import fcntl
import functools
import json
import os
import resource
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pjrt_hub.door import preflight
from pjrt_hub.errors import CacheError
from pjrt_hub.finding.store import disk
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.transport import Patience

#: The exit status of a fork whose fetch was refused.
_REFUSED = 9


@functools.cache
def pin(row: str) -> Artifact:
    """The artifact of a row in a test's file; forks inherit the toy's from the warm process."""
    return Artifact.from_row(json.loads(Path(row).read_text()), row)


def warm_up() -> None:
    """Import everything that a whole fetch needs; only forks load a library."""
    with TemporaryDirectory() as folder:
        fetch(os.environ["FAULTS_ROW"], folder, json.loads(os.environ["FAULTS_SOURCES"]))
        Cache(Path(folder)).verify()


def fetch(row: str, root: str, env: dict[str, str], **limits: float) -> str:
    limits = {"sleep": lambda seconds: time.sleep(min(seconds, 0.01)), **limits}
    entry = obtain(pin(row), Cache(Path(root)), env=env, patience=Patience(**limits))
    return str(entry.library_path)


def load(row: str, root: str, env: dict[str, str]) -> str:
    """Load the artifact's library, fetching it if it is missing; give the names of its attributes.

    The toy's library reads each of its pages, when it is loaded and once more when it is asked.
    """
    from pjrt_hub.door.plugin import open_plugin
    from pjrt_hub.finding.discovery.registry_rows import manifest_of
    from pjrt_hub.finding.discovery.select import Choice
    from pjrt_hub.finding.discovery.source import Candidate

    os.environ.update(env, PJRT_HUB_CACHE=root)
    artifact = pin(row)
    candidate = Candidate(manifest_of(artifact, ()), "catalogued", ("a test",), artifact=artifact)
    loaded = open_plugin(Choice(candidate, (), "a test"), progress=_Silent(), reload=_never)
    return " ".join(sorted(loaded.attributes))


def load_changed(change: str, moment: str, **given: Any) -> list[str]:
    """Load twice; during the first load, the library's file is replaced or changed.

    Args:
        change: "rename" another file over it, or "write" through it.
        moment: "checked", before the last look; or "opened", right before the loader opens it.
        given: as for `load`.

    Returns:
        What each of the two loads raised, or gave.
    """
    from pjrt_hub.errors import PjrtHubError
    from pjrt_hub.running.capi import hotpath

    artifact, told = pin(given["row"]), []
    library = Cache(Path(given["root"])).layout.entry_root(artifact) / artifact.library
    where, name = {"checked": (preflight, "prepare"), "opened": (hotpath, "open_library")}[moment]
    function = getattr(where, name)

    def late(*args: Any) -> Any:
        setattr(where, name, function)
        _become_another(library, change)
        return function(*args)

    setattr(where, name, late)
    for _ in range(2):
        try:
            told.append(load(**given))
        except PjrtHubError as exc:
            told.append(f"{type(exc).__name__}: {exc}")
    return told


def _become_another(path: Path, change: str) -> None:
    """Change the last byte of the file, or put a copy with another last byte in its place."""
    path.chmod(0o644)
    if change == "rename":
        other = path.with_name("other")
        shutil.copyfile(path, other)
        other.replace(path)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


def _never(name: str) -> Any:
    raise AssertionError(name)


class _Silent:
    def start(self, total: int, already: int) -> None:
        pass

    def advance(self, n: int) -> None:
        pass

    def finish(self) -> None:
        pass


def fetch_for_ever(**given: Any) -> None:
    root = Path(given["root"])
    while True:
        fetch(**given)
        time.sleep(0.05)
        Cache(root).clear()
        disk.sync_directory(root / "v1")


def fetch_unsynced(**given: Any) -> str:
    os.fsync = os.fdatasync = lambda file: None
    return fetch(**given)


def fetch_in_threads(count: int, **given: Any) -> list[str]:
    gate = threading.Barrier(count)

    def one(_: int) -> str:
        gate.wait()
        return fetch(**given)

    with ThreadPoolExecutor(count) as pool:
        return sorted(set(pool.map(one, range(count))))


def fetch_without_locks(kind: str, **given: Any) -> str:
    """Fetch where every lock succeeds without effect, or fails with an error."""

    def flock(*args: object) -> None:
        if kind != "silent":
            number = getattr(errno, kind)
            raise OSError(number, os.strerror(number))

    fcntl.flock = fcntl.lockf = fcntl.fcntl = flock
    return fetch(**given)


def fetch_and_fork(nbytes: int, goes_on: bool, **given: Any) -> str:
    """Fetch, and fork once so many bytes came.

    The fork raises SystemExit, which leaves every block, or it goes on with the fetch; in that case
    an alarm after a minute ends a wait that would have no end.
    """
    row, root, env = given["row"], given["root"], given["env"]
    parent, progress = os.getpid(), _Forking(nbytes, goes_on)
    try:
        entry = obtain(pin(row), Cache(Path(root)), env=env, progress=progress)
    except CacheError:
        if os.getpid() != parent:
            os._exit(_REFUSED)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert progress.status == (_REFUSED if goes_on else 0), progress.status
    return str(entry.library_path)


def clear(root: str, **_: Any) -> int:
    """Remove every entry that nobody uses; give how many went."""
    removed = Cache(Path(root)).clear().removed
    return sum(path.name.startswith(path.parent.name) for path in removed)  # entries: <aa>/<aa...>


def fetch_with_file_limit(nbytes: int | None, **given: Any) -> str:
    """Fetch where no file may be larger than this (setrlimit)."""
    if nbytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
    return fetch(**given)


def fetch_as_nobody(root: str, **given: Any) -> str:
    """Fetch as a user who owns nothing; without a root, into the cache of that user."""
    for name in [name for name in os.environ if name.startswith(("PJRT_HUB_", "XDG_"))]:
        del os.environ[name]
    os.environ["HOME"] = "/nonexistent"
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    return fetch(root=root or str(Cache.from_env(os.environ).root), **given)


class _Forking(_Silent):
    def __init__(self, nbytes: int, goes_on: bool) -> None:
        self._left, self._goes_on = nbytes, goes_on
        self.status = -1

    def advance(self, n: int) -> None:
        before, self._left = self._left, self._left - n
        if self._left < 0 <= before:
            pid = os.fork()
            if pid == 0 and self._goes_on:
                signal.alarm(60)
            elif pid == 0:
                raise SystemExit
            else:
                self.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
