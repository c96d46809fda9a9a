"""pjrt_hub.finding.store.cache.program_cache: what is kept comes back whole, or not at all."""

import os
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.cache.program_cache import COMPILER_VARIABLES, MAX_NBYTES, ProgramCache

KEY = "a" * 64


@pytest.fixture
def kept(tmp_path):
    return ProgramCache(tmp_path)


def files(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_what_was_put_is_there_and_nothing_else(kept, tmp_path):
    assert kept.get(KEY) is None
    assert not list(tmp_path.iterdir())  # a look writes nothing
    kept.put(KEY, b"code")
    assert kept.get(KEY) == b"code"
    assert kept.get("b" * 64) is None
    assert ProgramCache(tmp_path).get(KEY) == b"code"
    assert kept.nbytes() == files(tmp_path)[0].stat().st_size


def test_a_second_put_replaces_the_first(kept, tmp_path):
    kept.put(KEY, b"one")
    kept.put(KEY, b"two")
    assert kept.get(KEY) == b"two"
    assert len(files(tmp_path)) == 1


def test_only_the_owner_can_write_and_read(kept, tmp_path):
    kept.put(KEY, b"code")
    (file,) = files(tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
def test_it_is_made_for_its_owner_alone_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        kept = ProgramCache(tmp_path / "cache" / "root")
        kept.put(KEY, b"code")
    finally:
        os.umask(before)
    (file,) = files(tmp_path)
    folders = [each for each in file.parents if each.is_relative_to(tmp_path / "cache" / "root")]
    private = [each for each in folders if each.is_relative_to(kept.root / "v1/compiled")]
    assert [each.stat().st_mode & 0o777 for each in (*private, kept.root)] == [0o700] * 3
    assert not any(each.stat().st_mode & 0o022 for each in folders)
    assert kept.get(KEY) == b"code"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("above", range(5))
def test_what_somebody_else_planted_is_not_run(kept, tmp_path, caplog, above):
    kept.put(KEY, b"code")
    (file,) = files(tmp_path)
    planted = [file, *file.parents][above]
    os.chown(planted, 65534, 65534)
    assert kept.get(KEY) is None
    assert f"{planted} belongs to user 65534" in caplog.text
    kept.put("b" * 64, b"more")  # where it could be exchanged at once
    assert kept.get("b" * 64) == (b"more" if above < 2 else None)


@pytest.mark.parametrize("others", [0o020, 0o002])
@pytest.mark.parametrize("above", range(5))
def test_what_others_can_write_is_not_run(kept, tmp_path, caplog, above, others):
    kept.put(KEY, b"code")
    (file,) = files(tmp_path)
    loose = [file, *file.parents][above]
    loose.chmod(loose.stat().st_mode | others)
    assert kept.get(KEY) is None
    assert f"{loose} can be written by others" in caplog.text
    assert "PJRT_HUB_COMPILE_CACHE" in caplog.text
    loose.chmod(loose.stat().st_mode & ~others)
    assert kept.get(KEY) == b"code"


def test_no_link_is_followed_to_a_program(kept, tmp_path):
    kept.put(KEY, b"code")
    (file,) = files(tmp_path)
    aside = tmp_path / "aside"
    file.rename(aside)
    file.symlink_to(aside)
    assert kept.get(KEY) is None
    assert aside.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:-1] + b"X",
        lambda content: b"X" + content[1:],
        lambda content: b"",
        lambda content: os.urandom(len(content)),
    ],
    ids=["cut", "longer", "last byte", "first byte", "empty", "noise"],
)
def test_a_damaged_file_is_dropped(kept, tmp_path, damage, caplog):
    kept.put(KEY, b"code" * 100)
    (file,) = files(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert kept.get(KEY) is None
    assert not file.exists()
    assert "damaged" in caplog.text
    kept.put(KEY, b"again")
    assert kept.get(KEY) == b"again"


def test_a_file_larger_than_the_bound_is_not_read(tmp_path):
    kept = ProgramCache(tmp_path, max_nbytes=1 << 20)
    kept.put(KEY, b"code")
    (file,) = files(tmp_path)
    os.truncate(file, 1 << 42)  # a sparse file, which nothing could hold
    assert kept.get(KEY) is None


def test_what_compilers_read_separates(tmp_path):
    plain = ProgramCache.from_env({}, tmp_path)
    flags = ProgramCache.from_env({"XLA_FLAGS": "--xla_dump_to=x"}, tmp_path)
    plain.put(KEY, b"plain")
    assert flags.get(KEY) is None
    flags.put(KEY, b"flags")
    assert (plain.get(KEY), flags.get(KEY)) == (b"plain", b"flags")


@pytest.mark.parametrize("name", COMPILER_VARIABLES)
def test_every_variable_of_a_compiler_separates(tmp_path, name):
    plain = ProgramCache.from_env({"PATH": "/bin", "TF_CPP_MIN_LOG_LEVEL": "3"}, tmp_path)
    other = ProgramCache.from_env({name: "1"}, tmp_path)
    plain.put(KEY, b"plain")
    assert other.get(KEY) is None
    assert ProgramCache.from_env({name: ""}, tmp_path).get(KEY) == b"plain"
    assert ProgramCache.from_env({}, tmp_path).get(KEY) == b"plain"


@pytest.mark.parametrize("name", ["XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS"])
def test_a_file_of_flags_counts_as_what_is_in_it(tmp_path, name):
    flags = tmp_path / "flags"
    env = {name: str(flags)}
    absent = ProgramCache.from_env(env, tmp_path)
    absent.put(KEY, b"absent")
    for content in (b"--one", b"--two"):
        flags.write_bytes(content)
        kept = ProgramCache.from_env(env, tmp_path)
        assert kept.get(KEY) is None
        kept.put(KEY, content)
        assert ProgramCache.from_env(env, tmp_path).get(KEY) == content
    assert absent.get(KEY) == b"absent"
    os.truncate(flags, 1 << 42)  # a sparse file, which nothing could hold
    assert ProgramCache.from_env(env, tmp_path).get(KEY) == b"absent"


def test_the_variable_says_where(tmp_path):
    configured = ProgramCache.from_env
    assert configured({}, tmp_path).root == tmp_path
    assert configured({"PJRT_HUB_COMPILE_CACHE": "1"}, tmp_path).root == tmp_path
    assert configured({"PJRT_HUB_COMPILE_CACHE": "1"}, None) is None
    other = tmp_path / "other"
    assert configured({"PJRT_HUB_COMPILE_CACHE": str(other)}, tmp_path).root == other
    assert configured({}, tmp_path).max_nbytes == MAX_NBYTES
    bound = {"PJRT_HUB_COMPILE_CACHE_NBYTES": "1000"}
    assert configured(bound, tmp_path).max_nbytes == 1000
    with pytest.raises(ValueError, match="NBYTES is '1GB'"):
        configured({"PJRT_HUB_COMPILE_CACHE_NBYTES": "1GB"}, tmp_path)


def test_the_least_recently_used_goes_first(tmp_path):
    kept = ProgramCache(tmp_path, max_nbytes=4000)
    now = time.time()
    for number in range(3):
        kept.put(f"{number}", bytes(1000))
        newest = max(files(tmp_path), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (now - 100 + number, now - 100 + number))
    assert kept.get("0") == bytes(1000)  # used now: "1" is the oldest
    kept.put("3", bytes(1000))
    assert kept.nbytes() <= 4000
    assert kept.get("1") is None
    assert kept.get("0") == kept.get("3") == bytes(1000)


def test_what_is_larger_than_the_bound_is_not_kept(tmp_path):
    kept = ProgramCache(tmp_path, max_nbytes=100)
    kept.put(KEY, bytes(100))
    assert files(tmp_path) == []


def test_the_bound_holds_when_the_clock_went_back(tmp_path):
    kept = ProgramCache(tmp_path, max_nbytes=3000)
    kept.put("old", bytes(2000))
    ahead = time.time() + 1000
    os.utime(files(tmp_path)[0], (ahead, ahead))
    kept.put("new", bytes(2000))
    assert kept.nbytes() <= 3000


def test_abandoned_partial_files_go(kept, tmp_path):
    kept.put(KEY, b"code")
    folder = files(tmp_path)[0].parent
    old, young = folder / "x.partial.old", folder / "x.partial.young"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (1, 1))
    kept.put("other", b"code")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_directory_that_cannot_be_made_only_costs_time(tmp_path, caplog):
    (tmp_path / "v1").write_text("a file where the folder should be")
    kept = ProgramCache(tmp_path)
    assert kept.get(KEY) is None
    kept.put(KEY, b"code")
    assert "cannot be kept" in caplog.text
    assert kept.get(KEY) is None


