"""From requests to a lock file: what `pjrt-hub lock` does.

Rows come from the registry. A release that it does not know is fetched, measured, shown to the
caller, and recorded only if the caller trusts it. Must not decide itself whether to trust one.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pjrt_hub.base import progress as displays
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.frames import hide_below
from pjrt_hub.base.host import HostTag
from pjrt_hub.base.listing import count_text
from pjrt_hub.door import preflight
from pjrt_hub.door.process import environment, installed, known_rows, lock_path, registry, say
from pjrt_hub.errors import DigestMismatchError, LockFileError, PjrtHubError, PluginNotFoundError
from pjrt_hub.finding.contract import manifest
from pjrt_hub.finding.contract.names import canonical, did_you_mean, is_name, look_alike
from pjrt_hub.finding.discovery.library import plugin_name
from pjrt_hub.finding.store import pins
from pjrt_hub.finding.store.catalog import newest_for_each_kind, rows_called
from pjrt_hub.finding.store.pins import Pins, build, serves
from pjrt_hub.finding.store.transfer import index, unpinned
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.partial import enter, report_to

if TYPE_CHECKING:
    from pjrt_hub.finding.store.catalog import Artifact
    from pjrt_hub.finding.store.transfer.index import IndexFile

    #: Shows the user, as text, an archive that is in no registry; returns whether to record it.
    Trust = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Locked:
    """What `lock` did to a lock file.

    Attributes:
        pins: the contents of the file, as they are or would be.
        changes: what changes in the file, a line for each; empty if it was right already.
        additions: plugins that no registry pins as the file does; they can be used only if the
            user names the file, or makes it a registry.
    """

    __module__ = "pjrt_hub"
    pins: Pins
    changes: tuple[str, ...]
    additions: tuple[str, ...]


@hide_below
def lock(
    *requests: str,
    hosts: Sequence[str] = (),
    output: Path | None = None,
    upgrade: bool = False,
    check: bool = False,
    allow_look_alike: bool = False,
    trust: Trust | None = None,
) -> Locked:
    """Write the lock file: what may be fetched and loaded from now on.

    Args:
        requests: platforms, plugins, packages ("jax-cuda13-pjrt==0.12.0.1"), or archives by path or
            address ("toy=./toy.so" names the plugin); by default what the file was written for,
            else the whole registry. If several packages build a plugin, the newest build is taken,
            unless a package is named.
        hosts: machines ("linux-x86_64", "linux-x86_64-glibc2.28"); by default the file's, else all.
        output: the file; by default the one that applies here, else `pylock.pjrt.toml` here.
        upgrade: take the newest rows, instead of those that the file has.
        check: only compare; write nothing.
        allow_look_alike: accept a new name that could be mistaken for a known one.
        trust: is asked about each release that the registry does not know; None trusts none.

    Raises:
        LockFileError: the file is malformed, cannot be written, or cannot hold what was asked for.
        PluginNotFoundError: the registry has no row of a name that was asked for.
        DownloadError: an unknown release cannot be fetched.
        DigestMismatchError: an unknown release is not the file that its index describes.
        ArchiveError: an unknown release is not a plugin.
    """
    requests = tuple(map(_absolute, requests))
    path = output.absolute() if output else lock_path(environment()) or Path.cwd() / pins.FILE_NAME
    before = pins.read(path) if path.exists() else None
    if before is not None:
        requests, hosts = requests or before.requests, tuple(hosts) or before.hosts
    resolving = _Resolving(path, before, tuple(hosts), upgrade, allow_look_alike, trust)
    rows = resolving.rows(requests)
    addresses = _addresses(rows, before, check)
    after = Pins(path, tuple(requests), tuple(hosts), rows, addresses)
    changes = tuple(_changes(before, after))
    if changes and not check:
        after.write()
    added = {row.plugin for row in rows} - {row.plugin for row in after.among(resolving.known)}
    return Locked(after, changes, tuple(sorted(added)))


def _addresses(rows: Iterable[Artifact], before: Pins | None, check: bool) -> dict[str, str]:
    """Return the addresses of wheels for installers: the file's and, unless `check`, indexes'."""
    known = dict(before.addresses) if before else {}
    archives = (each for row in rows for each in row.archives)
    missing = [each for each in archives if not each.urls and each.sha256 not in known]
    if missing and not check:
        with report_to(displays.choose_progress(pins.FILE_NAME)) as progress:
            enter(progress, "looking")
            known |= index.locate(missing, environment())
            enter(progress, "done")
    return known


def _changes(before: Pins | None, after: Pins) -> Iterable[str]:
    old = {build(row): row for row in before.rows} if before else {}
    new = {build(row): row for row in after.rows}
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if was != now:
            plugin, _, system, machine, _ = key
            yield f"{plugin} for {system}-{machine}: {_summary(was)} -> {_summary(now)}"
    if before and (before.requests, before.hosts) != (after.requests, after.hosts):
        yield "it was written for other requests or hosts"
    if before is None and not new:
        yield "there is no file yet"
    if before and before.text() != before._replace(addresses=after.addresses).text():
        yield "it lacks addresses for pip and uv"


def _summary(row: Artifact | None) -> str:
    if row is None:
        return "nothing"
    count = count_text(len(row.requires), "archive")
    beside = f" with {count} that it requires" if row.requires else ""
    return f"{row.package} {row.version} sha256 {row.sha256[:12]}{beside}"


class _Resolving:
    """The search for the rows that one call of `lock` writes."""

    def __init__(
        self,
        path: Path,
        before: Pins | None,
        hosts: tuple[str, ...],
        upgrade: bool,
        allow_look_alike: bool,
        trust: Trust | None,
    ) -> None:
        self._path = path
        self._before = before.rows if before else ()
        self._hosts = tuple(map(self._host, hosts))
        self._upgrade = upgrade
        self._allow_look_alike = allow_look_alike
        self._trust = trust
        self.known = known_rows(registry(installed()))

    def rows(self, requests: Sequence[str]) -> tuple[Artifact, ...]:
        chosen: dict[tuple[str, ...], Artifact] = {}
        exact = [each for each in requests if "==" in each or _is_archive(each)]
        for request in exact:
            found = self._archive(request) if _is_archive(request) else self._release(request)
            for row in found:
                self._add(chosen, row)
        settled = {row.plugin for row in chosen.values()}
        named = [each for each in requests if each not in exact]
        # A release that was named takes precedence over one that a platform's name would bring.
        for rows in map(self._find, named) if requests else (self.known,):
            for row in self._newest([row for row in rows if row.plugin not in settled]):
                chosen[build(row)] = row
        return tuple(chosen.values())

    def _add(self, chosen: dict[tuple[str, ...], Artifact], row: Artifact) -> None:
        # Only the registry can say that several packages build one plugin.
        builders = {each.package for each in self.known if each.plugin == row.plugin}
        for first in [each for each in chosen.values() if each.plugin == row.plugin]:
            if first == row or (
                build(first) != build(row) and {first.package, row.package} <= builders
            ):
                continue
            raise self._fail(
                f"{first.package} {first.version} ({first.file_name}) and {row.package} "
                f"{row.version} ({row.file_name}) are both the plugin {row.plugin!r}",
                "ask for one of them, or name the other NAME=...",
            )
        chosen[build(row)] = row

    # The methods from here on deal with what the registry knows.

    def _find(self, word: str) -> tuple[Artifact, ...]:
        rows = rows_called(word, (*self.known, *self._reusable_rows()))
        if not rows:
            words = {name for row in self.known for name in (row.plugin, row.platform)}
            words |= {row.package for row in self.known}
            raise PluginNotFoundError(
                f"no row of the registry is called {word!a}",
                hint=did_you_mean(word, words)
                or "ask for PACKAGE==VERSION, or for an archive by its path or address",
            )
        found = [row for row in rows if self._serves(row)]
        if not found:
            kinds = sorted({f"{row.host}" for row in rows})
            raise self._fail(
                f"{word!r} has no build for the hosts that were named",
                f"it has some for {', '.join(kinds)}",
            )
        return tuple(found)

    def _newest(self, rows: Sequence[Artifact]) -> list[Artifact]:
        """Return, for each plugin and kind of machine, the file's rows, else the newest row."""
        wanted = {build(row) for row in rows}
        kept = [row for row in self._reusable_rows() if build(row) in wanted and self._serves(row)]
        covered = {(row.plugin, row.kind) for row in kept}
        fresh = (row for row in rows if (row.plugin, row.kind) not in covered)
        return [*kept, *newest_for_each_kind(row for row in fresh if self._serves(row))]

    def _reusable_rows(self) -> tuple[Artifact, ...]:
        return () if self._upgrade else self._before

    def _serves(self, row: Artifact) -> bool:
        return not self._hosts or serves(row, self._hosts)

    def _host(self, text: str) -> HostTag:
        try:
            return HostTag.parse(text)
        except ValueError as exc:
            raise self._fail(str(exc), "such as linux-x86_64 or linux-aarch64-glibc2.28") from None

    # The methods from here on deal with what the registry does not know.

    def _release(self, request: str) -> list[Artifact]:
        package, _, version = map(str.strip, request.partition("=="))
        family = [row for row in self.known if canonical(row.package) == canonical(package)]
        rows = [
            row
            for row in (*family, *self._before)
            if canonical(row.package) == canonical(package) and _same_version(row.version, version)
        ]
        if found := [row for row in rows if self._serves(row)]:
            return list({build(row): row for row in found}.values())
        if not family:
            builders = dict.fromkeys(row.package for row in self.known if row.plugin == package)
            raise PluginNotFoundError(
                f"the registry has no package {package!a}",
                hint=" or ".join(f"`pjrt-hub lock {each}=={version}`" for each in builders)
                or did_you_mean(package, {row.package for row in self.known})
                or "name its archive by path or address instead, and check where it comes from",
            )
        with report_to(displays.choose_progress(request)) as progress:
            enter(progress, "looking")
            files = index.releases(package, environment(), version=version)
        chosen = self._for_machines(files)
        if not chosen:
            raise self._fail(
                f"{request} has no wheel for the hosts that were named; it has "
                + ", ".join(file.name for file in files),
                "releases that the registry does not know are locked for Linux",
            )
        plugin = family[0].plugin
        return [self._measure(file.url, file.name, plugin=plugin, said=file) for file in chosen]

    def _for_machines(self, files: Iterable[IndexFile]) -> list[IndexFile]:
        """Choose one wheel for each architecture of the hosts, by default for this machine's."""
        from packaging.utils import parse_wheel_filename

        # Wheels for different Pythons hold one library, so any would do; this Python's comes first.
        running = (f"cp{sys.version_info.major}{sys.version_info.minor}", "py3")
        best: dict[str, tuple[tuple[bool, str], IndexFile]] = {}
        for file in files:
            *_, tags = parse_wheel_filename(file.name)
            rank = (all(tag.interpreter not in running for tag in tags), file.name)
            for host in self._hosts or (HostTag.current(),):
                platforms = (tag.platform for tag in tags if host.os == "linux")
                fits = any(
                    each.startswith(("manylinux", "linux")) and each.endswith(f"_{host.arch}")
                    for each in platforms
                )
                if fits and (host.arch not in best or rank < best[host.arch][0]):
                    best[host.arch] = rank, file
        return [file for _, file in best.values()]

    def _archive(self, request: str) -> list[Artifact]:
        plugin, equals, place = request.partition("=")
        if not equals or not is_name(plugin):
            plugin, place = "", request
        url = place if "://" in place else Path(place).expanduser().absolute().as_uri()
        if redact(url) != url:
            raise self._fail(
                f"the password or query of {redact(url)} would be written into the lock file",
                "give the password by .netrc or keyring, or fetch the file and name its path",
            )
        name = url.partition("?")[0].rpartition("/")[2]
        if known := [
            row for row in self._reusable_rows() if url in row.urls and url.startswith("https:")
        ]:
            return known
        return [self._measure(url, name, plugin=plugin)]

    def _measure(
        self, url: str, file_name: str, *, plugin: str = "", said: IndexFile | None = None
    ) -> Artifact:
        urls = (url,) if said is None else ()  # Files of an index are looked up in the index.
        with tempfile.TemporaryDirectory(prefix="pjrt-hub-") as scratch:
            came, folder = Path(scratch, "came"), Path(scratch, "members")
            came.mkdir()
            folder.mkdir()
            if not url.startswith("file:"):
                say(f"fetching {redact(url)}, to look at it")
            try:
                with report_to(displays.choose_progress(file_name)) as progress:
                    archive_path = unpinned.receive(url, came, env=environment(), progress=progress)
                    enter(progress, "checking")
                    row = unpinned.measure(archive_path, folder, file_name=file_name, urls=urls)
                    enter(progress, "done")
            except KeyboardInterrupt as exc:
                exc.add_note(
                    f"interrupted: nothing of {file_name} is kept; run it again to start over"
                )
                raise
            if said is not None and said.sha256 not in ("", row.sha256):
                raise DigestMismatchError(
                    f"{redact(url)} has sha256 {row.sha256}, its index says {said.sha256}",
                    expected=f"sha256:{said.sha256}",
                    actual=f"sha256:{row.sha256}",
                    hint="try again, or see what changes the file on its way",
                )
            row = self._with_names(row, folder, plugin)
            for each in self._before:
                if each.sha256 == row.sha256:  # It is not run again: others may have locked it.
                    return row._replace(api_version=each.api_version, api_note=each.api_note)
            if self._trust is None or not self._trust(_description(row)):
                raise self._fail(
                    f"{row.package} {row.version} (sha256 {row.sha256}) is in no registry, and "
                    "nobody has said that it is to be trusted",
                    "look at it, and run the command again on a terminal or with --yes",
                )
            return _with_version(row, folder / row.library)

    def _with_names(self, row: Artifact, folder: Path, plugin: str) -> Artifact:
        """Give a row the names of its package's rows, else of the request, its manifest or file."""
        package = canonical(row.package)
        family = [each for each in self.known if canonical(each.package) == package]
        if family and plugin in ("", family[0].plugin):
            # Another release of a plugin is taken to require what the measured ones do.
            kin = [each.requires for each in family if each.kind == row.kind]
            requires = kin[0] if kin else ()
            names = family[0]
            return row._replace(plugin=names.plugin, platform=names.platform, requires=requires)
        owners: dict[str, set[str]] = {}
        for each in self.known:
            for name in (each.plugin, each.platform):
                owners.setdefault(name, set()).add(each.package)
        name, platform = _own_names(folder, row)
        name = plugin or name
        if name in owners:
            raise self._fail(
                f"{row.file_name} would be the plugin {name!r}, a name that the registry gives to "
                f"{' and '.join(sorted(owners[name]))}",
                f"name it otherwise: mine={row.urls[0] if row.urls else row.file_name}",
            )
        if (known := look_alike(name, owners)) and not self._allow_look_alike:
            raise self._fail(
                f"{row.file_name} would be the plugin {name!r}, which could be mistaken for "
                f"{known!r} of {' and '.join(sorted(owners[known]))}",
                "name it otherwise: NAME=ARCHIVE; or, if that is meant, --allow-look-alike",
            )
        return row._replace(
            plugin=name,
            # A platform of the registry keeps the meaning that the registry gives to it.
            platform=platform if platform and platform not in owners else name,
            package=name if row.package == unpinned.UNNAMED else row.package,
        )

    def _fail(self, what: str, hint: str) -> LockFileError:
        return LockFileError(f"{self._path} cannot be made: {what}", path=self._path, hint=hint)


