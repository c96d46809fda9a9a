"""What the JAX that is installed here would do: the answer of `pjrt-hub doctor --jax`.

Reads files, and starts nothing of JAX: the steps say what its start would lead to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pjrt_hub.door import dependencies, doctor, preflight
from pjrt_hub.door.client import choose
from pjrt_hub.door.dependencies import Opening
from pjrt_hub.door.diagnosis import Step
from pjrt_hub.errors import FrameworkError, PjrtHubError, PluginLoadError
from pjrt_hub.finding.contract.manifest import DEFAULT_PRIORITY
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.discovery import hardware, packages
from pjrt_hub.finding.discovery.installed import Distribution
from pjrt_hub.finding.discovery.library import manifest_for
from pjrt_hub.finding.discovery.requirement import admits, find_required
from pjrt_hub.finding.discovery.source import Candidate, World
from pjrt_hub.frameworks.jax import registration, start
from pjrt_hub.frameworks.jax.start import Module

_OURS = "pjrt_hub."
_PART = re.compile(r"jaxlib|libtpu|jax-\w+-(plugin|pjrt)")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)")


class Asked(NamedTuple):
    """A platform that `PJRT_HUB_JAX` registers."""

    name: str  # In JAX.
    priority: int
    what: str  # The library that it loads, or what it would fetch; empty if neither.
    problem: str = ""  # Why JAX could make no client of it.
    hint: str = ""


def report(world: World, after: Sequence[str] = ()) -> Iterator[Step]:
    """Yield the steps of `pjrt_hub.jax.diagnose`."""
    jax = world.installed.get("jax")
    if jax is None:
        yield Step("jax", False, "JAX is not installed here", "pip install jax")
        return
    yield from _versions(jax, world)
    yield from dependencies.report_variables(world.env)
    try:
        mapped = doctor.find_mapped(after, world)
    except FrameworkError as exc:
        yield Step("after", False, exc.message, exc.hint)
        return
    modules = start.modules(world)
    libraries = _libraries(modules, world)
    named = _named(world)
    yield from _registrations(modules, libraries, named, world)
    asked, refused = _requests(modules, world)
    for each in asked:
        text = f"PJRT_HUB_JAX registers {each.name}, priority {each.priority}"
        yield Step("registers", True, f"{text}, and {each.what}" if each.what else text)
    yield from refused
    registered = {each.platform for each in modules} | named.keys()
    used = _platforms(world, registered | {each.name for each in asked})
    yield from _uses(world, modules, named, asked, used)
    for module in modules:
        if module.platform in used and (path := libraries.get(module.name)):
            yield from _files(module, path, jax, world, mapped)


def _versions(jax: Distribution, world: World) -> Iterator[Step]:
    """Compare installed versions with those that JAX's packages require of each other."""
    found = {jax.name: jax}
    queue = [jax]
    told: dict[str, str] = {}
    wrong = []
    for each in queue:
        for wanted in each.requires():
            name, takes = canonical(wanted.name), str(wanted.specifier)
            extra = match[1] if (match := _EXTRA.search(str(wanted))) else ""
            if name == "jaxlib" and extra:
                continue  # This extra serves those who test JAX with its oldest jaxlib.
            part = world.installed.get(name) if _PART.fullmatch(name) else None
            if part is None:
                if name == "jaxlib":
                    yield Step("jax", False, f"{jax} without jaxlib", _pip(jax))
                continue
            if name not in found:
                found[name] = part
                queue.append(part)
                told[name] = f"{part}"
            if not admits(takes, part.version):
                wrong.append((f"{part}, of which {each} takes {takes}", extra))
    yield Step("jax", True, ", ".join([str(jax), *told.values()]))
    for text, extra in dict(wrong).items():
        yield Step("jax", False, text, _pip(jax, extra.removesuffix("-local")))
    for name in sorted(found):
        if name.endswith("-plugin"):
            yield from _kernels(found[name], found.get("jaxlib"), jax)


