"""Exported functions and plugins: versions, what they lack, the compile cache, and the choice."""

import sys

import numpy as np
import pytest

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.door import client as door
from pjrt_hub.frameworks.exported import load, obstacle, reading
from pjrt_hub.running.compilation import compilation

STAMP = b"StableHLO_v1.15.0"


def changed(path, old, new):
    function = reading.read(path)
    code = function.program.code
    assert old in code
    object.__setattr__(function.program, "code", code.replace(old, new))
    return function


@pytest.mark.parametrize("version", ["0.8.0", "2.0.0"])
def test_a_stablehlo_that_the_plugin_does_not_read(client, row, path, version):
    function = changed(path("add"), STAMP, f"StableHLO_v{version}".encode())
    with pytest.raises(errors.IncompatiblePluginError) as caught:
        pjrt_hub.load_exported(function, client=client)
    assert caught.value.need == f"StableHLO {version}"
    assert caught.value.have == f"StableHLO 0.9.0 to {row.stablehlo}"


@pytest.mark.parametrize(
    ("stamp", "error", "message"),
    [
        # Only the compiler can tell, because no list of ours has this operation.
        (b"StableHLO_v1.99.0", errors.NotRunnableError, "newer than StableHLO {} must be"),
        # Every plugin reads a version this old, so rewriting by jaxlib would not help.
        (b"StableHLO_v1.12.0", errors.UnknownError, "vhlo.xdd_v1 is misspelled or newer"),
    ],
)
def test_an_operation_that_the_plugin_does_not_know(client, row, path, stamp, error, message):
    made = changed(path("add"), b"\0add_v1", b"\0xdd_v1")
    object.__setattr__(made.program, "code", made.program.code.replace(STAMP, stamp))
    function = pjrt_hub.load_exported(made, client=client)
    with pytest.raises(error, match="xdd_v1") as caught:
        function.compile()
    assert message.format(row.stablehlo) in str(caught.value)


def test_operations_that_are_known_to_be_newer(path):
    function = reading.read(path("composite"))
    for newest, names in (((1, 13, 3), ("composite_v2",)), ((1, 14, 0), ()), ((1, 20, 0), ())):
        found = obstacle.newer_operations(function, {"stablehlo_current_version": newest})
        assert found == names


def add_ones(path):
    """Print the sum of two ones, how often it was compiled, and whether MLIR's text was read."""
    compile, count = compilation._compile, []
    compilation._compile = lambda *given: count.append(1) or compile(*given)
    with pjrt_hub.load_exported(path, platform="cpu", offline=True, cache=True) as add:
        print(add(np.ones(8, np.float32), np.ones(8, np.float32)).tolist()[0], len(count))
        print("pjrt_hub.running.program.mlir_text" in sys.modules)
        assert not add.client.closed
    assert add.client.closed  # the function had made it itself


def test_a_fresh_process_compiles_nothing_and_imports_no_reader_of_text(child, path, tmp_path):
    printed = [child(add_ones, path("add"), PJRT_HUB_CACHE=str(tmp_path / "c")) for _ in range(2)]
    assert printed[0].startswith("2.0 1\n")
    assert printed[1] == "2.0 0\nFalse\n"


def test_where_it_runs_if_nobody_says(path, monkeypatch):
    asked = []
    monkeypatch.setattr(load, "use_first", lambda name, use, **_: asked.append(name))
    for name in ("PJRT_HUB_PLATFORMS", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    function = reading.read(path("platforms"))
    load.client_for(function)
    load.client_for(function, "cpu")
    monkeypatch.setenv("PJRT_HUB_PLATFORMS", "cpu")
    load.client_for(function)
    assert asked == ["cuda,tpu,cpu", "cpu", None]


@pytest.fixture
def opened(monkeypatch):
    """A list of the platforms whose plugins would be fetched or opened."""
    opened = []

    def connect(choice, **_):
        opened.append(choice.candidate.platform)

    monkeypatch.setattr(load, "connect", connect)
    return opened


@pytest.fixture
def all_hardware(monkeypatch):
    """Let plugins be chosen as if the hardware of all of them were there."""
    choose = door.choose
    monkeypatch.setattr(door, "choose", lambda name, **how: choose(name, **how | {"to_run": False}))


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("name", ["add", "nested"])
def test_nothing_is_fetched_for_another_platform(path, opened, all_hardware, name, platform):
    with pytest.raises(errors.NotRunnableError, match="cannot be run on") as caught:
        pjrt_hub.load_exported(path(name), platform=platform)
    assert caught.value.reasons == (f"it was exported for cpu, and not for {platform}",)
    assert opened == []
    load.client_for(reading.read(path(name)), f"{platform},cpu")  # the first is passed over
    assert opened == ["cpu"]


def test_nothing_is_fetched_without_the_hardware(path, opened):
    with pytest.raises(errors.PluginNotFoundError, match="its hardware is absent") as caught:
        pjrt_hub.load_exported(path("add"), platform="tpu")
    assert "nothing was fetched" in caught.value.hint
    assert opened == []
