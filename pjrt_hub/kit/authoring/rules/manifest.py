"""Rules about the manifest, against the library that it describes."""

from __future__ import annotations

from collections.abc import Iterator

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.contract.linking import Search, find_missing
from pjrt_hub.finding.contract.manifest import FILE_NAME, Manifest
from pjrt_hub.finding.contract.names import look_alike
from pjrt_hub.finding.contract.option import UNKNOWN
from pjrt_hub.kit.authoring.identity import LibraryIdentity
from pjrt_hub.kit.authoring.linting import ERROR, WARNING, Found, rule
from pjrt_hub.kit.authoring.package import reserved_names
from pjrt_hub.kit.authoring.package_files import PackageFiles

#: The highest priority of any well-known plugin.
_HIGHEST = 500


@rule(301, WARNING)
def is_described(package: PackageFiles) -> Found:
    """A pjrt_plugin.toml describes the plugin.

    Without one, the plugin's platform, options, preloads and hardware are unknown: the plugin is
    recognised by its file's name at best, and options reach it unchecked.
    """
    if package.path.suffix == ".so":
        return
    if package.plugins and not package.manifests and not package.malformed:
        yield package.path.name, f"there is no {FILE_NAME}"


@rule(302, ERROR)
def can_be_read(package: PackageFiles) -> Found:
    """Every pjrt_plugin.toml is well formed.

    A malformed manifest keeps its plugin from being used.
    """
    for path, why in package.malformed.items():
        yield package.name(path), why.replace(str(path), path.name)


@rule(303, ERROR)
def library_is_there(package: PackageFiles) -> Found:
    """The manifest's library is in the package.

    Paths are relative to the manifest's folder, unless `distribution` or `module` says otherwise.
    """
    own = ("", package.distribution)
    for plugin in package.manifests:
        known = (each for each in plugin.libraries if not each.variable)
        inside = [each for each in known if each.distribution in own]
        if inside and not any(package.library(plugin, each) for each in inside):
            named = ", ".join(map(str, inside))
            yield _place(package, plugin), f"{plugin.name}: there is no {named}"


@rule(304, ERROR)
def digest_is_that_of_the_library(package: PackageFiles) -> Found:
    """The manifest's sha256 is that of its library.

    Another digest means that the library was replaced, stripped or patched since the manifest was
    written: what the manifest says of versions and options may be wrong as well.
    """
    for plugin in package.manifests:
        for library in plugin.libraries:
            for path in package.library(plugin, library)[-1:] if library.sha256 else ():
                if (found := digest.of_file(path)) != library.sha256:
                    text = f"{plugin.name}: {path.name} has the sha256 {found}"
                    yield _place(package, plugin), f"{text}, and not {library.sha256}"


@rule(305, ERROR)
def plugin_loads(package: PackageFiles) -> Found:
    """The plugin can be loaded and initialized.

    It is tried in a separate process, on this machine. Libraries for other machines are not tried,
    and failures of libraries whose own needs are missing here (PLG109) do not count.
    """
    for plugin in package.plugins:
        path, identity = plugin.path, package.identities.get(plugin.path)
        if isinstance(identity, PjrtHubError) and not find_missing(plugin, Search()):
            yield package.name(path), identity.message.replace(str(path), path.name)


@rule(306, ERROR)
def api_version_fits(package: PackageFiles) -> Found:
    """The library's PJRT API version is within the manifest's [api] range.

    pjrt-hub refuses a library outside of that range.
    """
    for plugin, identity in _with_identity(package):
        version = ApiVersion.parse(identity.api_version)
        low, high = plugin.api_minimum or version, plugin.api_maximum or version
        if not low <= version <= high:
            text = f"{plugin.name}: the library has PJRT API {version}, [api] says {low} to {high}"
            yield _place(package, plugin), text


