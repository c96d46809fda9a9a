"""A user's first steps: no plugin, an empty cache, and files that are not libraries."""

from __future__ import annotations

import json
import os
import shutil
import sysconfig
import textwrap
from pathlib import Path

import finished
import pytest

import pjrt_hub

pytestmark = pytest.mark.cpu("fetches it")

PLUGINS = (
    "xla_plugins",
    "xla_cpu_pjrt",
    "lammps_jax_pjrt_cpu",
    "fastatomstruct_xla_cpu",
    "jax_plugins",
    "jax_cuda",
    "libtpu",
)
REPORT = """
import json, pjrt_hub
def report(call):
    try:
        answer = {"value": str(call())}
    except Exception as exc:
        answer = {"error": type(exc).__name__, "text": str(exc), "hint": getattr(exc, "hint", None)}
    print(json.dumps(answer))
"""
RUN = """
import numpy as np
client = pjrt_hub.client("cpu"{more})
ones = client.buffer_from_host(np.ones(8, np.float32))
print(json.dumps(client.compile({add!r})(ones, ones).tolist()))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A folder that links to all installed packages except plugins."""
    packages = tmp_path_factory.mktemp("packages")
    folders = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    for folder in folders:
        for item in folder.iterdir():
            if not item.name.startswith(PLUGINS) and item.suffix != ".pth":
                (packages / item.name).symlink_to(item)
    ours = Path(pjrt_hub.__file__).parents[1]  # a checkout or one of `folders`
    return os.pathsep.join(map(str, [packages] if ours in folders else [packages, ours]))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def start(bare, clean_env):
    """Run Python code where no plugin is installed, and return the finished process."""

    def start(code, cache, **env):
        own = {**clean_env, "PYTHONPATH": bare, "PJRT_HUB_CACHE": str(cache), **env}
        return finished.python("-S", "-P", "-c", REPORT + textwrap.dedent(code), env=own)

    return start


