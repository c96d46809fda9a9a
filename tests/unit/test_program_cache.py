"""pjrt_hub.finding.store.cache.program_cache: programs come back complete or not at all."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.cache.program_cache import COMPILER_VARIABLES, MAX_NBYTES, ProgramCache

KEY = "a" * 64


@pytest.fixture
def kept(tmp_path):
    return ProgramCache(tmp_path)


def files(root):
    return sorted(path for path in root.rglob("*") if path.is_file())


@pytest.fixture
def file(kept, tmp_path):
    """The file of one program in the cache."""
    kept.put(KEY, b"code")
    (file,) = files(tmp_path)
    return file


def test_what_was_put_is_there_and_nothing_else(kept, tmp_path):
    assert kept.get(KEY) is None
    assert not list(tmp_path.iterdir())  # a look-up writes nothing
    for code in (b"one", b"code"):  # the second code replaces the first
        kept.put(KEY, code)
        assert kept.get(KEY) == code
    assert kept.get("b" * 64) is None
    assert ProgramCache(tmp_path).get(KEY) == b"code"
    (file,) = files(tmp_path)
    assert kept.nbytes() == file.stat().st_size


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
    assert file.stat().st_mode & 0o077 == 0
    assert not any(each.stat().st_mode & 0o022 for each in folders)
    assert kept.get(KEY) == b"code"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("above", range(5))
def test_what_somebody_else_planted_is_not_run(kept, file, caplog, above):
    planted = [file, *file.parents][above]
    os.chown(planted, 65534, 65534)
    assert kept.get(KEY) is None
    assert f"{planted} belongs to user 65534" in caplog.text
    kept.put("b" * 64, b"more")  # another user could replace it at once
    assert kept.get("b" * 64) == (b"more" if above < 2 else None)


@pytest.mark.parametrize("others", [0o020, 0o002])
@pytest.mark.parametrize("above", range(5))
def test_what_others_can_write_is_not_run(kept, file, caplog, above, others):
    loose = [file, *file.parents][above]
    loose.chmod(loose.stat().st_mode | others)
    assert kept.get(KEY) is None
    assert f"{loose} can be written by others" in caplog.text
    assert "PJRT_HUB_COMPILE_CACHE" in caplog.text
    loose.chmod(loose.stat().st_mode & ~others)
    assert kept.get(KEY) == b"code"


def test_no_link_is_followed_to_a_program(kept, file, tmp_path):
    aside = file.rename(tmp_path / "aside")
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
def test_a_damaged_file_is_dropped(kept, file, damage, caplog):
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
    os.truncate(file, 1 << 42)  # this sparse file exceeds any memory
    assert kept.get(KEY) is None


@pytest.mark.parametrize("name", COMPILER_VARIABLES)
def test_every_variable_of_a_compiler_separates(tmp_path, name):
    plain = ProgramCache.from_env({"PATH": "/bin", "TF_CPP_MIN_LOG_LEVEL": "3"}, tmp_path)
    other = ProgramCache.from_env({name: "1"}, tmp_path)
    plain.put(KEY, b"plain")
    assert other.get(KEY) is None
    other.put(KEY, b"other")
    assert (plain.get(KEY), other.get(KEY)) == (b"plain", b"other")
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
    os.truncate(flags, 1 << 42)  # this sparse file exceeds any memory
    assert ProgramCache.from_env(env, tmp_path).get(KEY) == b"absent"


def test_variables_say_how_much_and_whether(tmp_path):
    assert ProgramCache.from_env({"PJRT_HUB_COMPILE_CACHE": "1"}, None) is None
    assert ProgramCache.from_env({}, tmp_path).max_nbytes == MAX_NBYTES
    bound = ProgramCache.from_env({"PJRT_HUB_COMPILE_CACHE_NBYTES": "1000"}, tmp_path)
    assert bound.max_nbytes == 1000
    with pytest.raises(PjrtHubError, match="NBYTES is '1GB'"):
        ProgramCache.from_env({"PJRT_HUB_COMPILE_CACHE_NBYTES": "1GB"}, tmp_path)


def test_the_least_recently_used_goes_first(tmp_path):
    kept = ProgramCache(tmp_path, max_nbytes=4000)
    now = time.time()
    for number in range(3):
        kept.put(f"{number}", bytes(1000))
        newest = max(files(tmp_path), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (now - 100 + number, now - 100 + number))
    assert kept.get("0") == bytes(1000)  # "0" was used now, so "1" is the oldest
    kept.put("3", bytes(1000))
    assert kept.nbytes() <= 4000
    assert kept.get("1") is None
    assert kept.get("0") == kept.get("3") == bytes(1000)


def test_the_bound_holds_when_the_clock_went_back(tmp_path):
    kept = ProgramCache(tmp_path, max_nbytes=3000)
    kept.put(KEY, bytes(3000))  # with the data beside it, it exceeds the bound
    assert files(tmp_path) == []
    kept.put("old", bytes(2000))
    ahead = time.time() + 1000
    os.utime(files(tmp_path)[0], (ahead, ahead))
    kept.put("new", bytes(2000))
    assert kept.nbytes() <= 3000


def test_abandoned_partial_files_go(kept, tmp_path):
    kept.put(KEY, b"code")
    folder = files(tmp_path)[0].parent
    old, young = folder / ".x.old", folder / ".x.young"
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


BEGIN = """
import hashlib, itertools, logging, os, sys, tempfile  # while it may still read
from pathlib import Path
from pjrt_hub.finding.store.cache.program_cache import ProgramCache
kept = ProgramCache(Path(sys.argv[1]), max_nbytes=int(sys.argv[2]))
"""


def child(code: str, root: Path, max_nbytes: int = MAX_NBYTES) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BEGIN + code, str(root), str(max_nbytes)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


READER = """
os.setuid(65534)
print(kept.get("a"), kept.get("b"))
kept.put("b", b"new")
kept.put("a", b"changed")
print(kept.get("a"), kept.get("b"))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not write")
def test_a_directory_that_may_only_be_read(tmp_path):
    """It serves its programs, and only logs that it cannot keep new ones."""
    root = tmp_path / "cache"
    ProgramCache(root).put("a", b"code")
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(0o755)
    with child(READER, root) as reader:
        stdout, stderr = reader.communicate(timeout=60)
    assert stdout == "b'code' None\nb'code' None\n", stderr
    assert stderr.count("cannot be kept in") == 2
    assert reader.returncode == 0
    assert len(files(root)) == 1


KILLED = """
print("begun", flush=True)
for number in itertools.count():
    kept.put(str(number % 3), str(number % 3).encode() * 300_000)
"""


def test_a_writer_that_is_killed_leaves_whole_files(tmp_path):
    for pause in (0.0, 0.01, 0.03, 0.07, 0.15):
        with child(KILLED, tmp_path) as writer:
            assert writer.stdout.readline() == "begun\n"
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
for number in range(150):
    key = str(number % 7)
    value = key.encode() * 5000
    found = kept.get(key)
    assert found in (None, value), len(found)
    kept.put(key, value)
"""


def test_processes_share_it(tmp_path):
    children = [child(WRITER, tmp_path, 40_000) for _ in range(3)]
    for each in children:
        _, stderr = each.communicate(timeout=60)
        assert (each.returncode, stderr) == (0, "")
    assert ProgramCache(tmp_path).nbytes() <= 60_000
    assert [path for path in files(tmp_path) if path.name.startswith(".")] == []
