"""A checkout as strangers meet it: built by each of the usual tools, and before it is built."""

from __future__ import annotations

import json
import sys
import sysconfig
import zipfile

import pytest

pytestmark = pytest.mark.slow  # each test builds environments
HELLO = "tanh(a * b + 1) = [0.7616"


def test_python_started_in_one_that_is_not_built_says_what_to_do(call, environment, checkout):
    program = "import pjrt_hub; pjrt_hub.client('cpu')"
    said = call(environment / "python", "-c", program, cwd=checkout, status=1).stderr
    assert f"ImportError: pjrt_hub was imported from {checkout}, a checkout whose C part" in said
    assert said.count("Traceback") == 1
    assert said.count("File ") <= 2  # they are the program and the function that it called
    assert said.endswith(
        f"\n\nhint: start Python in another folder, or compile it: pip install -e {checkout}\n"
    )


def test_a_python_that_is_too_old_is_told_so(call, old_python, checkout, tmp_path):
    call(old_python, "-m", "venv", tmp_path / "old")
    said = call(tmp_path / "old" / "bin" / "pip", "install", checkout, status=1).stderr
    assert "requires a different Python" in said
    assert ">=3.11" in said
    assert "Traceback" not in said


@pytest.fixture
def compiler(tmp_path):
    """A compiler that is done at once: it makes empty files, and notes their names in `written`."""
    program = tmp_path / "cc"
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        f'echo "$2" >> {tmp_path}/written\n: > "$2"\n'
    )
    program.chmod(0o755)
    return program


def test_what_an_earlier_build_left_is_not_shipped(call, checkout, compiler, tmp_path):
    platform = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    gone = checkout / "build" / f"lib.{platform}" / "pjrt_hub" / "gone.py"
    gone.parent.mkdir(parents=True)
    gone.write_text("")
    folder = tmp_path / "wheels"
    build = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder)
    call(*build, checkout, CC=compiler)
    [wheel] = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "pjrt_hub/errors.py" in names
    assert "pjrt_hub/gone.py" not in names
    assert not gone.exists()  # the build emptied this folder, so it was the right one


#: The platform is set late, because Python's own modules would look for what that system has.
BUILD_ELSEWHERE = """
import sys, sysconfig, setuptools.build_meta as backend
sysconfig.get_config_vars()
sys.platform = sys.argv[1]
print(backend.build_wheel(sys.argv[2]))
"""


@pytest.mark.parametrize(("system", "platform"), [("macos", "darwin"), ("windows", "win32")])
def test_other_systems_need_no_compiler(call, checkout, tmp_path, system, platform):
    call(sys.executable, "-m", "pip", "install", "-q", "--target", tmp_path, "setuptools>=77")
    build = (sys.executable, "-c", BUILD_ELSEWHERE, platform, tmp_path)
    call(*build, cwd=checkout, CC="false", PYTHONPATH=tmp_path)
    [wheel] = tmp_path.glob("pjrt_hub-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith(".so")] == []
    installed = tmp_path / "installed"
    call(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", installed, wheel)
    child = checkout / "tests" / "unit" / "elsewhere.py"
    done = call(sys.executable, child, system, "imports", "list --json", PYTHONPATH=installed)
    [imports, listed] = json.loads(done.stdout)
    assert (imports[0], listed[0]) == (0, 0)
    assert str(installed) in imports[1]
    assert len(json.loads(listed[1])) > 10


def test_no_two_modules_write_one_file(call, checkout, compiler, tmp_path):
    """They are compiled at once, and one would link what the other is still writing."""
    call(sys.executable, "-m", "pip", "install", "-q", "--target", tmp_path, "setuptools>=77")
    build = (sys.executable, "setup.py", "-q", "build_ext")
    call(*build, cwd=checkout, CC=compiler, PYTHONPATH=tmp_path)
    written = (tmp_path / "written").read_text().split()
    assert sum(path.endswith("upcall.o") for path in written) == 2  # two modules use that source
    assert sorted(written) == sorted(set(written))


def test_uv_solves_every_group_and_runs_the_example(call, uv, checkout, tmp_path):
    env = {"PJRT_HUB_CACHE": tmp_path / "cache", "VIRTUAL_ENV": ""}
    call(uv, "lock", "--python", sys.executable, cwd=checkout, **env)
    said = call(
        *(uv, "run", "--no-dev", "--python", sys.executable, "python", "examples/hello.py"),
        cwd=checkout,
        **env,
    )
    assert HELLO in said.stdout


def test_pip_leaves_nothing_behind(call, install):
    programs = install(sys.executable)
    call(programs / "pip", "uninstall", "-q", "-y", "pjrt-hub")
    assert [*programs.parent.rglob("pjrt_*"), *programs.glob("pjrt*")] == []
