"""The real XLA CPU plugin, and artifacts that `make_artifacts.py` wrote."""

from pathlib import Path

import finished
import pytest
from children import command
from packaging.version import Version

import pjrt_hub

ARTIFACTS = Path(__file__).parent / "artifacts"
#: Releases of JAX besides 0.10.2; 0.6.2 wrote "nested-0.6.2.jaxexport", for example.
RELEASES = ("0.4.33", "0.4.38", "0.6.2", "0.8.3", "0.11.2", "0.12.0.1")


@pytest.fixture(scope="session", autouse=True)
def own_store(clean_env):
    """Keep plugins that the user has fetched out of all tests, whichever test runs first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PJRT_HUB_CACHE", clean_env["PJRT_HUB_CACHE"])
        yield


@pytest.fixture(scope="session")
def client(own_store):
    plugin = pjrt_hub.load("cpu", offline=True)
    with plugin.client() as client:
        yield client


@pytest.fixture(scope="session")
def reads(row):
    """`reads("1.14.0")` says whether the plugin's own StableHLO is that new or newer."""
    return lambda version: Version(row.stablehlo) >= Version(version)


@pytest.fixture
def child(clean_env):
    """Call a function in a process of its own, and return what it prints; `in_child` uses this."""

    def child(function, *arguments, prepared=False, **env):
        words = command(function, *arguments, prepared=prepared)
        done = finished.run(*words, env={**clean_env, **env})
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    return child


@pytest.fixture
def path():
    return lambda name: ARTIFACTS / f"{name}.jaxexport"


@pytest.fixture
def load(client, path):
    return lambda name, **options: pjrt_hub.load_exported(path(name), client=client, **options)
