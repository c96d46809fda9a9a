"""What `pjrt-hub doctor` says of plugins that cannot be used, and of what for they still can."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import finished
import pytest
from images import macho, pe
from trees import compile_library

MANIFEST = """schema = 1
name = "toy"
platform = "toy"

[[library]]
path = "libtoy.so"

"""
NO_DEVICE = '[probe]\nkind = "files"\nfiles = ["/dev/no-such-device"]\n'
PRELOAD = '[[preload]]\nmodule = "vendor.libs"\nlibraries = ["libcudnn.so.99", "libmore.so"]\n'


def hub(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run `pjrt-hub` with these words."""
    return finished.cli(*words, seconds=120, env=env)


@pytest.fixture
def doctor(stub, environment, tmp_path: Path) -> Callable[..., list[tuple[str, bool, str, str]]]:
    """`doctor(manifest, "ON_CREATE=abort()")` gives the steps for such a plugin."""

    def told(more: str, *macros: str, words: tuple[str, ...] = (), **env: str):
        folder = tmp_path / "site" / "pjrt_plugins" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(stub(*macros), folder / "libtoy.so")
        (folder / "pjrt_plugin.toml").write_text(MANIFEST + more)
        python_path = os.pathsep.join([str(tmp_path / "site"), environment["PYTHONPATH"]])
        own = {**environment, "PYTHONPATH": python_path, **env}
        done = hub(own, "doctor", "toy", "--json", *words)
        steps = [tuple(step.values()) for step in json.loads(done.stdout)]
        assert done.returncode == (0 if all(ok for _, ok, _, _ in steps) else 1), done.stderr
        return steps

    return told


def test_absent_hardware_is_a_no_to_run_and_a_yes_to_compile(doctor) -> None:
    ((name, _, detail, hint),) = [step for step in doctor(NO_DEVICE) if not step[1]]
    assert (name, detail) == ("hardware", "absent: none of /dev/no-such-device exists")
    assert "`pjrt-hub doctor toy --for compile`" in hint
    steps = doctor(NO_DEVICE, "ON_CREATE=abort()", words=("--for", "compile"))
    assert all(ok for _, ok, _, _ in steps)
    assert "client" not in [what for what, *_ in steps]
    assert ("topology", True, "the plugin describes devices that are not here", "") in steps


@pytest.mark.parametrize(
    ("macro", "what", "said"),
    [
        ('ON_DESCRIBE=return fail(12, "only what is there")', "topology", "only what is there"),
        ("ON_DESCRIBE=abort()", "load", "died of SIGABRT in PJRT_TopologyDescription_Create"),
        ('ON_CREATE=return fail(9, "no driver")', "client", "PJRT_Client_Create: no driver"),
        ("ON_CREATE=abort()", "load", "died of SIGABRT in PJRT_Client_Create"),
    ],
)
def test_without_a_client_nothing_runs_and_undescribed_nothing_compiles(doctor, macro, what, said):
    to_run, to_compile = (), ("--for", "compile")
    fails, works = (to_run, to_compile) if "CREATE" in macro else (to_compile, to_run)
    (step,) = [step for step in doctor("", macro, words=fails) if not step[1]]
    assert step[0] == what
    assert said in step[2]
    assert step[3]
    assert all(ok for _, ok, _, _ in doctor("", macro, words=works))


def test_a_plugin_that_wants_the_name_of_a_machine_is_a_yes_to_compile(doctor) -> None:
    macro = 'ON_DESCRIBE=return fail(3, "name a machine")'
    assert all(ok for _, ok, _, _ in doctor("", macro, words=("--for", "compile")))


def test_a_plugin_that_is_here_says_itself_that_its_hardware_is_not(doctor) -> None:
    steps = doctor(NO_DEVICE, 'ON_CREATE=dprintf(2, "FATAL: no chips\\n"); abort()')
    assert [name for name, ok, *_ in steps if not ok] == ["hardware", "load"]
    assert steps[-1][2].endswith("its last output:\nFATAL: no chips")


def test_the_client_is_tried_with_what_variables_set(doctor) -> None:
    option = '[options.count]\ntype = "int64"\nvariables = ["TOY_COUNT"]\n'
    aborts = "ON_CREATE=if (args->num_options) abort()"
    assert all(ok for _, ok, _, _ in doctor(option, aborts))
    name, ok, detail, _ = doctor(option, aborts, TOY_COUNT="2")[-1]
    assert (name, ok) == ("load", False)
    assert "died of SIGABRT in PJRT_Client_Create" in detail
    name, ok, detail, hint = doctor(option, aborts, TOY_COUNT="two")[-1]
    assert (name, ok, hint) == ("client", False, "correct that variable, or unset it")
    assert "the variable TOY_COUNT is 'two'" in detail


