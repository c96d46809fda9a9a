"""Every way in which a library can fail at first contact, told apart; this process lives on."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faulty import FAULTS, THROWN
from stubbed import ends, path, traces
from trees import compile_library

from pjrt_hub import errors
from pjrt_hub.base import digest
from pjrt_hub.door import client, doctor, preflight, process
from pjrt_hub.finding.discovery import hardware
from pjrt_hub.running.capi import library as loading
from pjrt_hub.running.sandbox import probe

#: The seconds for a plugin that hangs, on an idle machine; a busy machine gets more.
DEADLINE = 2.0
SLACK = 3.0  # a plugin that nothing ends hangs for ever, and the limit is 30 s where nobody sets it
PACES = 4  # a timed contact may take longer by so many healthy ones

WORKS = None
Load, Crash, Hang = errors.PluginLoadError, errors.PluginCrashedError, errors.PluginTimeoutError
Unfit, Lacking = errors.IncompatiblePluginError, errors.UnsupportedByPluginError

#: Fault -> the class of its error, and parts of the error's text.
ENDINGS: dict[str, tuple[type[errors.PjrtHubError] | None, tuple[str, ...]]] = {
    "no_symbol": (Load, ("does not export GetPjrtApi",)),
    "null_table": (Load, ("returns no table from GetPjrtApi",)),
    "short_table": (Load, ("has 16 bytes",)),
    "ragged_table": (Load, ("has 1140 bytes",)),
    "cut_table": (Lacking, ("lacks PJRT_",)),
    "null_slot": (Lacking, ("lacks PJRT_Error_Message",)),
    "extensions_in_a_circle": (WORKS, ()),
    "extensions_nowhere": (Crash, ("died of SIGSEGV in GetPjrtApi",)),
    "extensions_without_end": (WORKS, ()),
    "another_abi": (Unfit, ("another ABI",)),
    "old": (Unfit, ("another order",)),
    "new": (WORKS, ()),
    "undefined_symbol": (Load, ("undefined symbol: nobody_has_this_function",)),
    "constructor_abort": (Crash, ("died of SIGABRT in dlopen",)),
    "entry_abort": (Crash, ("died of SIGABRT in GetPjrtApi",)),
    "initialize_abort": (Crash, ("died of SIGABRT in PJRT_Plugin_Initialize",)),
    "segfault": (Crash, ("died of SIGSEGV in PJRT_Plugin_Initialize",)),
    "stack_overflow": (Crash, ("died of SIGSEGV in PJRT_Plugin_Initialize",)),
    "exit_0": (Crash, ("exited with status 0 in PJRT_Plugin_Initialize",)),
    "exit_3": (Crash, ("exited with status 3 in PJRT_Plugin_Initialize",)),
    "quick_exit_1": (Crash, ("exited with status 1 in PJRT_Plugin_Initialize",)),
    "killed": (Crash, ("died of SIGKILL in PJRT_Plugin_Initialize",)),
    "kills_its_group": (Crash, ("died of SIGKILL in PJRT_Plugin_Initialize",)),
    "constructor_hang": (Hang, ("it hung in dlopen",)),
    "entry_hang": (Hang, ("it hung in GetPjrtApi",)),
    "initialize_hang": (Hang, ("it hung in PJRT_Plugin_Initialize",)),
    "busy_hang": (Hang, ("it hung in PJRT_Plugin_Initialize",)),
    "stubborn_hang": (Hang, ("it hung in PJRT_Plugin_Initialize",)),
    "flood": (Hang, ("it hung in PJRT_Plugin_Initialize",)),
    "hangs_with_a_daemon": (Hang, ("it hung in PJRT_Plugin_Initialize",)),
    "closes_stdout": (WORKS, ()),
    "closes_everything": (Crash, ("closed the files",)),
    "noisy_stdout": (WORKS, ()),
    "megabyte_of_words": (Crash, ("died of SIGABRT in PJRT_Plugin_Init", "the last word")),
    "leaves_a_daemon": (WORKS, ()),
    "takes_signals": (Crash, ("died of SIGABRT in PJRT_Plugin_Initialize",)),
    "raises_limits": (WORKS, ()),
    "refuses": (errors.UnavailableError, ("the device is busy",)),
    "throws": (Crash, ("died of SIGABRT in GetPjrtApi", "no driver of ours")),
    "constructor_throws": (Crash, ("died of SIGABRT in dlopen", "no memory of ours")),
}


@pytest.fixture
def meet(environment, monkeypatch) -> Callable[[Path], None]:
    """`meet(path)` is all that `pjrt_hub.load(path)` does before the library enters a process."""
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in {**environment, "PJRT_HUB_PROBE_SECONDS": "60"}.items():
        monkeypatch.setenv(name, value)

    def first_contact(path: Path) -> None:
        candidate = client.choose(path).candidate
        here = process.world()
        library = candidate.library_path
        seen = digest.identity(library)
        contact = preflight.Contact(library, candidate.manifest, here, os.environ, seen)
        preflight.prepare(contact)

    return first_contact


def until_loaded(folder: Path, times: int = 1) -> None:
    """Wait until so many processes loaded a stub, for as long as first contact would."""
    for _ in range(1500):
        if len(traces(folder)) >= times:
            return
        time.sleep(0.02)


def pace(faults, meet) -> float:
    """The seconds that this machine needs for first contact with a healthy plugin."""
    began = time.monotonic()
    meet(faults("new"))
    return time.monotonic() - began


def test_every_fault_has_an_ending():
    assert ENDINGS.keys() == FAULTS.keys() | THROWN.keys()


@pytest.mark.parametrize("fault", sorted(ENDINGS))
@pytest.mark.slow
@pytest.mark.night
def test_a_fault_is_told_apart_and_leaves_nothing(faults, meet, tmp_path, fault, monkeypatch):
    cls, said = ENDINGS[fault]
    slack, deadline = SLACK, DEADLINE
    if cls is Hang:
        more = PACES * pace(faults, meet)
        slack, deadline = SLACK + more, DEADLINE + more
        monkeypatch.setenv("PJRT_HUB_PROBE_SECONDS", str(deadline))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    folder = Path.cwd()
    began = time.monotonic()
    if cls is WORKS:
        meet(faults(fault))
    else:
        with pytest.raises(errors.PjrtHubError) as caught:
            meet(faults(fault))
        assert type(caught.value) is cls, repr(caught.value)
        for words in said:
            assert words in caught.value.message
        if not isinstance(caught.value, errors.PjrtError):
            assert str(faults(fault).name) in caught.value.message
        if cls in (Load, Crash, Hang, Unfit):
            assert caught.value.hint
    took = time.monotonic() - began
    if cls is Hang:
        assert abs(took - deadline) <= slack
    assert all(ends(pid) for pid in traces(tmp_path))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert Path.cwd() == folder


def damage(whole: bytes, path: Path, **at: int) -> None:
    """Write a copy with other bytes at some offsets."""
    content = bytearray(whole)
    for offset, byte in at.items():
        content[int(offset[1:])] = byte
    path.write_bytes(content)


#: Kind of file -> the function that makes it of a library, and a part of the error's text.
FILES: dict[str, tuple[Callable[[bytes, Path], object], str]] = {
    "absent": (lambda whole, path: None, "absent.so"),
    "directory": (lambda whole, path: path.mkdir(), "director"),
    "empty": (lambda whole, path: path.touch(), "empty"),
    "a page": (lambda whole, path: path.write_text("<!DOCTYPE html><html>Sign in</html>"), "HTML"),
    "of another machine": (lambda whole, path: damage(whole, path, _18=183, _19=0), "aarch64"),
    "of 32 bits": (lambda whole, path: damage(whole, path, _4=1), "32"),
    "of another byte order": (lambda whole, path: damage(whole, path, _5=2), "endian"),
    "cut": (lambda whole, path: path.write_bytes(whole[:5000]), "cut"),
    "cut in its headers": (lambda whole, path: path.write_bytes(whole[:40]), "cut"),
}


@pytest.mark.parametrize("kind", sorted(FILES))
def test_a_file_that_is_no_library_for_here_is_never_loaded(stub, meet, tmp_path, kind):
    make, said = FILES[kind]
    path = tmp_path / f"{kind.replace(' ', '_')}.so"
    make(stub().read_bytes(), path)
    with pytest.raises(errors.PluginError) as caught:
        meet(path)
    assert said in caught.value.message
    assert path.name in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "loads").exists()


def test_a_missing_library_is_named(meet, tmp_path):
    named = "-Wl,-soname,libnowhere_to_be_found.so.7"
    needed = compile_library("int needed(void) { return 1; }", tmp_path / "libneeded.so", named)
    source = "int needed(void); int GetPjrtApi(void) { return needed(); }"
    plugin = compile_library(source, tmp_path / "plugin.so", str(needed))
    with pytest.raises(errors.PluginLoadError, match=r"libnowhere_to_be_found\.so\.7"):
        meet(plugin)


def meet_it():
    preflight.first_contact(Path(path), (), os.environ)


def test_the_child_ends_with_a_parent_that_is_killed(faults, start, tmp_path):
    child = start(faults("hangs_with_a_daemon"), meet_it)
    until_loaded(tmp_path, 2)
    child.kill()
    child.wait(10)
    assert [ends(pid) for pid in traces(tmp_path)] == [True] * 2


def test_an_answer_holds_for_the_drivers_that_it_was_given_under(stub, meet, tmp_path, monkeypatch):
    library = tmp_path / "plugin.so"
    library.write_bytes(stub().read_bytes())
    monkeypatch.setattr(hardware, "drivers", lambda root: "NVRM version 550.54.15")
    meet(library)
    meet(library)
    assert len(traces(tmp_path)) == 1
    monkeypatch.setattr(hardware, "drivers", lambda root: "NVRM version 580.1.2")
    meet(library)
    meet(library)
    assert len(traces(tmp_path)) == 2


def test_drivers_are_told_by_files(tmp_path):
    assert hardware.drivers(tmp_path) == ""
    for name, text in (
        ("proc/driver/nvidia/version", "NVRM version: 550.54.15\nGCC version: 12\n"),
        ("sys/module/amdgpu/version", "6.7.0\n"),
        ("dev/accel/accel0", ""),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    said = "NVRM version: 550.54.15; amdgpu 6.7.0; dev/accel accel0"
    assert hardware.drivers(tmp_path) == said


def test_doctor_shows_what_the_loader_took(stub, meet, tmp_path):
    library = tmp_path / "plugin.so"
    library.write_bytes(stub().read_bytes())
    last = doctor.diagnose(library).steps[-1]
    assert (last.what, last.ok, last.detail) == ("mapped", True, str(library))
    library.chmod(0o666)
    last = doctor.diagnose(library).steps[-1]
    assert (last.what, last.ok) == ("mapped", False)
    assert str(library) in last.detail
    assert "LD_LIBRARY_PATH" in last.hint


def test_only_absolute_paths_are_opened_by_the_loader(stub, environment, tmp_path):
    """It opens no library in the working folder, or in /tmp, where everybody can write."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "libpthread.so.0").write_text("not a library")
    library = tmp_path / "plugin.so"
    library.write_bytes(stub().read_bytes())
    script = "import sys, pjrt_hub; pjrt_hub.load(sys.argv[1])"
    log = tmp_path / "log"
    command = ["strace", "-f", "-e", "trace=open,openat", "-o", log, sys.executable, "-P", "-c"]
    subprocess.run(
        [*command, script, f"../{library.name}"], env=environment, cwd=folder, check=True
    )
    opened = re.findall(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]*)"', log.read_text())
    libraries = {path for path in opened if ".so" in Path(path).name}
    assert str(library) in libraries
    assert [path for path in libraries if not path.startswith("/")] == []
    assert [path for path in libraries if Path(path).parent in (folder, Path("/tmp"))] == []


def test_a_dependency_is_never_searched_for():
    with pytest.raises(errors.PluginLoadError, match="not absolute"):
        loading.preload("libm.so.6")


@pytest.mark.parametrize(
    ("name", "is_locked", "said"),
    [
        ("libtpu.so", True, "sudo rm"),
        ("libtpu.so", False, "PJRT_HUB_PROBE_SECONDS"),
        ("libcpu.so", True, "PJRT_HUB_PROBE_SECONDS"),
    ],
)
def test_a_hang_beside_a_lock_of_the_tpu_names_it(monkeypatch, tmp_path, name, is_locked, said):
    lock = tmp_path / "libtpu_lockfile"
    monkeypatch.setattr(probe, "_TPU_LOCK", str(lock))
    if is_locked:
        lock.touch()
    hint = probe._timeout_hint(Path(name))
    assert said in hint
    assert (str(lock) in hint) is (said == "sudo rm")