def _kernels(
    plugin: Distribution, jaxlib: Distribution | None, jax: Distribution
) -> Iterator[Step]:
    """Check that the versions are equal; else jaxlib warns, and leaves out the plugin's kernels."""
    if jaxlib is None or "rocm" in plugin.name or _numbers(plugin) == _numbers(jaxlib):
        return
    text = f"{jaxlib} leaves out the kernels of {plugin}, because its version is another"
    yield Step("jax", False, text, _pip(jax, plugin.name.split("-")[1]))


def _numbers(distribution: Distribution) -> str:
    found = re.match(r"\d+(\.\d+)*", distribution.version)
    return found[0] if found else ""


def _pip(jax: Distribution, extra: str = "") -> str:
    """Return the command that installs all packages of the release of JAX that is here."""
    return f"pip install 'jax{f'[{extra}]' if extra else ''}=={jax.version}'"


def _libraries(modules: Sequence[Module], world: World) -> dict[str, Path]:
    """Return the library of each module that has one in its folder."""
    return {
        module.name: each.library_path
        for each in packages.find_vendor_libraries(world)
        if isinstance(each, Candidate) and each.library_path
        for module in modules
        if module.folder and each.library_path.is_relative_to(module.folder)
    }


def _named(world: World) -> dict[str, str]:
    """Return the plugins that `PJRT_NAMES_AND_LIBRARY_PATHS` names, with their libraries."""
    text = world.env.get("PJRT_NAMES_AND_LIBRARY_PATHS", "")
    pairs = (item.partition(":") for item in text.split(",") if item)
    return {name: path for name, _, path in pairs}


def _registrations(
    modules: Sequence[Module], libraries: dict[str, Path], named: dict[str, str], world: World
) -> Iterator[Step]:
    owners: dict[str, list[str]] = {}
    for module in modules:
        if module.name.startswith(_OURS):
            if not world.env.get("PJRT_HUB_JAX"):
                text = f"{module.name} registers nothing, because PJRT_HUB_JAX is not set"
                yield Step("registers", True, text)
            continue
        library = libraries.get(module.name)
        where = f"loads {library}" if library else "has no library for this machine in its folder"
        owner = library and world.installed.owner(library)
        by = f"{module.name} of {owner}" if owner else module.name
        what = f"{module.platform or 'a platform that its source does not name'}"
        yield Step(
            "registers", True, f"{by} registers {what}, priority {module.priority}, and {where}"
        )
        owners.setdefault(module.platform, []).append(module.name)
    for name, path in named.items():
        is_there = Path(path).is_file()
        text = f"PJRT_NAMES_AND_LIBRARY_PATHS registers {name}, and loads {path}"
        hint = "" if is_there else "correct PJRT_NAMES_AND_LIBRARY_PATHS, or unset it"
        yield Step("registers", is_there, text + (", which is no file" * (not is_there)), hint)
        owners.setdefault(name, []).append("PJRT_NAMES_AND_LIBRARY_PATHS")
    for platform, several in owners.items():
        if platform and len(several) > 1:
            text = f"{' and '.join(several)} register {platform!r}: JAX takes the one or the other"
            yield Step("registers", False, text, "uninstall all of them but one")


def _requests(modules: Sequence[Module], world: World) -> tuple[list[Asked], list[Step]]:
    """Return what `PJRT_HUB_JAX` registers, and what of it is refused."""
    text = world.env.get("PJRT_HUB_JAX", "")
    if not (text and any(each.name.startswith(_OURS) for each in modules)):
        return [], []
    asked: dict[str, Asked] = {}
    platforms = set[str]()
    others = (each.name for each in modules if not each.name.startswith(_OURS))
    vendors = registration.vendors_names(others)
    try:
        for request in registration.read_requests(text):
            known = asked if request.name else platforms
            if (request.name or request.platform) in known:
                continue
            taken = vendors | asked.keys()
            name = registration.name_in_jax(request.platform, request.name, taken)
            priority = registration.FIRST_PRIORITY - len(asked)
            asked[name] = Asked(name, priority, *_openable(request.platform, world))
            platforms.add(request.platform)
    except (ValueError, FrameworkError) as exc:
        what, _, hint = str(exc).partition("\n\nhint: ")
        return [*asked.values()], [Step("registers", False, what, hint or "correct PJRT_HUB_JAX")]
    return [*asked.values()], []