def test_libraries_that_only_some_programs_need_are_told(doctor) -> None:
    lacking = PRELOAD.replace("libcudnn.so.99", "libcudnn_absent.so.9")
    steps = {step[0]: step for step in doctor(lacking)}
    assert steps["opens"][1:] == (
        True,
        "not found, and needed to run some programs: libcudnn_absent.so.9, libmore.so",
        "pip install 'pjrt-hub[cuda]'",
    )
    assert steps["client"][1] is True
    refusing = doctor(lacking, 'ON_CREATE=return fail(9, "no cuDNN")')
    assert refusing[-1][0] != "opens"
    (hint,) = [hint for _, ok, _, hint in refusing if not ok]
    assert hint.endswith("it may lack what is told above: pip install 'pjrt-hub[cuda]'")


def cudnn(folder: Path, name: str = "libcudnn.so.99") -> Path:
    """A library that the plugin opens, as if it were cuDNN."""
    return compile_library("void nothing(void) {}", folder / name, "-Wl,-soname,libcudnn.so.99")


def test_a_library_of_the_system_is_found_once(doctor, tmp_path: Path) -> None:
    folder = cudnn(tmp_path / "lib", "libcudnn.so.99.0.96").parent
    (folder / "libcudnn.so.99").symlink_to("libcudnn.so.99.0.96")
    opened = 'ON_LOAD=extern void *dlopen(const char *, int); dlopen("libcudnn.so.99", 2)'
    told = doctor(PRELOAD, opened, LD_LIBRARY_PATH=str(folder))
    steps = {step[0]: step for step in told}
    assert "libcudnn.so.99.0.96" in steps["mapped"][2]
    assert steps["variables"][2] == f"LD_LIBRARY_PATH={folder}"
    assert [detail for what, _, detail, _ in told if what == "opens"] == [
        f"libcudnn.so.99: {folder}/libcudnn.so.99, LD_LIBRARY_PATH",
        "not found, and needed to run some programs: libmore.so",
    ]


def test_the_file_that_wins_is_told_with_those_that_it_hides(doctor, tmp_path: Path) -> None:
    own = cudnn(tmp_path / "site" / "vendor" / "libs" / "lib")
    info = tmp_path / "site" / "vendor_libs-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-libs\nVersion: 1.2\n")
    (info / "RECORD").write_text("vendor/libs/lib/libcudnn.so.99,,\n")
    other = cudnn(tmp_path / "other")
    told = doctor(PRELOAD, LD_LIBRARY_PATH=str(other.parent))
    opened = next(detail for what, _, detail, _ in told if what == "opens")
    own = f"{own} of vendor-libs 1.2, loaded before the plugin"
    assert opened == f"libcudnn.so.99: {own}; it hides {other}"


def test_what_a_framework_has_loaded_before_wins(doctor, tmp_path: Path) -> None:
    other = cudnn(tmp_path / "other")
    own = cudnn(tmp_path / "site" / "vendor" / "libs" / "lib")
    frame = tmp_path / "site" / "frame.py"
    frame.write_text(f"import ctypes\nctypes.CDLL({str(other)!r})\n")
    told = doctor(PRELOAD, words=("--after", "frame"))
    assert next(detail for what, _, detail, _ in told if what == "opens") == (
        f"libcudnn.so.99: {other}, already loaded by frame; it hides {own}"
    )
    mapped = {what: detail for what, _, detail, _ in told}["mapped"]
    assert mapped.index(str(other)) >= 0
    name, ok, detail, hint = doctor(PRELOAD, words=("--after", "no_such_frame"))[-1]
    assert (name, ok) == ("after", False)
    assert "no_such_frame cannot be imported: ModuleNotFoundError" in detail
    assert hint == "name modules that can be imported here, such as torch"


def test_what_is_missing_is_a_no_where_the_hardware_is(doctor, tmp_path: Path) -> None:
    (tmp_path / "device").touch()
    present = f'[probe]\nkind = "files"\nfiles = ["{tmp_path}/device"]\n'
    [step] = [step for step in doctor(PRELOAD + present) if step[0] == "opens"]
    assert step[1:] == (
        False,
        "not found: libcudnn.so.99, libmore.so",
        "install them, or name their folders in LD_LIBRARY_PATH",
    )


def listed(word: str, environment: dict[str, str]) -> tuple[int, str, str]:
    """`pjrt-hub list WORD --json`: its exit status, and what it printed."""
    done = hub(environment, "list", word, "--json")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "data", "system"), [("a.dylib", macho(), "macos"), ("b.dll", pe(), "windows")]
)
def test_a_library_of_another_system_is_a_no(environment, tmp_path, name, data, system):
    path = tmp_path / name
    path.write_bytes(data)
    why = f"it is built for {system}, this machine runs linux"
    status, printed, _ = listed(str(path), environment)
    [found] = json.loads(printed)
    assert status == 0
    assert (found["chosen"], found["verdict"]) == (False, {"ok": False, "reason": why})


def test_list_takes_the_path_that_doctor_takes(stub, environment) -> None:
    library = stub()
    status, printed, _ = listed(str(library), environment)
    [found] = json.loads(printed)
    assert (status, found["chosen"], found["library_path"]) == (0, True, str(library))
    assert (found["source"], found["verdict"]["reason"]) == ("explicit", "its path was given")
    assert found["hardware"]["ok"] is None
    status, printed, errors = listed(str(library.with_name("nosuch.so")), environment)
    assert (status, printed) == (5, "")
    assert "nosuch.so is not a file" in errors
