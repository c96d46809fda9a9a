"""pjrt_hub on a simulated Windows or macOS: finding, fetching, locking and bundling plugins.

`elsewhere.py` hides what the other system lacks, and for Windows also refuses what that refuses of
files. It does not test paths with drives and backslashes, long paths, case-insensitive names,
cache folders, terminals, other packages, or the installation of this package there.
"""

import hashlib
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import finished
import images
import pytest
import wheels
from loopback import Answer
from trees import plugin_bytes

from pjrt_hub.base.host import HostTag
from pjrt_hub.finding.store.catalog import Member
from pjrt_hub.finding.store.pins import Pins

SYSTEMS = {
    "windows": ("windows-x86_64", "win_amd64", "toy_plugin/toy.dll", images.pe()),
    "macos": ("macos-aarch64-11.0", "macosx_11_0_arm64", "toy_plugin/toy.dylib", images.macho()),
}
SERVER = ("linux-x86_64-glibc2.17", "manylinux_2_17_x86_64", "toy_plugin/toy.so", plugin_bytes())


@dataclass
class Said:
    """The exit status and the output of one command line."""

    status: int
    out: str
    err: str

    def named(self, name: str) -> list[dict[str, Any]]:
        """The rows with that name in the output of `list --json`."""
        return [each for each in json.loads(self.out) if each["name"] == name]