def _openable(platform: str, world: World) -> tuple[str, str, str]:
    """Return what JAX would load or fetch for a platform, or the problem and its hint."""
    try:
        candidate = choose(platform, to_run=True, origin="$PJRT_HUB_JAX", here=world).candidate
        if path := candidate.library_path:
            described = preflight.dependencies(path, candidate.manifest, world)
            preflight.refuse(path, list(preflight.problems(path, world, described, world.env)))
    except PjrtHubError as exc:
        return "", exc.message, exc.hint
    return f"loads {path}" if path else f"fetches {candidate}", "", ""


def _platforms(world: World, registered: set[str]) -> dict[str, bool]:
    """Return the platforms that JAX would make clients of, each with whether it is asked for."""
    if text := world.env.get("JAX_PLATFORMS"):
        asked = [name for item in text.split(",") for name in start.ALIASES.get(item, (item,))]
        return dict.fromkeys(asked, True)
    return dict.fromkeys([*sorted(filter(None, registered)), *start.BUILT_IN], False)


def _uses(
    world: World,
    modules: Sequence[Module],
    named: dict[str, str],
    asked: Sequence[Asked],
    used: dict[str, bool],
) -> Iterator[Step]:
    """Report which platforms JAX would use, in the order of `JAX_PLATFORMS` or by priority."""
    priorities = {**start.BUILT_IN, **dict.fromkeys(named, DEFAULT_PRIORITY)}
    priorities |= {each.platform: each.priority for each in modules if each.platform}
    priorities |= {each.name: each.priority for each in asked}
    if not _tpu_library(world):
        del priorities["tpu"]
    text = world.env.get("JAX_PLATFORMS", "")
    if unknown := [each for each in used if each not in priorities] if text else []:
        names = ", ".join(unknown)
        known = ", ".join(sorted(priorities))
        what = f"JAX_PLATFORMS={text} fails: nothing registers {names}; there are {known}"
        yield Step("platforms", False, what, "set JAX_PLATFORMS to some of these, or unset it")
    rest = [name for name in used if name in priorities]
    devices = (world.root / path.lstrip("/") for path in start.NVIDIA_DEVICES)
    if "cuda" in rest and not any(each.exists() for each in devices):
        rest.remove("cuda")
        what = f"cuda is left out: none of {', '.join(start.NVIDIA_DEVICES)} exists"
        yield Step("platforms", bool(rest), what, "" if rest else "unset JAX_PLATFORMS")
    if failed := [each for each in asked if each.problem and each.name in rest]:
        for each in failed:
            what = f"{each.name} fails, and with it JAX's start: {each.problem}"
            yield Step("platforms", False, what, each.hint)
        return
    if not text:
        rest.sort(key=lambda name: -priorities.get(name, 0))
    if rest:
        why = "JAX_PLATFORMS" if text else "priority"
        yield Step("platforms", True, f"{', '.join(rest)}, by {why}: the first is the default")


def _tpu_library(world: World) -> bool:
    """Check whether JAX finds libtpu, without which its TPU platform fails silently."""
    variable = world.env.get("TPU_LIBRARY_PATH", "")
    return Path(variable).is_file() or bool(start.package_path("libtpu", world.installed.sys_path))


def _files(
    module: Module, path: Path, jax: Distribution, world: World, mapped: doctor.Mapped
) -> Iterator[Step]:
    """Report the files that a plugin gets when JAX loads it."""
    described, _ = packages.describe(world)
    manifest = manifest_for("", path, described)
    found = hardware.present(manifest.probe, world.root)
    owner = world.installed.owner(path)
    named = (owner.name, owner.version) if owner else ("", "")
    opening = Opening(
        manifest,
        path,
        tuple(name for each in manifest.preloads for name in each.libraries),
        mapped,
        start.preloads(module, world),
        find_required(world, manifest.name, *named),
        bool(found.ok) and manifest.probe.kind in doctor.SEEN,
        mend=_pip(jax, manifest.name) if manifest.platform == "cuda" else "",
        root=start.compiler_root(world),
    )
    try:
        yield from dependencies.report(opening, world)
    except PluginLoadError as exc:
        yield Step("library", False, exc.message, exc.hint)
