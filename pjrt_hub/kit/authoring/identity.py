"""What a library is: facts about its file, and what it tells about itself in a child process.

Owns `identify`; must not let a plugin into this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pjrt_hub.base import digest, log
from pjrt_hub.door import preflight
from pjrt_hub.door.process import environment, world
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract import headers, manifest
from pjrt_hub.finding.contract.binary import unfit

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.binary import Binary
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.finding.contract.option import Option


@dataclass(frozen=True, slots=True)
class LibraryIdentity:
    """What is known of a library: its file, its API and its create options."""

    path: Path
    binary: Binary
    nbytes: int
    sha256: str
    api_version: str
    extensions: tuple[str, ...]  # The names of the extensions, in the order of the chain.
    platform: str = ""  # The platform that its clients or topologies name, or empty.
    refusal: str = ""  # Why the library makes no client on this machine, or empty.
    options: tuple[Option, ...] = ()  # The library's create options.


def identify(
    path: Path, *, with_options: bool = True, names: Sequence[str] = ()
) -> LibraryIdentity:
    """Measure a library's file and ask the library, in child processes, what it is.

    `with_options` makes clients, to learn the platform's name and which create options the library
    takes: among those known from other plugins, `names`, and names in the file.
    """
    from pjrt_hub.kit.conformance import create_options

    path = path.resolve()
    seen, here = digest.identity_if_any(path), world()
    if why := here.refusal(path):
        raise PluginLoadError(why, path=path, hint="PJRT_HUB_LOCK=0 goes without a lock")
    binary = headers.inspect(path)
    preflight.refuse(path, unfit(binary, here.host))
    known = first_party()
    env = {**_defaults(path, known), **environment()}
    answer = preflight.first_contact(path, (), env, identity=seen)
    version, extensions = answer["api_version"], tuple(answer["extensions"])
    log.step("probe", "%s: PJRT API %s", path, version, path=str(path))
    nbytes, sha256 = path.stat().st_size, digest.of_file(path)
    identity = LibraryIdentity(path, binary, nbytes, sha256, version, extensions)
    if not with_options:
        return identity
    described = {option.name: option for each in known for option in each.options}
    asked = create_options.candidates(path, sorted({*described, *names}))
    text = "%s: ask it for %d options that it may have"
    log.step("probe", text, path, len(asked), path=str(path))
    client, options = create_options.find(path, asked, env, identity=seen)
    return replace(
        identity,
        platform=client.platform,
        refusal=client.refusal,
        options=tuple(_add_known(option, described) for option in options),
    )


def first_party() -> tuple[Manifest, ...]:
    """Read the manifests of the plugins that pjrt-hub itself describes."""
    folder = world().first_party / "pjrt_plugins"
    return tuple(
        each
        for path in sorted(folder.glob(f"*/{manifest.FILE_NAME}"))
        for each in manifest.read(path)
    )


def _defaults(path: Path, known: tuple[Manifest, ...]) -> Mapping[str, str]:
    """Return the environment variables that a plugin known by its file needs without hardware."""
    return {
        name: value
        for each in known
        if any(PurePath(library.path).name == path.name for library in each.libraries)
        for name, value in each.environment_for(present=False).items()
    }


def _add_known(option: Option, known: Mapping[str, Option]) -> Option:
    """Add what is known of an option of the same name and type in another plugin."""
    other = known.get(option.name)
    if other is None or other.type != option.type:
        return option
    return option._replace(doc=other.doc, minimum=other.minimum, maximum=other.maximum)