@rule(307, ERROR)
def extensions_are_there(package: PackageFiles) -> Found:
    """The library has the extensions that the manifest lists."""
    for plugin, identity in _with_identity(package):
        for name in sorted(set(plugin.extensions) - set(identity.extensions)):
            yield _place(package, plugin), f"{plugin.name}: the library has no {name}"


@rule(308, ERROR)
def options_are_taken(package: PackageFiles) -> Found:
    """The library takes every create option of the manifest, with the type given there.

    A library refuses or ignores an unknown name; a value of another type ends the process inside
    some plugins. Each option was tried with values of several types.
    """
    for plugin, identity in _with_identity(package):
        taken = {option.name: option.type for option in identity.options}
        version = ApiVersion.parse(identity.api_version)
        for option in plugin.options:
            if option.since is not None and option.since > version:
                continue
            found = taken.get(option.name)
            if found is None:
                text = f"{plugin.name}: the library has no option {option.name}"
                yield _place(package, plugin), text
            elif UNKNOWN not in (found, option.type) and found != option.type:
                text = f"{plugin.name}: {option.name} is of type {found}, not {option.type}"
                yield _place(package, plugin), text


@rule(309, WARNING)
def options_are_listed(package: PackageFiles) -> Found:
    """The manifest lists every create option that the library takes.

    pjrt-hub refuses options that the manifest does not list.
    """
    for plugin, identity in _with_identity(package):
        listed = {option.name for option in plugin.options}
        for option in identity.options:
            if option.name not in listed:
                text = f"{plugin.name}: {option.name} ({option.type}) is not listed"
                yield _place(package, plugin), text


@rule(310, WARNING)
def platform_is_that_of_the_library(package: PackageFiles) -> Found:
    """The manifest's platform is the one that the library reports.

    Programs ask for a platform by the manifest's name, and their devices show the library's.
    """
    for plugin, identity in _with_identity(package):
        if identity.platform and identity.platform.lower() != plugin.platform:
            text = f"{plugin.name}: platform is {plugin.platform!r}, "
            yield _place(package, plugin), text + f"the library says {identity.platform!r}"


@rule(311, ERROR)
def name_is_free(package: PackageFiles) -> Found:
    """The plugin's name and aliases belong to no other plugin, and look like no other's.

    The names of well-known plugins and platforms are reserved; an imposter would choose a name that
    reads like one ("rocrn").
    """
    taken = reserved_names()
    for plugin in package.manifests:
        for word in (plugin.name, *plugin.aliases):
            if word in taken:
                text = f"{word!r} is the name of another plugin or platform"
                yield _place(package, plugin), text
            elif other := look_alike(word, taken):
                yield _place(package, plugin), f"{word!r} could be mistaken for {other!r}"


@rule(312, WARNING)
def priority_is_modest(package: PackageFiles) -> Found:
    """A priority above 0 comes with a probe of the hardware, and none is above 500.

    The highest priority wins if the user names no platform. A plugin that is always present, or
    outbids all accelerators, replaces the user's other plugins.
    """
    for plugin in package.manifests:
        if plugin.priority > _HIGHEST:
            text = f"{plugin.name}: priority {plugin.priority} outbids every known plugin"
            yield _place(package, plugin), f"{text} ({_HIGHEST})"
        elif plugin.priority and plugin.probe.kind == "always":
            text = f"{plugin.name}: priority {plugin.priority}, and its hardware is always there"
            yield _place(package, plugin), text


def _place(package: PackageFiles, plugin: Manifest) -> str:
    return package.name(plugin.path) if plugin.path else plugin.name


def _with_identity(package: PackageFiles) -> Iterator[tuple[Manifest, LibraryIdentity]]:
    """Yield each manifest with the identity of its library here, if the library answered."""
    for plugin in package.manifests:
        for library in plugin.libraries:
            for path in package.library(plugin, library)[-1:]:
                identity = package.identities.get(path.resolve())
                if isinstance(identity, LibraryIdentity):
                    yield plugin, identity
