"""A real plugin in this process, the CPU's by default, and children for what may crash one."""

from __future__ import annotations

import time
from pathlib import Path

import finished
import numpy as np
import pytest
from children import HAS_TILES, IS_CPU, PLATFORM, PROGRAMS, SLOW, command, device_count
from packaging.specifiers import SpecifierSet

import pjrt_hub


def pytest_runtest_setup(item):
    """Skip what the installed numpy cannot do itself, and what is about another plugin."""
    for mark in item.iter_markers("cpu"):
        if not IS_CPU:
            pytest.skip(f"about the CPU plugin: {mark.args[0]}")
    if HAS_TILES and item.get_closest_marker("rows"):
        pytest.skip("about rows, and the device has tiles")
    for mark in item.iter_markers("devices"):
        device_count(mark.args[0])
    for mark in item.iter_markers("numpy"):
        if np.lib.NumpyVersion(np.__version__) < f"{mark.args[0]}.0":
            pytest.skip(f"numpy {np.__version__} is older than {mark.args[0]}")


@pytest.fixture(scope="session")
def plugin(clean_env):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_HUB_CACHE", clean_env["PJRT_HUB_CACHE"])
        return pjrt_hub.load(PLATFORM, offline=True)


@pytest.fixture(autouse=True)
def _is_about_this_build(request):
    """Skip what is about other generations of the plugin."""
    for mark in request.node.iter_markers("api"):
        version = request.getfixturevalue("plugin").api_version
        builds, what = mark.args
        if str(version) not in SpecifierSet(builds):
            pytest.skip(f"about PJRT API {builds}, the plugin has {version}: {what}")


@pytest.fixture(scope="session")
def client(plugin):
    """A client of one device, shared: whoever closes something makes its own."""
    with plugin.client() as client:
        yield client


@pytest.fixture(scope="session")
def pair(plugin):
    """A client of two devices, shared."""
    with plugin.client(device_count(2)) as client:
        yield client


@pytest.fixture(scope="session")
def eight(plugin):
    """A client of eight devices, shared."""
    with plugin.client(device_count(8)) as client:
        yield client


@pytest.fixture
def own(plugin):
    """A client of one device for this test alone."""
    with plugin.client() as client:
        yield client


@pytest.fixture(scope="session")
def program():
    """Give the path of one of the small programs."""
    return lambda name: PROGRAMS / f"{name}.mlir"


@pytest.fixture(scope="session")
def executables(client, program):
    """Compile the small programs, each once."""
    compiled = {}

    def get(name):
        if name not in compiled:
            compiled[name] = client.compile(program(name))
        return compiled[name]

    return get


@pytest.fixture
def vector(client):
    """Put eight float32 numbers, from 0 by default."""
    return lambda start=0: client.buffer_from_host(np.arange(start, start + 8, dtype=np.float32))


@pytest.fixture(scope="session")
def slowly(client):
    """Start work in the background and give its result, the identity, still pending."""
    executable = client.compile(SLOW)
    identity = client.buffer_from_host(np.eye(256, dtype=np.float32))
    return lambda rounds=500: executable(identity, client.buffer_from_host(np.int32(rounds)))


@pytest.fixture(scope="session")
def child(clean_env):
    """Call a function of a file of tests in a process of its own, and give its output.

    The function is given a client, unless `prepared` is false, and the arguments, values that
    `repr` tells. The process must end with `status`, by itself, in time, and without a word on
    stderr.
    """

    def child(function, *arguments, status=0, stderr="", timeout=120, prepared=True, **env):
        words = command(function, *arguments, prepared=prepared)
        own = {**clean_env, "PYTHONFAULTHANDLER": "1", **env}
        done = finished.run(*words, seconds=timeout, env=own)
        assert (done.returncode, done.stderr) == (status, stderr), done.stdout + done.stderr
        return done.stdout

    child.env = clean_env
    return child


@pytest.fixture(scope="session")
def script(clean_env):
    """Run a module of this folder as a script, and give the process that is done."""

    def script(*words):
        return finished.python("-m", *words, seconds=200, cwd=Path(__file__).parent, env=clean_env)

    return script


@pytest.fixture
def kept():
    """A compile cache in memory."""
    return Kept()


class Kept(dict):
    """What `compile(cache=...)` asks for, as a dict."""

    put = dict.__setitem__


@pytest.fixture(scope="session")
def wait_until():
    """Wait for something that another thread does, at most a minute."""

    def wait_until(condition):
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it did not happen within a minute"
            time.sleep(0.005)

    return wait_until
