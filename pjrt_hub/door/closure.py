"""A plugin with what it requires, each from what is installed, else from the cache.

Owns how much of it is fetched. The library finds the files that are laid out around it, because
they lie where an installer would have put them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pjrt_hub.base.listing import count_text, size_text
from pjrt_hub.door.process import say, warn
from pjrt_hub.finding.discovery.requirement import find_installed
from pjrt_hub.finding.store import disk

if TYPE_CHECKING:
    from pjrt_hub.finding.discovery.source import Candidate, World
    from pjrt_hub.finding.store.cache.cache import Cache, CacheEntry
    from pjrt_hub.finding.store.catalog import Archive, Artifact, Requirement

    #: A lease keeps an archive in the cache for a `with` block; a missing one is fetched first.
    Lease = Callable[[Archive], AbstractContextManager[CacheEntry]]

#: How much of what a plugin requires is fetched: all; what it needs here, if the plugin itself must
#: be fetched; or nothing, in which case the cache is not used for it either.
Which = Literal["all", "needed", "none"]


@contextmanager
def closure(
    candidate: Candidate,
    row: Artifact,
    here: World,
    store: Cache,
    lease: Lease,
    *,
    which: Which,
    offline: bool,
) -> Iterator[tuple[Path, CacheEntry | None]]:
    """Keep a plugin, and what it requires, from removal in a `with` block.

    What it requires is fetched first, so that a plugin in the cache was fetched whole. For an
    installed plugin, `row` is the row of its release, and the cache entry that is yielded is None.
    """
    requires = row.requires if which != "none" else ()
    wanted = [
        each
        for each in requires
        if store.place(each) or _is_wanted(each, candidate, which, offline)
    ]
    path = candidate.library_path if candidate.artifact is None else None
    # The loader finds what is installed beside the plugin without our help.
    if path is not None and not wanted:
        yield path, None
        return
    files: dict[str, Path] = {}
    archives: list[Archive] = []
    for each in requires:
        if installed := find_installed(here, each):
            files |= installed
        elif each in wanted:
            archives.append(each)
    if path is None:
        archives.append(row)
    if not offline:
        _tell(candidate, row, [each for each in archives if not store.place(each)], store)
    with ExitStack() as stack:
        entries = [stack.enter_context(lease(each)) for each in archives]
        for entry in entries:
            files |= {one.path: entry.root / one.path for one in entry.artifact.members}
        own = None
        if path is None:
            own = entries[-1]
            path = own.library_path
        else:
            home = path.parents[row.library.count("/")]
            files |= {one.path: home / one.path for one in row.members}
        # Otherwise all files are where an installer put them.
        if archives and len(files) > len(row.members):
            path = _lay_out(row, path, files, store)
        yield path, own


def _is_wanted(each: Requirement, candidate: Candidate, which: Which, offline: bool) -> bool:
    if which == "all":  # Without a network, an installed plugin is used as it is.
        return not (offline and candidate.artifact is None)
    return candidate.must_be_fetched and not offline and (candidate.may_run or each.compiles)


def _tell(candidate: Candidate, plugin: Artifact, missing: list[Archive], store: Cache) -> None:
    """Say what will be fetched, and refuse early if there is no room for it."""
    if not missing:
        return
    nbytes = sum(each.size for each in missing)
    if missing == [plugin]:
        what = f"{plugin.package} {plugin.version}"
    elif plugin in missing:
        others = count_text(len(missing) - 1, "archive")
        what = f"{plugin.package} {plugin.version} and {others} that it requires"
    else:
        what = f"{count_text(len(missing), 'archive')} that {candidate.name} requires"
    why = f"no plugin for {candidate.platform!r} is installed; " if plugin in missing else ""
    say(f"{why}fetching {what} ({size_text(nbytes)}) into {store.root}")
    needed = max(each.size for each in missing) + sum(each.nbytes for each in missing)
    disk.require_space(store.root, needed)


def _lay_out(row: Artifact, library_path: Path, files: dict[str, Path], store: Cache) -> Path:
    if root := store.lay_out(files):
        return root / row.library
    # The plugin may find what it requires elsewhere, so this is only a warning.
    warn(
        f"{row.package} is used without what it requires, because {store.root} can only be "
        f"read; run `pjrt-hub fetch {row.plugin}` once as a user who can write there"
    )
    return library_path
