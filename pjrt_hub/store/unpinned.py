"""An archive that nobody has pinned yet (layer 2): its bytes, and the row that they give.

For `pjrt-hub lock`, which shows what it found and asks. Nothing that comes from here may be loaded
before its row is in a lock file. Loads nothing itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from pjrt_hub.contract import elf
from pjrt_hub.errors import ArchiveError, DownloadError, PluginLoadError, StoreError
from pjrt_hub.host import HostTag
from pjrt_hub.store import archive, digest, installers
from pjrt_hub.store.catalog import Artifact, Member
from pjrt_hub.store.transport import (
    Dropped,
    Patience,
    Refused,
    Transport,
    redacted,
    refuse_encoding,
)

SUFFIXES = (".whl", ".zip", ".tar.gz", ".so")
#: What a row says where nothing tells the name of its plugin, platform or package.
UNNAMED = "unnamed"
_MOST_NBYTES = 8 << 30
_MANIFEST = "pjrt_plugin.toml"


def receive(
    url: str, path: Path, *, env: Mapping[str, str], patience: Patience | None = None
) -> None:
    """Fetches a file whose digest nobody knows, in one piece.

    Args:
        url: an https: or file: address.
        path: the file to write, in a private folder.
        env: the variables of the installers and of TLS.
        patience: the limits.

    Raises:
        DownloadError: the file cannot be had.
        OSError: `path` cannot be written.
    """
    limits = (patience or Patience.configured(env)).started()
    try:
        if urlsplit(url).scheme == "file":
            _copy(Path(unquote(urlsplit(url).path)), path)
            return
        try:
            sources = installers.configured(env)
        except StoreError:  # no installer to ask
            sources = installers.reached(env)
        with Transport(env, sources=sources, patience=limits) as transport:
            failures = 0
            while True:
                try:
                    _stream(url, path, transport)
                    return
                except Dropped as drop:
                    failures += 1
                    if failures >= limits.tries:
                        raise Refused(f"{drop} ({failures} times)") from drop
                    limits.wait(failures, drop.wait_seconds)
    except Refused as exc:
        raise DownloadError(
            f"{redacted(url)} cannot be fetched: {exc}",
            url=redacted(url),
            hint="check the address, the network and the proxy, or name a file on this machine",
        ) from exc


def _copy(source: Path, path: Path) -> None:
    try:
        if not source.is_file():
            raise Refused("it is not a file")
        shutil.copyfile(source, path)
    except OSError as exc:
        if exc.filename != os.fspath(source):
            raise
        raise Refused(f"it cannot be read: {exc.strerror}") from exc


def _stream(url: str, path: Path, transport: Transport) -> None:
    nbytes = 0
    with transport.stream(url) as response, path.open("wb") as file:
        refuse_encoding(response)
        if response.status_code != 200:
            raise Refused(f"the server answered {response.status_code} to a plain request")
        declared = response.headers.get("content-length", "")
        for chunk in response.iter_raw():
            transport.patience.left()
            nbytes += len(chunk)
            if nbytes > _MOST_NBYTES:
                raise Refused(f"it is larger than {_MOST_NBYTES:,} bytes")
            file.write(chunk)
    # Without a length nobody can tell an end from a break; the user is shown size and digest.
    if declared and declared != str(nbytes):
        raise Dropped(f"{nbytes:,} of {declared} bytes came")


def measure(
    archive_path: Path, folder: Path, *, file_name: str, urls: tuple[str, ...] = ()
) -> Artifact:
    """Measures an archive: its digests, its library, what that needs, and where it runs.

    Args:
        archive_path: the archive.
        folder: an empty private directory; afterwards it holds the members, and manifests.
        file_name: the archive's own name, which tells its kind, its package and its version.
        urls: addresses to record.

    Returns:
        A row without an API version, with the plugin and platform `UNNAMED`, and the package too
        where the file's name does not tell it.

    Raises:
        ArchiveError: it is malformed or hostile, or holds not exactly one plugin for Linux.
        OSError: a file cannot be read or written.
    """
    found = archive.measure(archive_path, _is_wanted, name=file_name)
    archive.unpack(archive_path, found, folder, name=file_name)
    libraries = [member for member in found if not member.path.endswith(_MANIFEST)]
    exporting = [member for member in libraries if _exports(folder / member.path)]
    if len(exporting) != 1:
        names = ", ".join(member.path for member in exporting)
        raise ArchiveError(
            f"{file_name} holds {len(exporting) or 'no'} ELF libraries that export "
            f"{elf.ENTRY_POINT}{f': {names}' if names else ''}; a plugin is exactly one",
            hint="name the archive of one plugin for Linux",
        )
    (library,) = exporting
    host, members = _needs(folder, library, libraries)
    sha256 = digest.of_file(archive_path)
    package, version = _identity(file_name, sha256)
    return Artifact(
        plugin=UNNAMED,
        platform=UNNAMED,
        package=package,
        version=version,
        file_name=file_name,
        size=archive_path.stat().st_size,
        sha256=sha256,
        members=members,
        library=library.path,
        host=host,
        license="not stated",
        api_note="not loaded when it was locked",
        urls=urls,
    )


def _is_wanted(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(".so") or ".so." in name or name == _MANIFEST


def _exports(path: Path) -> bool:
    try:
        return elf.inspect(path).exported
    except PluginLoadError:
        return False


def _needs(
    folder: Path, library: Member, libraries: list[Member]
) -> tuple[HostTag, tuple[Member, ...]]:
    """The oldest machine that the library runs on, and the members that its loading finds."""
    members, waiting = [library], [library]
    glibc: tuple[int, ...] = ()
    while waiting:
        try:
            file = elf.inspect(folder / waiting.pop().path)
        except PluginLoadError as exc:
            raise ArchiveError(exc.message) from exc
        glibc = max(glibc, file.glibc)
        for member in libraries:
            if PurePosixPath(member.path).name in file.needed and member not in members:
                members.append(member)
                waiting.append(member)
    machine = elf.inspect(folder / library.path).machine
    return HostTag("linux", machine, "glibc", glibc), tuple(members)


def _identity(file_name: str, sha256: str) -> tuple[str, str]:
    """The package and the version that a file name says; else none, and its own content."""
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    with suppress(InvalidWheelFilename):
        name, version, _, _ = parse_wheel_filename(file_name)
        return name, str(version)
    with suppress(InvalidSdistFilename):
        name, version = parse_sdist_filename(file_name)
        return name, str(version)
    return UNNAMED, f"0+sha.{sha256[:12]}"
