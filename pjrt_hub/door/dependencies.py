"""The libraries and compilers that a plugin opens by itself: which files it gets here, and why.

Owns the steps of a diagnosis that report them, with their versions. Loads nothing, and runs nothing
but `ptxas --version`, as the plugin does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from pjrt_hub.base import safe_path
from pjrt_hub.door import preflight
from pjrt_hub.door.diagnosis import Step
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract import cuda, headers, linking
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.finding.contract.shippers import shipper
from pjrt_hub.finding.discovery import hardware
from pjrt_hub.finding.discovery.requirement import admits

if TYPE_CHECKING:
    from pjrt_hub.finding.contract.binary import Binary
    from pjrt_hub.finding.contract.manifest import Manifest
    from pjrt_hub.finding.discovery.installed import Distribution
    from pjrt_hub.finding.discovery.source import World
    from pjrt_hub.finding.store.catalog import Requirement

#: Besides our own variables, these decide which plugins, libraries, devices and flags are used.
_READ = re.compile(
    r"LD_(LIBRARY_PATH|PRELOAD)$|LIBTPU_INIT_ARGS$|PJRT_NAMES_AND_LIBRARY_PATHS$|"
    r"(CUDA|NVIDIA|NCCL|XLA|TF_XLA|HIP|ROCR|ROCM|JAX|TPU)_"
)
#: The time limit of `ptxas --version`, in seconds.
_DEADLINE = 20
_LIBCUDA = "libcuda.so.1"


class Opening(NamedTuple):
    """A plugin that is to be opened, with its libraries and their surroundings."""

    manifest: Manifest
    path: Path  # The library's path, as it will be loaded.
    names: tuple[str, ...]  # The libraries that it opens by itself.
    mapped: Mapping[Path, str]  # Files that its process already has, each with what loaded it.
    preloads: tuple[Path, ...]  # The libraries that are loaded before it, in this order.
    required: tuple[Requirement, ...]  # The packages that it requires, with their versions.
    is_present: bool  # Whether its hardware was seen here.
    to_run: bool = True  # Whether programs are to run here, or only to be compiled.
    mend: str = ""  # The command that installs what is missing; empty if each library has its own.
    root: str = ""  # A folder of CUDA that a framework names in the options of its compilations.


def report(opening: Opening, world: World, seen: Iterable[str] = ()) -> Iterator[Step]:
    """Report the driver, each library and each compiler that a plugin gets, and why.

    A missing file is a failure if the hardware is here; else it is only reported. The files in
    `seen`, which the plugin's process mapped, show what the plugin finds by itself.
    """
    search = preflight.search(tuple(opening.mapped), world.env)
    yield from _report_driver(opening, world, search)
    with_them = linking.follow(opening.preloads, world.host.arch, search)
    before = {file: why or "loaded before the plugin" for file, why in with_them.items()}
    before |= opening.mapped
    search = preflight.search((*opening.mapped, *with_them), world.env)
    yield from _report_libraries(opening, world, search, before, tuple(seen))
    if opening.manifest.platform == "cuda":
        yield from _report_compilers(opening, world, search, before)


def report_variables(env: Mapping[str, str]) -> Iterator[Step]:
    """Report the variables that are set and that drivers, loaders and compilers read."""
    told = [f"{name}={value}" for name, value in sorted(env.items()) if _READ.match(name)]
    if told:
        hidden = env.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
        hint = "unset CUDA_VISIBLE_DEVICES, which hides every GPU" if hidden else ""
        yield Step("variables", True, ", ".join(told), hint)


def relevant(files: Iterable[Path], names: Iterable[str]) -> Iterator[Path]:
    """Yield the files that a plugin gets if they are loaded and it opens one of these names."""
    wanted = frozenset(names)
    for file in files:
        try:
            if headers.inspect(file).name in wanted:
                yield file
        except PluginLoadError:  # The file is no library, or it is gone.
            continue


def describe_driver(manifest: Manifest, driver: str, world: World) -> Step:
    """Compare the driver's version with what a plugin needs."""
    least = manifest.probe.driver_minimum
    newest = cuda.newest_cuda(driver) if manifest.platform == "cuda" else ""
    runs = f", which runs CUDA up to {newest}" if newest else ""
    text = f"{driver}{runs}; {manifest.name} needs {least} or newer"
    if int(driver.partition(".")[0]) >= least:
        return Step("driver", True, text)
    hint = f"install driver {least} or newer"
    kin = (row for row in world.catalog.rows() if row.platform == manifest.platform)
    older = min((row.plugin for row in kin), default=manifest.name)
    if older < manifest.name:
        hint += f", or use the plugin for an older one: pjrt-hub fetch {older}"
    return Step("driver", False, text, hint)