READER = """
import hashlib, logging, os, sys, tempfile  # while it may still read
from pathlib import Path
from pjrt_hub.finding.store.cache.program_cache import ProgramCache
os.setuid(65534)
kept = ProgramCache(Path(sys.argv[1]))
print(kept.get("a"), kept.get("b"))
kept.put("b", b"new")
kept.put("a", b"changed")
print(kept.get("a"), kept.get("b"))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not write")
def test_a_directory_that_may_only_be_read(tmp_path):
    """It serves what it has, and refuses the rest without a word but in the log."""
    root = tmp_path / "cache"
    ProgramCache(root).put("a", b"code")
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", READER, str(root)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "b'code' None\nb'code' None\n", done.stderr
    assert done.stderr.count("cannot be kept in") == 2
    assert done.returncode == 0
    assert len(files(root)) == 1


KILLED = """
import itertools, os, sys
from pathlib import Path
from pjrt_hub.finding.store.cache.program_cache import ProgramCache
kept = ProgramCache(Path(sys.argv[1]))
print("begun", flush=True)
for number in itertools.count():
    kept.put(str(number % 3), str(number % 3).encode() * 300_000)
"""


def test_a_writer_that_is_killed_leaves_whole_files(tmp_path):
    for pause in (0.0, 0.01, 0.03, 0.07, 0.15):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout.readline() == b"begun\n"
            time.sleep(pause)
            writer.kill()
        kept = ProgramCache(tmp_path)
        for key in "012":
            assert kept.get(key) in (None, key.encode() * 300_000)
    kept.put("0", b"after")
    assert kept.get("0") == b"after"


def test_clearing_the_cache_clears_the_compiled_programs(tmp_path):
    kept = ProgramCache(tmp_path)
    kept.put(KEY, bytes(1000))
    assert Cache(tmp_path).clear().nbytes >= 1000
    assert kept.get(KEY) is None
    assert kept.nbytes() == 0


WRITER = """
import sys
from pathlib import Path
from pjrt_hub.finding.store.cache.program_cache import ProgramCache
kept = ProgramCache(Path(sys.argv[1]), max_nbytes=40_000)
for number in range(150):
    key = str(number % 7)
    value = key.encode() * 5000
    found = kept.get(key)
    assert found in (None, value), len(found)
    kept.put(key, value)
"""


def test_processes_share_it(tmp_path):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for child in children:
        _, stderr = child.communicate(timeout=60)
        assert (child.returncode, stderr) == (0, "")
    assert ProgramCache(tmp_path).nbytes() <= 60_000
    assert [path for path in files(tmp_path) if ".partial." in path.name] == []
