"""An unpinned archive: its bytes, and the row for it.

For `pjrt-hub lock`, which shows the row and asks. Nothing that comes from here may be loaded
before its row is in a lock file. Loads nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from pjrt_hub.base import digest
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import ArchiveError, DownloadError, PluginLoadError, StoreError
from pjrt_hub.finding.contract import headers
from pjrt_hub.finding.contract.binary import ENTRY_POINT
from pjrt_hub.finding.contract.manifest import FILE_NAME
from pjrt_hub.finding.store.archive import archive
from pjrt_hub.finding.store.catalog import Artifact, Member
from pjrt_hub.finding.store.transfer import index, installers
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.installers import Sources
from pjrt_hub.finding.store.transfer.partial import Partial, Progress, copy, fill
from pjrt_hub.finding.store.transfer.transport import Patience, Refused, Transport

SUFFIXES = (".whl", ".zip", ".tar.gz", ".so")
#: This stands in a row for an unknown name of the plugin, platform or package.
UNNAMED = "unnamed"


def receive(
    url: str,
    folder: Path,
    *,
    env: Mapping[str, str],
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> Path:
    """Fetch a file with an unknown digest into an empty private folder, and return its path.

    The address is https: or file:. The caller ends `progress`. A file that cannot be fetched
    raises DownloadError.
    """
    limits = (patience or Patience.from_env(env)).start()
    try:
        with closing(Partial(None, folder, progress)) as partial:
            partial.enter("looking")
            if urlsplit(url).scheme == "file":
                copy(partial, url, limits)
            else:
                with Transport(env, sources=_sources(env), patience=limits) as transport:
                    fill(partial, url, transport)
            return partial.path
    except Refused as exc:
        raise DownloadError(
            f"{redact(url)} cannot be fetched: {exc}",
            url=redact(url),
            hint="check the address, the network and the proxy, or name a file on this machine",
        ) from exc


def _sources(env: Mapping[str, str]) -> Sources:
    try:
        return installers.read_sources(env)
    except StoreError:  # There is no installer to ask.
        return installers.read_mirror_sources(env)


def measure(
    archive_path: Path, folder: Path, *, file_name: str, urls: tuple[str, ...] = ()
) -> Artifact:
    """Measure an archive: its digests, its library, the library's needs, and where it runs.

    The archive's own name tells its kind, its package and its version. The folder is empty and
    private; afterwards it holds the members, and manifests. The row has no API version; its plugin
    and platform are `UNNAMED`, and so is the package if the name does not tell it. ArchiveError
    means that the archive is malformed or hostile, or does not hold exactly one plugin for Linux.
    """
    found = archive.measure(archive_path, _is_wanted, name=file_name)
    archive.unpack(archive_path, found, folder, name=file_name)
    libraries = [member for member in found if not member.path.endswith(FILE_NAME)]
    exporting = [member for member in libraries if headers.is_plugin(folder / member.path)]
    if len(exporting) != 1:
        names = ", ".join(member.path for member in exporting)
        raise ArchiveError(
            f"{file_name} holds {len(exporting) or 'no'} ELF libraries that export "
            f"{ENTRY_POINT}{f': {names}' if names else ''}; a plugin is exactly one",
            hint="name the archive of one plugin for Linux",
        )
    (library,) = exporting
    host, members = needs(folder, library, libraries)
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
    return name.endswith(".so") or ".so." in name or name == FILE_NAME


def needs(
    folder: Path, library: Member, libraries: Sequence[Member]
) -> tuple[HostTag, tuple[Member, ...]]:
    """Return the oldest Linux that a library runs on, and the members that its loading finds.

    `libraries` are all that the archive has; one that is no library raises ArchiveError.
    """
    members, waiting = [library], [library]
    glibc: tuple[int, ...] = ()
    while waiting:
        try:
            file = headers.inspect(folder / waiting.pop().path)
        except PluginLoadError as exc:
            raise ArchiveError(exc.message) from None
        glibc = max(glibc, file.glibc)
        for member in libraries:
            if PurePosixPath(member.path).name in file.needed and member not in members:
                members.append(member)
                waiting.append(member)
    machine = headers.inspect(folder / library.path).machine
    return HostTag("linux", machine, "glibc", glibc), tuple(members)


def _identity(file_name: str, sha256: str) -> tuple[str, str]:
    """Read the package and the version from a file name; else use the digest as version."""
    from packaging.utils import InvalidSdistFilename, parse_sdist_filename

    package, wheels_version = index.identity(file_name)
    if package:
        return package, wheels_version
    with suppress(InvalidSdistFilename):
        name, version = parse_sdist_filename(file_name)
        return name, str(version)
    return UNNAMED, f"0+sha.{sha256[:12]}"
