"""Rules about the wheel: its name, its tags, its metadata and its list of files."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from pathlib import Path

from pjrt_hub.base.listing import size_text
from pjrt_hub.finding.contract.binary import Binary
from pjrt_hub.finding.contract.names import canonical
from pjrt_hub.kit.authoring.linting import ERROR, WARNING, Found, rule
from pjrt_hub.kit.authoring.native_library import NativeLibrary
from pjrt_hub.kit.authoring.package_files import PackageFiles
from pjrt_hub.kit.authoring.wheel import platform_tag

_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
_LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_LINUX = re.compile(r"(?:many|musl)?linux\w*?_(x86_64|aarch64|i686|armv7l|ppc64le|s390x|riscv64)$")
_MACOS = re.compile(r"macosx_(\d+)_(\d+)_(\w+)")
#: The machines that the last part of a macOS tag promises; 32-bit Intel is long gone.
_APPLE = {"arm64": ("aarch64",), "universal2": ("aarch64", "x86_64"), "intel": ("x86_64",)}
_WINDOWS = {"win_amd64": "x86_64", "win_arm64": "aarch64", "win32": "i386"}
#: The first macOS for Apple's own processors, whatever a universal library says.
_FIRST_ON_ARM = (11, 0)
_LARGE_NBYTES = 100_000_000
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")


@rule(201, ERROR)
def is_named_as_a_wheel(package: PackageFiles) -> Found:
    """The file's name is that of a wheel, and its metadata agrees.

    Installers read name, version and tags from the file's name before they open it, and refuse a
    wheel that says something else inside.
    """
    if package.wheel is None:
        return
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        name, version, _, _ = parse_wheel_filename(package.wheel.name)
    except InvalidWheelFilename as exc:
        yield package.wheel.name, str(exc)
        return
    if package.metadata is None:
        yield package.wheel.name, "it has not exactly one .dist-info folder with METADATA"
        return
    for header, expected, found in (
        ("Name", str(name), canonical(package.metadata["Name"] or "")),
        ("Version", str(version), package.metadata["Version"] or ""),
    ):
        if found != expected:
            yield "METADATA", f"{header} is {found!r}, the file's name says {expected!r}"


@rule(202, ERROR)
def tags_name_the_architecture(package: PackageFiles) -> Found:
    """The wheel's tags name the system and the architectures of every library in it.

    An installer believes the tag: under a wrong one, or "any", the package is installed where its
    library cannot be loaded. A universal2 wheel is installed on both of Apple's architectures: a
    library in it has a part for each.
    """
    for path, library in package.libraries.items():
        built = {f"{each.system}-{each.machine}" for each in library.parts}
        wrong = [tag for tag in _platforms(package) if not _platforms_of(tag) <= built]
        if wrong:
            text = f"built for {' and '.join(sorted(built))}, the wheel's tag is {', '.join(wrong)}"
            yield package.name(path), text


@rule(203, ERROR)
def tags_promise_no_older_system(package: PackageFiles) -> Found:
    """The wheel's tags promise no older glibc, and no older macOS, than its libraries need.

    manylinux_2_17 is installed on every system with glibc 2.17; a library that needs 2.27 fails
    there when it is loaded. Give the true tag, or build on an older system; for macOS,
    MACOSX_DEPLOYMENT_TARGET chooses the oldest version.
    """
    for tag in _platforms(package):
        for library in package.natives:
            if _is_older(tag, library):
                text = f"needs {platform_tag(library)}, the wheel's tag is {tag}"
                yield package.name(library.path), text


@rule(204, WARNING)
def tags_can_be_published(package: PackageFiles) -> Found:
    """A wheel for Linux has a manylinux or musllinux tag.

    Package indexes refuse linux_x86_64, which says nothing about the system that a wheel needs.
    """
    for tag in _platforms(package):
        if tag.startswith("linux_"):
            fitting = sorted({platform_tag(each) for each in package.natives})
            yield str(package.path.name), f"the tag is {tag}; fitting: {', '.join(fitting)}"


@rule(205, WARNING)
def tags_leave_python_open(package: PackageFiles) -> Found:
    """The Python tag is py3 if no file is an extension module.

    A library that is loaded by its path fits every Python; cp311 keeps it from other versions.
    """
    if package.wheel is None:
        return
    bound = sorted({python for python, abi, _ in _tags(package) if abi != "none"})
    if bound and not any(_is_module(*each) for each in package.libraries.items()):
        yield package.wheel.name, f"only for {', '.join(bound)}, and has no extension module"


@rule(206, ERROR)
def wheel_file_agrees(package: PackageFiles) -> Found:
    """The file WHEEL has the tags of the file's name.

    Tools rename wheels to retag them; installers compare the tags in both places.
    """
    if package.wheel is None or package.tags is None:
        return
    inside = {
        tuple(part)
        for text in package.tags.get_all("Tag", [])
        for part in [text.strip().split("-")]
    }
    outside = set(_tags(package))
    if outside and inside != outside:
        listed = ", ".join(sorted("-".join(tag) for tag in inside)) or "none"
        yield "WHEEL", f"its tags are {listed}"


@rule(207, WARNING)
def is_no_pure_library(package: PackageFiles) -> Found:
    """WHEEL says Root-Is-Purelib: false if there is a native library.

    Otherwise the package goes into the folder for packages without native code, which some systems
    share between architectures.
    """
    pure = package.tags is not None and (package.tags["Root-Is-Purelib"] or "").strip() == "true"
    if pure and package.natives:
        yield "WHEEL", "Root-Is-Purelib is true, and there are native libraries"


@rule(208, ERROR)
def record_is_true(package: PackageFiles) -> Found:
    """RECORD lists every file with its size and digest.

    Installers and auditors compare them; a file that differs was changed after the build.
    """
    if package.info is None or package.wheel is None:
        return
    record = package.info / "RECORD"
    if not record.is_file():
        yield package.info.name, "there is no RECORD"
        return
    with record.open(encoding="utf-8", errors="replace", newline="") as file:
        try:
            listed = {row[0]: row[1:] for row in csv.reader(file) if row}
        except csv.Error as exc:
            yield package.name(record), f"is not a list of files: {exc}"
            return
    there = {package.name(path): path for path in package.files}
    unlisted = {f"{package.info.name}/{name}" for name in _UNLISTED}
    for name in sorted(there.keys() - listed.keys() - unlisted):
        yield name, "is not in RECORD"
    for name in sorted(listed.keys() - there.keys()):
        yield name, "is in RECORD and not there"
    for name in sorted(listed.keys() & there.keys() - unlisted):
        if what := _difference(there[name], listed[name]):
            yield name, what


@rule(209, WARNING)
def licence_is_named(package: PackageFiles) -> Found:
    """The metadata names a licence, and its text is in the wheel.

    Many users may not install a package without known terms. Set `license` to an SPDX expression
    and `license-files` in pyproject.toml.
    """
    if package.metadata is None:
        return
    classifiers = package.metadata.get_all("Classifier", [])
    named = package.metadata["License-Expression"] or package.metadata["License"]
    if not named and not any(each.startswith("License ::") for each in classifiers):
        yield "METADATA", "no License-Expression"
    words = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
    if not any(path.name.upper().startswith(words) for path in package.files):
        yield package.path.name, "no text of a licence"


@rule(210, WARNING)
def is_not_large(package: PackageFiles) -> Found:
    """The wheel is not larger than 100 MB.

    That is the limit of public indexes, which raise it for those who ask.
    """
    if package.wheel is not None:
        nbytes = package.wheel.stat().st_size
        if nbytes > _LARGE_NBYTES:
            yield package.wheel.name, size_text(nbytes)


@rule(211, WARNING)
def python_is_bounded_below(package: PackageFiles) -> Found:
    """The metadata says which Python it requires.

    Otherwise an installer takes the wheel on an older Python, and its code fails there.
    """
    if package.metadata is not None and not package.metadata["Requires-Python"]:
        yield "METADATA", "no Requires-Python"


def _is_module(path: Path, library: NativeLibrary) -> bool:
    """Say whether Python can import a library, whatever its file is called."""
    named = any(mark in path.name for mark in (".cpython-", ".abi3.", ".pyd"))
    return named or any(each.startswith(("PyInit_", "PyInitU_")) for each in library.exports)


def _tags(package: PackageFiles) -> list[tuple[str, str, str]]:
    """Return each (python, abi, platform) of a wheel's name; none if it is not a wheel."""
    parts = package.wheel.stem.split("-") if package.wheel else []
    if len(parts) not in (5, 6):
        return []
    python, abi, platform = (part.split(".") for part in parts[-3:])
    return [(one, two, three) for one in python for two in abi for three in platform]


