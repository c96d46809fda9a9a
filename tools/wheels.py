"""Builds the wheels of a release and its source distribution, and audits them.

One machine builds for all: zig's C compiler has the headers and symbols of every target. The same
commit gives the same bytes. `python tools/wheels.py dist` writes into `dist`; tags after it choose
some of the wheels.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
#: A wheel's tag -> zig's name of the machine. glibc has no older version for aarch64, and no pip
#: that knows this tag runs on an older one.
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
}
#: The Python to build with, whose headers are those of the oldest stable ABI.
PYTHON = (3, 11)
NO_TRAPS = "-fno-sanitize=all"  # zig would add traps for undefined behaviour.


def main() -> None:
    """Build into the folder that the command line names."""
    if sys.version_info[:2] != PYTHON:
        sys.exit(f"error: the wheels are built with the headers of Python {PYTHON[0]}.{PYTHON[1]}")
    folder, *tags = sys.argv[1:]
    for path in build(Path(folder), tags or TARGETS):
        print(f"{path.name}  {path.stat().st_size} bytes")


def build(folder: Path, tags: Iterable[str]) -> list[Path]:
    """Build the source distribution, of it the wheels, and return their paths, audited."""
    folder.mkdir(parents=True, exist_ok=True)
    own = ("CFLAGS", "CPPFLAGS", "LDFLAGS")  # The machine's owner sets these for other builds.
    env = {name: value for name, value in os.environ.items() if name not in own}
    # This becomes the time of every member.
    env["SOURCE_DATE_EPOCH"] = _run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    with tempfile.TemporaryDirectory() as scratch:
        sdist = build_sdist(folder, Path(scratch), env)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            wheels = list(
                pool.map(lambda tag: build_wheel(sdist, tag, folder, Path(scratch), env), tags)
            )
    audit(wheels, sdist)
    return [*wheels, sdist]


def build_sdist(folder: Path, scratch: Path, env: Mapping[str, str]) -> Path:
    """Build the source distribution."""
    source, built = scratch / "source", scratch / "sdist"
    copy_sources(source)
    _python("build", "--sdist", "--no-isolation", f"--outdir={built}", source, env=env)
    [path] = built.glob("*.tar.gz")
    return _order(path, folder / path.name, int(env["SOURCE_DATE_EPOCH"]))


def copy_sources(target: Path) -> None:
    """Copy what git knows, so that nothing that this machine built goes along."""
    for name in _run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _order(source: Path, target: Path, seconds: int) -> Path:
    """Write an archive again: its members in order, of one time, and of nobody."""
    packed = io.BytesIO()
    with (
        tarfile.open(source) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=seconds))
    return target


def build_wheel(sdist: Path, tag: str, folder: Path, scratch: Path, env: Mapping[str, str]) -> Path:
    """Build one wheel of a source distribution, with a list of what it is made of."""
    scratch = scratch / tag
    scratch.mkdir()
    env = {**env, "ZIG_GLOBAL_CACHE_DIR": str(scratch / "cache")}  # Each build has its own cache.
    compiler = f"{sys.executable} -m ziglang cc -target {TARGETS[tag]} {NO_TRAPS}"
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch, filter="data")
    [source] = scratch.glob("pjrt_hub-*")
    option = f"--config-setting=--build-option=--plat-name={tag}"
    _python(
        *("build", "--wheel", "--no-isolation", option, f"--outdir={scratch}", source),
        env={**env, "CC": compiler, "LDSHARED": f"{compiler} -shared"},
    )
    [wheel] = scratch.glob("*.whl")
    _python("wheel", "unpack", f"--dest={scratch / 'unpacked'}", wheel, env=env)
    [unpacked] = (scratch / "unpacked").iterdir()
    [info] = unpacked.glob("*.dist-info")
    (info / "sboms").mkdir()
    (info / "sboms" / "pjrt-hub.cdx.json").write_text(describe(wheel, env), "utf-8")
    for path in unpacked.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)
    _python("wheel", "pack", f"--dest-dir={folder}", unpacked, env=env)
    return folder / wheel.name


def describe(wheel: Path, env: Mapping[str, str]) -> str:
    """Write the software bill of materials of a wheel, in the JSON of CycloneDX 1.6.

    What it requires when it runs is in its metadata; this is what was compiled in, and by what.
    """
    moment = datetime.fromtimestamp(int(env["SOURCE_DATE_EPOCH"]), UTC)
    package = _component("library", "pjrt-hub", wheel.name.split("-")[1], "Apache-2.0")
    glue = _component("library", "cffi", version("cffi"), metadata("cffi")["License-Expression"])
    glue["description"] = "the C code that it wrote for pjrt_hub.running.capi._pjrt"
    tools = [_component("application", name, version(name)) for name in ("setuptools", "ziglang")]
    text = json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "timestamp": moment.isoformat(),
                "lifecycles": [{"phase": "build"}],
                "tools": {"components": tools},
                "component": package,
            },
            "components": [glue],
            "dependencies": [
                {"ref": package["bom-ref"], "dependsOn": [glue["bom-ref"]]},
                {"ref": glue["bom-ref"]},
            ],
        },
        indent=2,
    )
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"error: the bill of materials is not valid: {wrong}")
    return text + "\n"


def _component(kind: str, name: str, release: str, license: str = "") -> dict[str, Any]:
    reference = f"pkg:pypi/{name}@{release}"
    rights = {"licenses": [{"expression": license}]} if license else {}
    return {
        "type": kind,
        "bom-ref": reference,
        "name": name,
        "version": release,
        "purl": reference,
        **rights,
    }


def audit(wheels: list[Path], sdist: Path) -> None:
    """End with an error unless each tag is what the libraries deserve and no check objects."""
    _python("twine", "check", "--strict", *wheels, sdist)
    _python("abi3audit", "--strict", *wheels)
    with tempfile.TemporaryDirectory() as nowhere:  # This folder hides the machine's libraries.
        for wheel in wheels:
            shown = _python("auditwheel", "show", "--json", f"--ldpaths={nowhere}", wheel)
            tag = json.loads(shown)["overall_tag"]
            if tag != wheel.stem.split("-")[-1]:
                sys.exit(f"error: auditwheel calls {wheel.name} {tag}")


def _python(module: str, *words: object, env: Mapping[str, str] | None = None) -> str:
    return _run(sys.executable, "-m", module, *words, env=env)


def _run(*words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env={**(env or os.environ), "PATH": programs},
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: {words[0]} failed\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
