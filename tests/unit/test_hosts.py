"""What `pjrt-hub env` tells to hosts that no test runs."""

from pathlib import Path

import pytest

from pjrt_hub.errors import FrameworkError
from pjrt_hub.finding.contract.manifest import EnvironmentDefault, Manifest
from pjrt_hub.finding.discovery.source import Candidate
from pjrt_hub.frameworks import hosts

PATH = Path('/opt/a "b"/libtoy.so')
QUOTED = r'"/opt/a \"b\"/libtoy.so"'


def tell(host, name="toy", platform="toy"):
    environment = (EnvironmentDefault("TOY_LOG", "3"),)
    manifest = Manifest(name, platform, environment=environment)
    told = hosts.tell_of(host, Candidate(manifest, "cached", ()), PATH)
    return told.variables, told.lines


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(hosts, "find_spec", lambda _: None)


def test_some_are_told_by_variables():
    library = {"PJRT_DEVICE": "LIBRARY", "PJRT_LIBRARY_PATH": str(PATH)}
    assert tell("torch_xla") == ({"TOY_LOG": "3", **library}, ())
    assert tell("go-xla") == ({"TOY_LOG": "3", "GOMLX_BACKEND": f"xla:{PATH}"}, ())
    assert tell("r-pjrt", "cuda13", "cuda") == (
        {"TOY_LOG": "3", "PJRT_PLATFORM": "cuda", "PJRT_PLUGIN_PATH_CUDA": str(PATH)},
        (),
    )


def test_others_by_lines_in_their_own_language():
    [_, client] = tell("exla")[1]
    assert client == (f'  toy: [platform: :pjrt_plugin, device_type: "toy", plugin_path: {QUOTED}]')
    assert tell("zml")[1] == (f"const api = try pjrt.Api.loadFrom({QUOTED});",)
    assert tell("lammps")[1] == (f"variable pjrt string {QUOTED}", "pair_style jax/kk ${pjrt}")
    assert tell("openmm")[1] == (f"force.setPjrtPluginPath({QUOTED})",)


def test_those_beside_pjrt_hub_get_the_plugins_variables_from_it(monkeypatch):
    monkeypatch.setattr(hosts, "find_spec", lambda name: name)
    assert tell("torch_tpu") == ({"PJRT_HUB_TORCH": "toy"}, ())
    assert tell("torch_xla") == ({"PJRT_DEVICE": "PJRTHUB", "PJRT_HUB_TORCH_XLA": "toy"}, ())
    assert tell("jax") == ({"PJRT_HUB_JAX": "hubtoy=toy", "JAX_PLATFORMS": "hubtoy"}, ())
    assert tell("pypjrt") == ({"TOY_LOG": "3", "PYPJRT_PLUGIN": str(PATH)}, ())


def test_a_host_that_cannot_use_the_plugin_says_why():
    with pytest.raises(FrameworkError, match="drives toy: it knows cpu, cuda, metal only"):
        tell("r-pjrt")
    with pytest.raises(FrameworkError, match="only from a pjrt-hub in its own environment"):
        tell("torch_tpu")