def _report_driver(opening: Opening, world: World, search: linking.Search) -> Iterator[Step]:
    probe = opening.manifest.probe
    if not probe.driver_file:
        return
    plugin = headers.inspect(opening.path)
    found = linking.find(_LIBCUDA, world.host.arch, search, plugin)
    if found is None and opening.is_present:
        text = f"{_LIBCUDA}, by which programs reach the driver, is not found"
        hint = "install the whole driver; in a container, start it with the GPUs: --gpus all"
        yield Step("driver", False, text, hint)
    # The name of the library's file may be all that tells the version: libcuda.so.580.65.06.
    real = os.path.realpath(found.library.path) if found else ""
    named = re.search(r"\.so\.(\d{3,}\.[\d.]*\d)$", real)
    if driver := hardware.driver_version(probe, world.root) or (named[1] if named else ""):
        yield describe_driver(opening.manifest, driver, world)


def _report_libraries(
    opening: Opening,
    world: World,
    search: linking.Search,
    before: Mapping[Path, str],
    seen: tuple[str, ...],
) -> Iterator[Step]:
    of = {
        PurePosixPath(member.path).name: item
        for item in opening.required
        for member in item.members
    }
    plugin = headers.inspect(opening.path)
    queue: list[tuple[str, Binary, tuple[str, ...]]] = [
        (name, plugin, ()) for name in opening.names
    ]
    told: set[str] = set()
    absent: list[str] = []
    no_others: tuple[Path, ...] = ()
    for name, opener, inherited in queue:
        if name in told:
            continue
        told.add(name)
        found = linking.find(name, world.host.arch, search, opener, inherited)
        by = "" if opener is plugin else f" (needed by {opener.path.name})"
        if found is None:
            # A file's name may be longer than the library's name: libcudnn.so.99.0.96.
            mapped = next((each for each in seen if _is_named(each, name)), "")
            if not mapped:
                absent.append(f"{name}{by}")
                continue
            reason, file, hidden = "the plugin knows where it is", Path(mapped), no_others
        else:
            file, hidden = found.library.path, found.hidden
            if lacking := linking.find_missing(found.library, search):
                absent += [f"{each.name} (needed by {each.needed_by.name})" for each in lacking]
                continue
            reason = before.get(file, found.reason)
            above = () if file in before else (*opener.rpath, *inherited)
            queue += [(each, found.library, above) for each in found.library.needed if each in of]
        by = "" if "needed by" in reason else by
        text = f"{name}: {_owned(file, world)}{by}, {reason}"
        text += f"; it hides {', '.join(_owned(each, world) for each in hidden)}" if hidden else ""
        if other := _other_owner(file, world):
            text += f"; {other} brings that file, too, and what was installed last is there"
            yield Step("opens", True, text, _again(file, of.get(name), world))
        elif wrong := _wrong_version(name, file, of.get(name), world):
            hint = _way_round(opening, name, file, reason)
            yield Step("opens", not opening.is_present, f"{text}; {wrong}", hint)
        else:
            yield Step("opens", True, text)
        if found is not None:
            yield from _report_strange_parts(opening, found.library, world, search, before)
    if absent := list(dict.fromkeys(absent)):
        what = "not found" if opening.is_present else "not found, and needed to run some programs"
        hint = opening.mend or "; ".join(_ways(absent, opening.manifest.name))
        hint = hint or "install them, or name their folders in LD_LIBRARY_PATH"
        yield Step("opens", not opening.is_present, f"{what}: {', '.join(absent)}", hint)


