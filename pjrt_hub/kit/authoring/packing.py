"""`pack`: a wheel straight from a library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pjrt_hub.door.process import environment
from pjrt_hub.kit.authoring.building import refuse_built
from pjrt_hub.kit.authoring.identity import LibraryIdentity, identify
from pjrt_hub.kit.authoring.package import Package, license_expression, platform_name, refuse_name
from pjrt_hub.kit.authoring.wheel import Wheel, epoch, normalize_version, platform_tag


@dataclass(frozen=True, slots=True)
class Packed:
    """A wheel that `pack` wrote.

    Attributes:
        path: the wheel's path.
        package: the package in the wheel.
        identity: what is known of the library in the wheel.
    """

    path: Path
    package: Package
    identity: LibraryIdentity


def pack(
    library: Path,
    name: str,
    *,
    version: str = "0.1.0",
    platform: str = "",
    license: str = "",
    out: Path = Path("dist"),
    with_options: bool = True,
) -> Packed:
    """Write a wheel around a library, with all that frameworks need to find it.

    Args:
        library: its path.
        name: what the plugin will be called.
        version: the distribution's version.
        platform: what the plugin drives; by default what the library says, else the plugin's name.
        license: an SPDX expression.
        out: the folder for the wheel.
        with_options: make clients, to learn the platform's name and the create options.

    Raises:
        PluginError: the library cannot be loaded, or fails while it is loaded.
        PjrtHubError: the name, version, platform or licence is invalid, or the library is one that
            `build` wrote.
    """
    refuse_name(name)
    license = license_expression(license)
    version = normalize_version(version)
    refuse_built(library)
    identity = identify(library, with_options=with_options)
    tag = platform_tag(identity.binary)
    package = Package(
        name, platform_name(platform, identity.platform, name), version, license, identity, tag
    )
    wheel = Wheel(package.distribution, version, tag, package.metadata(), package.registrations())
    files: dict[str, str | Path] = {
        f"{package.module}/{file}": text for file, text in package.files().items()
    }
    files[f"{package.module}/{package.file_name}"] = identity.path
    path = wheel.write(out, files, seconds=epoch(environment()))
    return Packed(path, package, identity)