@pytest.fixture
def run(start, cache):
    """Like `start`, with an empty cache; the process must succeed."""

    def run(code, cache=cache, **env):
        done = start(code, cache, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def answer(done):
    return json.loads(done.stdout.splitlines()[-1])


def test_no_plugin_is_visible(run):
    done = run(
        "import importlib.util as u\nprint(u.find_spec('xla_plugins'), u.find_spec('numpy'))"
    )
    assert done.stdout.startswith("None ModuleSpec")


def test_offline_with_an_empty_cache(run, cache):
    done = run("report(lambda: pjrt_hub.client('cpu', offline=True))")
    said = answer(done)
    assert said["error"] == "OfflineError"
    assert "lammps-jax-pjrt-cpu" in said["text"]
    assert said["hint"]
    assert done.stderr == ""
    assert not cache.exists()


def test_debug_says_why(run):
    done = run("report(lambda: pjrt_hub.client('cpu', offline=True))", PJRT_HUB_DEBUG="1")
    lines = done.stderr.splitlines()
    assert lines[0].startswith("pjrt-hub: ")
    for name, reason in [
        ("cpu", "lammps-jax-pjrt-cpu 0.11.2"),
        ("metal", "not installed"),
        ("tpu", "PCI"),
    ]:
        assert any(name in line and reason in line for line in lines), done.stderr


@pytest.mark.parametrize(
    ("name", "meant"), [("cppu", "cpu"), ("cuda31", "cuda13"), ("tpuu", "tpu")]
)
def test_a_name_that_is_nearly_right(run, name, meant):
    said = answer(run(f"report(lambda: pjrt_hub.client({name!r}))"))
    assert said["error"] == "PluginNotFoundError"
    assert repr(name) in said["text"]
    assert f"did you mean {meant!r}" in said["text"]


@pytest.mark.parametrize("name", ["nonsense", "cpu cuda", "\u0441pu", "cpu\0", "a" * 100])
def test_a_name_that_nothing_is_called(run, name):
    said = answer(run(f"report(lambda: pjrt_hub.client({name!r}))"))
    assert said["error"] in ("PluginNotFoundError", "ValueError")
    assert len(said["text"]) < 5000


def test_a_library_by_its_path(run, library, program):
    code = f"""
    import numpy as np
    with pjrt_hub.load({str(library)!r}).client() as client:
        ones = client.buffer_from_host(np.ones(8, np.float32))
        print(json.dumps(client.compile({str(program("add"))!r})(ones, ones).tolist()))
    """
    assert answer(run(code)) == [2.0] * 8


@pytest.mark.parametrize("state", ["no directory", "a file", "unwritable"])
def test_a_cache_that_cannot_be_used(run, cache, state):
    if state == "a file":
        cache.write_text("")
    named = {"no directory": "/proc/absent", "a file": str(cache), "unwritable": "/sys"}[state]
    done = run("report(lambda: pjrt_hub.client('cpu', offline=True))", named)
    assert answer(done)["error"] in ("CacheError", "OfflineError")


@pytest.fixture(scope="module")
def fetched(start, program, tmp_path_factory):
    """The cache after the first use, and that first use."""
    cache = tmp_path_factory.mktemp("fetched") / "cache"
    return cache, start(RUN.format(more="", add=str(program("add"))), cache)


@pytest.mark.network
@pytest.mark.slow
class TestFetched:
    """Uses of a plugin that was fetched before."""

    def test_the_first_use_explains_itself(self, fetched):
        cache, done = fetched
        assert done.returncode == 0, done.stderr
        assert answer(done) == [2.0] * 8
        [line] = done.stderr.splitlines()
        assert line == (
            "pjrt-hub: no plugin for 'cpu' is installed; fetching lammps-jax-pjrt-cpu 0.11.2 "
            f"(62.7 MB) into {cache}"
        )

    def test_the_second_use_is_silent_and_needs_no_network(self, run, fetched, program):
        code = RUN.format(more=", offline=True", add=str(program("add")))
        done = run(code, fetched[0])
        assert answer(done) == [2.0] * 8
        assert done.stderr == ""

    @pytest.mark.parametrize("damage", ["a byte", "the end", "everything"])
    @pytest.mark.slow
    def test_a_damaged_entry_is_never_loaded(self, run, fetched, program, cache, damage):
        shutil.copytree(fetched[0], cache, symlinks=True)
        [path] = [each for each in cache.rglob("pjrt_c_api_cpu_plugin.so") if each.is_file()]
        path.chmod(0o644)
        with path.open("r+b") as file:
            if damage == "a byte":
                file.seek(100_000_000)
                byte = file.read(1)[0]
                file.seek(100_000_000)
                file.write(bytes([byte ^ 1]))
            else:
                file.truncate({"the end": 200_000_000, "everything": 0}[damage])
        done = run("report(lambda: pjrt_hub.client('cpu', offline=True))")
        assert answer(done)["error"] in ("OfflineError", "CacheError", "DigestMismatchError")
        done = run(RUN.format(more="", add=str(program("add"))))
        assert answer(done) == [2.0] * 8
        assert "fetching lammps-jax-pjrt-cpu" in done.stderr


WITHOUT_NETWORK = """
import sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"{event} {args}")
sys.addaudithook(refuse)
from pathlib import Path
"""


@pytest.mark.network
def test_a_bundle_needs_no_network(run, tmp_path, program):
    """The bundle is exported with access to an index, then imported and used without one."""
    bundle, there = tmp_path / "cpu.bundle", tmp_path / "there"
    export = "from pathlib import Path\nprint(pjrt_hub.export_bundle(Path({!r}), 'cpu'))"
    assert "lammps-jax-pjrt-cpu 0.11.2" in run(export.format(str(bundle))).stdout
    done = run(
        WITHOUT_NETWORK
        + f"print(pjrt_hub.import_bundle(Path({str(bundle)!r})))"
        + RUN.format(more="", add=str(program("add"))),
        cache=there,
    )
    assert answer(done) == [2.0] * 8
    assert "fetching" not in done.stderr
