"""What `pjrt-hub doctor` says of plugins that cannot be used, and of what for they still can."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import compile_library

MANIFEST = """schema = 1
name = "toy"
platform = "toy"

[[library]]
path = "libtoy.so"

"""
NO_DEVICE = '[probe]\nkind = "files"\nfiles = ["/dev/no-such-device"]\n'
PRELOAD = '[[preload]]\nmodule = "vendor.libs"\nlibraries = ["libcudnn.so.99", "libmore.so"]\n'


@pytest.fixture
def doctor(stub, environment, tmp_path: Path) -> Callable[..., list[tuple[str, bool, str, str]]]:
    """`doctor(manifest, "ON_CREATE=abort()")` gives the steps for such a plugin."""

    def told(more: str, *macros: str, words: tuple[str, ...] = (), **env: str):
        folder = tmp_path / "site" / "pjrt_plugins" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(stub(*macros), folder / "libtoy.so")
        (folder / "pjrt_plugin.toml").write_text(MANIFEST + more)
        python_path = os.pathsep.join([str(tmp_path / "site"), environment["PYTHONPATH"]])
        done = subprocess.run(
            [sys.executable, "-m", "pjrt_hub.cli", "doctor", "toy", "--json", *words],
            env={**environment, "PYTHONPATH": python_path, **env},
            capture_output=True,
            text=True,
            timeout=120,
        )
        steps = [tuple(step.values()) for step in json.loads(done.stdout)]
        assert done.returncode == (0 if all(ok for _, ok, _, _ in steps) else 1), done.stderr
        return steps

    return told


def test_absent_hardware_is_a_no_to_run_and_a_yes_to_compile(doctor) -> None:
    name, ok, detail, hint = doctor(NO_DEVICE)[-1]
    assert (name, ok) == ("hardware", False)
    assert detail == "absent: none of /dev/no-such-device exists"
    assert "`pjrt-hub doctor toy --for compile`" in hint
    steps = doctor(NO_DEVICE, "ON_CREATE=abort()", words=("--for", "compile"))
    assert all(ok for _, ok, _, _ in steps)
    assert "client" not in [what for what, *_ in steps]


@pytest.mark.parametrize(
    ("macro", "what", "said"),
    [
        ('ON_CREATE=return fail(9, "no driver")', "client", "PJRT_Client_Create: no driver"),
        ("ON_CREATE=abort()", "load", "died of SIGABRT in PJRT_Client_Create"),
    ],
)
def test_a_client_that_cannot_be_made_is_a_no(doctor, macro: str, what: str, said: str) -> None:
    steps = {step[0]: step for step in doctor("", macro)}
    assert steps[what][1] is False
    assert said in steps[what][2]
    assert steps[what][3]


def test_libraries_that_are_nowhere_are_a_no(doctor) -> None:
    steps = {step[0]: step for step in doctor(PRELOAD)}
    assert steps["preload"][1:] == (
        False,
        "not found: libcudnn.so.99, libmore.so",
        "pip install 'pjrt-hub[cuda]'",
    )
    assert steps["client"][1] is True


def test_a_library_of_the_system_is_found_once(doctor, tmp_path: Path) -> None:
    source = "void nothing(void) {}"
    folder = compile_library(source, tmp_path / "lib" / "libcudnn.so.99.0.96").parent
    (folder / "libcudnn.so.99").symlink_to("libcudnn.so.99.0.96")
    opened = 'ON_LOAD=extern void *dlopen(const char *, int); dlopen("libcudnn.so.99", 2)'
    steps = {step[0]: step for step in doctor(PRELOAD, opened, LD_LIBRARY_PATH=str(folder))}
    assert "libcudnn.so.99.0.96" in steps["mapped"][2]
    assert steps["preload"][2] == ("not found: libmore.so; found by the loader: libcudnn.so.99")
