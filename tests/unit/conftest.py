"""Fixtures of the unit tests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import toys as toy_wheels
from fetching import FILE, WHEEL, Slept
from hypothesis import HealthCheck, settings
from loopback import Loopback
from trees import Site

from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Artifact
from pjrt_hub.finding.store.pins import Pins
from pjrt_hub.finding.store.transfer import installers

# Examples have no deadline, because no test is about their time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def server():
    """A server that offers the wheel of the toy plugin."""
    with Loopback() as server:
        server.file(FILE, WHEEL)
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The wheel of a module, which its PIN pins, as a file."""
    path: Path = tmp_path / request.module.PIN.file_name
    path.write_bytes(request.module.WHEEL)
    return path


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Give this process no index, no mirror, and a cache of its own."""
    for name in [name for name in os.environ if name.startswith(("PJRT_", "PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    given = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    for name, value in {**given, "PJRT_HUB_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    # pip would take a second to report that it has no index.
    monkeypatch.setattr(installers, "read_sources", installers.read_mirror_sources)
    return monkeypatch


@pytest.fixture
def slept() -> Slept:
    return Slept()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a self-signed certificate for the loopback address."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> toy_wheels.Toys:
    return toy_wheels.build(tmp_path_factory.mktemp("made"))


@pytest.fixture
def pin(tmp_path, monkeypatch):
    """Put a lock file with these rows into effect."""

    def write(*rows: Artifact) -> None:
        Pins(tmp_path / "named.lock", (), (), rows).write()
        monkeypatch.setenv("PJRT_HUB_LOCK", str(tmp_path / "named.lock"))

    return write


@pytest.fixture
def toys(made, tmp_path, alone, pin) -> toy_wheels.Toys:
    """The wheels as the only source of downloads, with an empty cache."""
    mirror = shutil.copytree(made.wheels, tmp_path / "mirror")
    alone.setenv("PJRT_HUB_MIRRORS", str(mirror))
    pin(made.row)
    return toy_wheels.Toys(mirror, made.row)