def _description(row: Artifact) -> str:
    members = (f"  {member.path}: sha256 {member.sha256}" for member in row.members)
    return "\n".join(
        (
            "this release is in no registry that you trust:",
            f"  {row.package} {row.version}, the plugin {row.plugin!r} of {row.platform!r}",
            f"  {row.file_name}, {row.size:,} bytes, for {row.host}",
            f"  sha256 {row.sha256}",
            *members,
        )
    )


def _own_names(folder: Path, row: Artifact) -> tuple[str, str]:
    described = [each for path in folder.rglob(manifest.FILE_NAME) for each in manifest.read(path)]
    if len(described) == 1:
        return described[0].name, described[0].platform
    return plugin_name(Path(row.library).stem), ""


def _with_version(row: Artifact, library_path: Path) -> Artifact:
    """Add the API version to a row, by loading the now trusted library in a child process."""
    if HostTag.current().runs(row.host):
        return row
    try:
        answer = preflight.first_contact(library_path, (), environment())
    except PjrtHubError as exc:
        text = exc.message.replace(f"{library_path.parent}/", "").partition("\n")[0]
        return row._replace(api_note=f"not loaded: {text}")
    return row._replace(api_version=ApiVersion.parse(answer["api_version"]), api_note="")


def _is_archive(request: str) -> bool:
    return "://" in request or "/" in request or request.endswith(unpinned.SUFFIXES)


def _absolute(request: str) -> str:
    """Rewrite a request so that it means the same in every folder."""
    plugin, equals, place = request.rpartition("=")
    if not _is_archive(request) or "://" in request or (plugin and not is_name(plugin)):
        return request
    return f"{plugin}{equals}{Path(place).expanduser().absolute()}"


def _same_version(one: str, other: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other