def _platforms(package: PackageFiles) -> list[str]:
    return sorted({platform for _, _, platform in _tags(package)})


def _platforms_of(tag: str) -> set[str]:
    """Return a tag's systems and machines, "linux-x86_64"; for "any", a text that fits none."""
    if found := _LINUX.search(tag):
        return {f"linux-{found[1].replace('i686', 'i386')}"}
    if found := _MACOS.fullmatch(tag):
        return {f"macos-{machine}" for machine in _APPLE.get(found[3], (found[3],))}
    return {f"windows-{_WINDOWS[tag]}"} if tag in _WINDOWS else {tag}


def _is_older(tag: str, library: Binary) -> bool:
    """Say whether a tag promises an older system than a library needs."""
    if found := _MACOS.fullmatch(tag):
        promised = (int(found[1]), int(found[2]))
        if library.machine == "aarch64":
            promised = max(promised, _FIRST_ON_ARM)
        # From macOS 11 on, tags name only the first number of a version.
        needed = library.minimum[: 2 if promised < _FIRST_ON_ARM else 1]
        return needed > promised[: len(needed)]
    if found := _MANYLINUX.fullmatch(tag):
        return library.glibc[:2] > (int(found[1]), int(found[2]))
    legacy = _LEGACY.get(tag.partition("_")[0])
    return legacy is not None and library.glibc[:2] > legacy


def _difference(path: Path, columns: list[str]) -> str:
    hashed, size = columns if len(columns) == 2 else ("", "")
    algorithm, _, value = hashed.partition("=")
    if size and size != str(path.stat().st_size):
        return f"has {path.stat().st_size} bytes, RECORD says {size}"
    if not value:
        return "has no digest in RECORD"
    if algorithm not in hashlib.algorithms_available:
        return f"has a digest of {algorithm!r} in RECORD"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, algorithm).digest()
    found = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return "" if found == value.rstrip("=") else f"has the {algorithm} {found}, RECORD says {value}"
