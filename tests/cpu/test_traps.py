"""Nothing runs of a working directory that is full of modules, programs and plugins to look for."""

import subprocess
import sys
import textwrap
from pathlib import Path

import finished
import pytest

pytestmark = pytest.mark.cpu("traps in place of it")

HELLO = str(Path(__file__).parents[2] / "examples" / "hello.mlir")
SCRIPT = [str(Path(sys.executable).with_name("pjrt-hub"))]
MODULE = [sys.executable, "-P", "-m", "pjrt_hub.cli"]
ARGS = ["--arg", "f32[8]:1", "--arg", "f32[8]:2"]

MODULES = ["ast", "certifi", "cffi", "click", "ctypes", "html", "httpx", "importlib_metadata"]
MODULES += ["jax", "jaxlib", "json", "keyring", "logging", "ml_dtypes", "netrc", "numpy"]
MODULES += ["packaging", "pip", "platformdirs", "selectors", "shutil", "sitecustomize"]
MODULES += ["socket", "subprocess", "tempfile", "typing", "usercustomize"]
MODULES += ["lammps_jax_pjrt_cpu", "xla_cpu_pjrt"]
PACKAGES = ["pjrt_hub", "pjrt_hub/kit", "pjrt_hub/kit/authoring", "pjrt_hub/running"]
PACKAGES += ["pjrt_hub/running/capi", "pjrt_hub/running/sandbox", "jax_plugins"]
PACKAGES += ["pjrt_plugins/evil"]
PROGRAMS = ["cc", "gcc", "git", "keyring", "ldconfig", "pip", "pip3", "python", "python3", "uv"]


@pytest.fixture
def sprung(tmp_path):
    """The file in which each trap writes its name."""
    return tmp_path / "sprung"


@pytest.fixture
def folder(tmp_path, sprung):
    folder = tmp_path / "traps"
    folder.mkdir()
    trap = "open({!r}, 'a').write({!r} + '\\n')\n".format
    for name in MODULES:
        (folder / f"{name}.py").write_text(trap(str(sprung), name))
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(trap(str(sprung), name))
    inner = "cli running/sandbox/probe running/sandbox/watch kit/authoring/interpreter"
    for name in inner.split():
        (folder / "pjrt_hub" / f"{name}.py").write_text(trap(str(sprung), name))
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {sprung}\nexit 1\n")
        (folder / name).chmod(0o755)
    (folder / "pjrt_plugins" / "evil" / "pjrt_plugin.toml").write_text(
        'schema = 1\n[plugin]\nname = "evil"\nplatform = "cpu"\npriority = 9999\n'
        '[library]\nrelative = "libevil.so"\n'
    )
    info = folder / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pjrt_plugins]\nevil = pjrt_plugins.evil\n")
    return folder


@pytest.fixture
def run(folder, sprung, clean_env, tmp_path):
    """Run a command among the traps, and see that none was sprung."""
    env = {**clean_env, "PJRT_HUB_CACHE": str(tmp_path / "cache")}
    env["PATH"] = f":{env['PATH']}:.:"

    def run(*command, status=0, **more):
        done = finished.run(*command, cwd=folder, env={**env, **more}, stdin=subprocess.DEVNULL)
        assert not sprung.exists(), (command, sprung.read_text(), done.stderr)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_traps_spring(folder, sprung):
    subprocess.run([sys.executable, "-c", "import numpy"], cwd=folder, check=True, timeout=60)
    subprocess.run(["./uv"], cwd=folder, check=False, timeout=60)
    assert sprung.read_text().split() == ["numpy", "uv"]


COMMANDS = [
    ("list",),
    ("list", "--json"),
    ("targets",),
    ("doctor", "cpu"),
    ("run", HELLO, "--platform", "cpu", *ARGS),
    ("trace", "--validate", "--", *SCRIPT, "run", HELLO, "--platform", "cpu", *ARGS),
    ("check", "cpu", "--check", "plugin.version", "--jobs", "1"),
    ("cache", "list"),
    ("cache", "verify"),
    ("cache", "prune"),
    ("lock", "cpu"),
    ("new", "made", "--no-check"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize("start", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.slow
def test_no_command_runs_what_lies_here(run, start, command):
    run(*start, *command)


@pytest.mark.slow
def test_a_library_is_packed_and_linted_among_traps(run, plugin, folder):
    run(*SCRIPT, "pack", plugin.path, "--name", "packed")
    [wheel] = (folder / "dist").glob("*.whl")
    run(*SCRIPT, "lint", wheel)


def test_the_installers_are_asked_and_not_those_of_this_folder(run):
    code = """
        import os
        from pjrt_hub.finding.store.transfer import installers
        from pjrt_hub.finding.store.transfer.credentials import Credentials
        print(installers.read_sources(os.environ).indexes != ())
        print(Credentials(os.environ, "subprocess").ask("https://host.example/"))
    """
    said = run(sys.executable, "-P", "-c", textwrap.dedent(code), PIP_NO_INDEX="")
    assert said == "True\nNone\n"


def test_a_library_is_built_of_a_module_among_traps(run, folder):
    (folder / "mine.py").write_text(
        "from pjrt_hub.kit.authoring import Backend\nclass Mine(Backend): platform_name = 'mine'\n"
    )
    run(*SCRIPT, "build", "mine:Mine", "-o", "libmine.so")


def test_the_main_calls_run_nothing_of_this_folder(run, tmp_path):
    script = tmp_path / "script.py"
    code = """
        import contextlib
        import pjrt_hub.errors
        from pjrt_hub.kit.authoring.reference import Reference

        with pjrt_hub.capture_native_logs(), pjrt_hub.client("cpu", offline=True) as client:
            print(client.platform_name)
        print("evil" in {each.name for each in pjrt_hub.plugins()})
        with contextlib.suppress(pjrt_hub.errors.PjrtHubError):  # it may lack jaxlib
            Reference().attributes
    """
    script.write_text(textwrap.dedent(code))
    assert run(sys.executable, script) == "cpu\nFalse\n"