def _ways(names: Iterable[str], plugin: str) -> tuple[str, ...]:
    """Return the commands that install some libraries; only one if it brings all of them."""
    ways = dict.fromkeys(how for _, how in (shipper(each.split()[0]) for each in names) if how)
    whole = f"pip install 'pjrt-hub[{plugin}]'"
    # All extras bring a cuDNN of the same name; the one of another CUDA's extra is wrong.
    is_extra = plugin in cuda.EXTRAS and any("pjrt-hub[" in each for each in ways)
    return (whole,) if is_extra or whole in ways else tuple(ways)


def _report_strange_parts(
    opening: Opening, main: Binary, world: World, search: linking.Search, before: Mapping[Path, str]
) -> Iterator[Step]:
    """Report the parts that a library gets from elsewhere although its own lie beside it.

    cuDNN opens libcudnn_ops.so.9 and others by their names when it is used, and cannot work with
    those of another release.
    """
    stem, dot, number = main.name.partition(".so")
    folder = main.path.parent
    strange = []
    for part in sorted(folder.glob(f"{stem}_*{dot}{number}")) if dot else ():
        found = linking.find(part.name, world.host.arch, search, main)
        if found and not os.path.samefile(found.library.path, part):
            strange.append((found.library.path, before.get(found.library.path, found.reason)))
    if strange:
        places = ", ".join(f"{file} ({reason})" for file, reason in strange)
        text = f"{main.name} of {folder} gets parts of another one: {places}"
        [(first, reason), *_] = strange
        hint = _way_round(opening, first.name, first, reason)
        yield Step("opens", not opening.is_present, text, hint)


def _wrong_version(name: str, file: Path, item: Requirement | None, world: World) -> str:
    """Return what is wrong with a file's version; empty if nothing is, or it is unknown."""
    if item is None or not item.specifier:
        return ""
    owner = world.installed.owner(file) or world.installed.owner(file.resolve())
    if owner is not None:
        version, is_whole = owner.version, True
    else:
        # libcupti.so.13 is a link to libcupti.so.2025.3.1, whose number is no version of CUDA.
        real = os.path.basename(os.path.realpath(file))
        version = real.partition(".so.")[2] if real.startswith(f"{name}.") else ""
        is_whole = False
    if not version or admits(item.specifier, version, is_whole=is_whole):
        return ""
    return f"it is {version}, and the plugin takes {item.specifier} of {item.package}"


def _other_owner(file: Path, world: World) -> Distribution | None:
    """Return another distribution with the same file: cuDNN's for CUDA 12 and 13 share a folder."""
    owner = world.installed.owner(file)
    stem = owner.name.rpartition("-cu")[0] if owner else ""
    if owner is None or not stem:
        return None
    path = file.relative_to(owner.folder).as_posix()
    for other in (world.installed.get(f"{stem}-cu{number}") for number in (12, 13)):
        if other is None or other == owner or other.folder != owner.folder:
            continue
        if path in world.installed.files(other):
            return other
    return None


def _again(file: Path, item: Requirement | None, world: World) -> str:
    """Return the command that installs the file again from the distribution that should own it."""
    owner = item and world.installed.get(canonical(item.package))
    owner = owner or world.installed.owner(file)
    return f"pip install --force-reinstall --no-deps {str(owner).replace(' ', '==')}"


def _way_round(opening: Opening, name: str, file: Path, reason: str) -> str:
    """Return what the user can do if the plugin gets a file that does not fit."""
    if reason.startswith("already loaded by"):
        module = reason.rpartition(" ")[2]
        return f"open the plugin before `import {module}`, or install a {module} that fits it"
    if reason == "LD_LIBRARY_PATH":
        return f"take {file.parent} off LD_LIBRARY_PATH"
    return opening.mend or "; ".join(_ways([name], opening.manifest.name))


