"""The wheels of a release: their tags, what their libraries need, and their bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pjrt_hub.finding.contract import headers

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "wheels.py"
MACHINES = ("x86_64", "aarch64")
TAGS = [f"manylinux_2_17_{machine}" for machine in MACHINES]
#: Traces that zig and others would leave: paths of a home or a build, a checker's functions.
LEFT_BEHIND = (
    b"/root/",
    b"/home/",
    b"/tmp/",
    b"/work/",
    b"site-packages/",
    b"__ubsan",
    b"zig-cache",
)


pytestmark = pytest.mark.timeout(1800)  # a build of all takes a minute of one core


def build(folder: Path, *tags: str) -> Path:
    subprocess.run([sys.executable, TOOL, folder, *tags], check=True)
    return folder


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """The folder that TESTED_RELEASE names, else one that is built now."""
    if named := os.environ.get("TESTED_RELEASE"):
        return Path(named)
    return build(tmp_path_factory.mktemp("release"))


@pytest.fixture(params=TAGS)
def wheel(request, release) -> Path:
    [path] = release.glob(f"*-{request.param}.whl")
    return path


@pytest.fixture
def libraries(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    found = sorted(tmp_path.rglob("*.so"))
    assert len(found) == 8
    return found


def test_one_wheel_for_each_machine_and_the_sources(release):
    names = {path.name for path in release.iterdir()}
    [sdist] = {name for name in names if name.endswith(".tar.gz")}
    stem = sdist.removesuffix(".tar.gz")
    assert names - {sdist} == {f"{stem}-cp311-abi3-{tag}.whl" for tag in TAGS}


def test_the_tag_inside_is_that_of_the_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        tags = [line for line in archive.read(name).decode().splitlines() if "Tag: " in line]
    assert tags == [f"Tag: {'-'.join(wheel.stem.split('-')[-3:])}"]


def test_libraries_are_for_the_machine_and_need_only_its_c_library(wheel, libraries):
    machine = next(each for each in MACHINES if wheel.stem.endswith(each))
    glibc = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    for path in libraries:
        binary = headers.inspect(path)
        assert (binary.machine, binary.shared) == (machine, True)
        assert set(binary.needed) <= glibc
        assert binary.glibc <= (2, 17)
        assert binary.run_paths == ()
        assert not binary.executable_stack
        assert not binary.text_relocations


def test_nothing_of_the_build_is_in_them(libraries):
    for path in libraries:
        content = path.read_bytes()
        assert [each for each in LEFT_BEHIND if each in content] == [], path.name


def test_the_bill_of_materials_names_what_was_compiled_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if "/sboms/" in name]
        [record] = [name for name in archive.namelist() if name.endswith("/RECORD")]
        bill = json.loads(archive.read(name))
        recorded = archive.read(record).decode()
    assert name.endswith(".dist-info/sboms/pjrt-hub.cdx.json")
    assert f"{name},sha256=" in recorded
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    package = bill["metadata"]["component"]
    assert f"{package['name'].replace('-', '_')}-{package['version']}-" in wheel.name
    assert [each["name"] for each in bill["components"]] == ["cffi"]
    assert {each["name"] for each in bill["metadata"]["tools"]["components"]} == {
        *("setuptools", "ziglang")
    }


def test_the_sources_hold_what_builds_them_and_nothing_built(release):
    [path] = release.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert {"setup.py", "tools/capi.py", "registry/cpu.toml"} <= names
    assert [name for name in names if name.endswith((".so", ".o", ".pyc"))] == []
    assert {(member.uid, member.uname, member.mtime) for member in members} == {
        (0, "", members[0].mtime)
    }


def test_another_build_gives_the_same_bytes(release, tmp_path):
    def digests(folder):
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
        }

    again = digests(build(tmp_path / "again", TAGS[0]))
    assert len(again) == 2  # the wheel and the source distribution
    assert again.items() <= digests(release).items()