class Elsewhere:
    """A folder with a cache, a lock file and its wheel, for that system or a Linux server."""

    def __init__(
        self, system: str, folder: Path, env: dict[str, str], *, for_server: bool = False
    ) -> None:
        host, tag, self.library, body = SERVER if for_server else SYSTEMS[system]
        self.system, self.folder = system, folder
        metadata = b"Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n"
        pinned = {self.library: body, "toy_plugin/weights": random.Random(7).randbytes(50_000)}
        self.wheel = wheels.build({**pinned, "toy_plugin-1.0.dist-info/METADATA": metadata})
        self.file_name = f"toy_plugin-1.0-py3-none-{tag}.whl"
        members = [
            Member(path, len(b), hashlib.sha256(b).hexdigest()) for path, b in pinned.items()
        ]
        changed = {"members": tuple(members), "library": self.library, "host": HostTag.parse(host)}
        unused = {wheels.LIBRARY: b"", wheels.SIBLING: b""}
        row = wheels.pin(self.wheel, unused, file_name=self.file_name)._replace(**changed)
        (folder / self.file_name).write_bytes(self.wheel)
        Pins(folder / "toy.lock", (), (), (row,)).write()
        self.env = {key: env[key] for key in env if not key.startswith(("PIP_", "UV_"))}
        self.env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
        self.env |= {"PJRT_HUB_CACHE": str(folder / "cache"), "PJRT_HUB_MIRRORS": str(folder)}

    def run(self, *lines: str, **more: str) -> list[Said]:
        """Run command lines in one process that sees the other system."""
        words = [Path(__file__).with_name("elsewhere.py"), self.system, *lines]
        done = finished.python(*words, env={**self.env, **more}, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return [Said(*each) for each in json.loads(done.stdout)]

    def run_locked(self, *lines: str, **more: str) -> list[Said]:
        """Run command lines with the lock file in effect."""
        return self.run(*lines, PJRT_HUB_LOCK=str(self.folder / "toy.lock"), **more)


@pytest.fixture(params=["windows", "macos"])
def there(request, tmp_path, clean_env) -> Elsewhere:
    return Elsewhere(request.param, tmp_path, clean_env)


def test_a_plugin_is_fetched_kept_and_carried(there):
    lines = ["list --json", "fetch toy", "list --json", "cache list --json", "cache verify"]
    lines += ["bundle export toy.bundle toy", "cache clear", "cache list --json"]
    lines += ["bundle import toy.bundle", "cache list --json", "cache prune --max-size 0B"]
    said = there.run_locked(*lines, "cache list --json")
    assert [each.status for each in said] == [0] * len(said), said
    before, _, after, kept, verified, exported, _, emptied, _, again, _, pruned = said
    [toy] = before.named("toy")
    assert (toy["verdict"]["ok"], toy["library_path"]) == (True, None)
    path = after.named("toy")[0]["library_path"]
    assert path.startswith(str(there.folder / "cache"))
    assert path.endswith(there.library)
    assert verified.out.endswith(": ok\n")
    assert exported.out.startswith("Toy.Plugin 1.0 for ")
    entries = [json.loads(each.out)["entries"] for each in (kept, emptied, again, pruned)]
    assert [[row["path"] for row in rows] for rows in entries] == [[path], [], [path], []]
    left = [each for each in (there.folder / "cache/v1").rglob("*") if each.is_file()]
    assert {each.parent.name for each in left} == {"locks", "memo"}


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_plugins_are_carried_for_a_server(system, tmp_path, clean_env):
    there = Elsewhere(system, tmp_path, clean_env, for_server=True)
    export = "bundle export toy.bundle toy"
    refused, exported, _, imported, verified, listed, archive = there.run_locked(
        *(export, f"{export} --host linux-x86_64", "cache clear", "bundle import toy.bundle"),
        *("cache verify", "list --json", f"lock toy={there.file_name} --yes -o archive.lock"),
    )
    assert refused.status != 0
    assert [each.status for each in (exported, imported, verified)] == [0, 0, 0], exported
    assert "1 archive in toy.bundle" in exported.out
    assert verified.out.endswith(": ok\n")
    whys = {each["verdict"]["reason"] for each in listed.named("toy")}
    assert any(f"this machine runs {system}" in why for why in whys), whys
    assert archive.status == 0, archive
    assert there.library in (tmp_path / "archive.lock").read_text()


def test_a_download_is_continued_by_the_next_process(there, server):
    address, half = f"/files/{there.file_name}", len(there.wheel) // 2
    begin = Answer(there.wheel[:half], headers={"ETag": '"one"'}, bare=True)
    server.script(address, begin, Answer(b"", "404 Not Found"))
    mirror = {"PJRT_HUB_MIRRORS": server.url("/files")}
    [failed] = there.run_locked("fetch toy", **mirror)
    assert failed.status == 4, failed
    server.file(address, there.wheel)
    [fetched] = there.run_locked("fetch toy", **mirror)
    assert fetched.status == 0, fetched
    assert [each.start for each in server.asked(address)][-1] == half
    assert list((there.folder / "cache/v1/partial").iterdir()) == []


def test_what_is_corrupted_is_moved_aside_and_fetched_again(there):
    [_, listed] = there.run_locked("fetch toy", "list --json")
    path = Path(listed.named("toy")[0]["library_path"])
    path.chmod(0o644)
    path.write_bytes(bytes(len(path.read_bytes())))
    [use] = (there.folder / "cache/v1/locks").glob("*.use")
    os.utime(use, (0, 0))
    verified, repaired, again = there.run_locked("cache verify", "fetch toy", "cache verify")
    assert (verified.status, repaired.status, again.status) == (4, 0, 0)
    assert "has sha256" in verified.out
    assert path.read_bytes() == SYSTEMS[there.system][3]
    assert use.stat().st_mtime > 0


def test_the_registry_has_rows_for_macos(tmp_path, clean_env):
    there = Elsewhere("macos", tmp_path, clean_env)
    listed, locked = there.run("list --json", "lock mps -o mps.lock")
    [mps] = [each for each in listed.named("mps") if each["verdict"]["ok"]]
    assert (mps["chosen"], mps["version"]) == (True, "0.11.1")
    assert "macosx_14_0_arm64.whl" in (tmp_path / "mps.lock").read_text()
    assert locked.status == 0
    whys = {each["verdict"]["reason"] for each in listed.named("metal")}
    assert any(why.startswith("needs PJRT API 0.") for why in whys), whys
    assert {each["verdict"]["ok"] for each in listed.named("cpu")} == {False}


def test_the_registry_has_none_for_windows(tmp_path, clean_env):
    [listed] = Elsewhere("windows", tmp_path, clean_env).run("list --json")
    rows = json.loads(listed.out)
    assert len(rows) > 10
    assert [each["name"] for each in rows if each["verdict"]["ok"]] == []


def test_running_is_refused_before_anything_is_fetched(there):
    system = {"windows": "Windows", "macos": "macOS"}[there.system]
    told = f"pjrt-hub loads plugins and runs programs on Linux only, and this is {system}"
    (there.folder / "add.mlir").write_text("module {}")
    lines = ["client toy", "doctor toy", "run add.mlir --platform toy", "cache list --json"]
    imported, asked, doctor, ran, kept = there.run_locked("imports", *lines)
    assert int(imported.out.split()[0]) > 100  # all portable modules were imported
    assert (asked.status, doctor.status, ran.status) == (1, 1, 5)
    assert asked.err.startswith(told)
    assert f"no    library: {told}" in doctor.out
    assert f"error: {told}\n\nhint: find, lock, fetch and bundle plugins here" in ran.err
    assert json.loads(kept.out)["entries"] == []