def _report_compilers(
    opening: Opening, world: World, search: linking.Search, before: Mapping[Path, str]
) -> Iterator[Step]:
    """Report the compilers that a plugin uses; if one is missing, it compiles nothing."""
    name = f"libnvJitLink.so.{_cuda(opening)}"
    plugin = headers.inspect(opening.path)
    linker = linking.find(name, world.host.arch, search, plugin)
    if linker is not None and cuda.opens_linker(opening.path):
        file = linker.library.path
        why = before.get(file, linker.reason)
        text = f"{name}, and no ptxas: {_owned(file, world)}, {why}"
        yield Step("compiler", True, text)
    else:
        yield _report_compiler(opening, world, cuda.PTXAS)
    yield _report_compiler(opening, world, cuda.LIBDEVICE)


def _cuda(opening: Opening) -> str:
    """Return the CUDA version that a plugin was built for, as its name has it: "13"."""
    return opening.manifest.name.removeprefix("cuda")


def _report_compiler(opening: Opening, world: World, compiler: cuda.Compiler) -> Step:
    """Report which file of a compiler a plugin takes; it skips a ptxas of an unfit version."""
    found: list[tuple[cuda.Place, str]] = []
    passed = ""
    for place in compiler.places(opening.path, _cuda(opening), world.env, opening.root):
        if not place.path.exists() or any(place.path.samefile(each.path) for each, _ in found):
            continue
        # A program in the working directory is not run here, though the plugin would run it.
        is_asked = compiler.is_program and place.path.is_absolute()
        version = _ask_version(place.path, world.env) if is_asked else ""
        if why := cuda.refusal(version) if is_asked else "":
            passed += f"; {place.path} is passed over: {why}"
        else:
            found.append((place, version))
    if not found:
        hint = opening.mend or f"pip install 'pjrt-hub[{opening.manifest.name}]'"
        text = f"{compiler.name} not found, and without it nothing is compiled{passed}"
        return Step("compiler", not (opening.is_present or not opening.to_run), text, hint)
    (winner, version), *others = found
    shown = f"{version}, " if version else ""
    text = f"{compiler.name}: {_owned(winner.path, world)}, {shown}{winner.reason}"
    hidden = ", ".join(_owned(place.path, world) for place, _ in others)
    text += f"; it hides {hidden}" * bool(hidden) + passed
    takes = next((each.specifier for each in opening.required if _holds(each, compiler.file)), "")
    if not version or admits(takes, version, is_whole=False):
        return Step("compiler", True, text)
    # This ptxas may be good enough for older GPUs, so it is no failure.
    better = next((place for place, each in others if admits(takes, each, is_whole=False)), None)
    root = better and better.path.parent.parent
    hint = f"set XLA_FLAGS=--xla_gpu_cuda_data_dir={root}" if root else opening.mend
    text += f"; the plugin was built beside {takes}"
    return Step("compiler", True, text, hint or f"take {winner.path.parent} off {winner.reason}")


def _holds(item: Requirement, file: str) -> bool:
    return any(each.path.endswith(f"/{file}") for each in item.members)


def _ask_version(program: Path, env: Mapping[str, str]) -> str:
    """Return the version that a ptxas reports; empty if it reports none or is not a program."""
    import subprocess

    try:
        return cuda.release(safe_path.ask([str(program), "--version"], env, _DEADLINE))
    except (OSError, subprocess.SubprocessError):
        return ""


def _is_named(file: str, name: str) -> bool:
    return f"{os.path.basename(file)}.".startswith(f"{name}.")


def _owned(file: Path, world: World) -> str:
    """Return a file's path, with the distribution that owns the file, if one does."""
    owner = world.installed.owner(file) or world.installed.owner(file.resolve())
    return f"{file} of {owner}" if owner else str(file)
