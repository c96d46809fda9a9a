"""safetensors with the real plugin: from the mapped file to devices, and back to a file."""

import numpy as np
import pytest
from children import device_count
from elements import KNOWN, UNKNOWN

import pjrt_hub.door.client
from pjrt_hub.errors import UnsupportedByPluginError
from pjrt_hub.frameworks import safetensors
from pjrt_hub.running.array import dtypes

#: The dtypes that the safetensors format has.
HELD = {element.numpy for element in safetensors._ELEMENTS.values()}


def values_of(name, shape=(4, 8)):
    """An array of mostly different elements."""
    element = dtypes.of_numpy(name)
    dtype = dtypes.numpy_dtype(element.code)
    top = 2 if name == "bool" else 2 ** min(element.bits, 8)
    count = int(np.prod(shape)) * dtype.itemsize
    return (np.arange(count) % top).astype(np.uint8).view(dtype).reshape(shape)


def held(params):
    """The parameters whose types the format has."""
    return [param for param in params if param.values[0].numpy in HELD]


@pytest.mark.parametrize("element", held(KNOWN))
def test_every_dtype_to_the_device_and_back(client, tmp_path, element):
    values = values_of(element.numpy)
    path = safetensors.save_file({"t": values}, tmp_path / "a.safetensors")
    buffer = safetensors.load_file(path, client)["t"]
    assert (buffer.dtype, buffer.shape) == (values.dtype, values.shape)
    assert buffer.to_numpy().tobytes() == values.tobytes()
    again = safetensors.save_file({"t": buffer}, tmp_path / "b.safetensors")
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("element", held(UNKNOWN))
def test_what_the_plugin_does_not_know(client, tmp_path, element):
    values = values_of(element.numpy)
    path = safetensors.save_file({"t": values}, tmp_path / "a.safetensors")
    assert safetensors.open_file(path)["t"].tobytes() == values.tobytes()
    with pytest.raises(UnsupportedByPluginError, match=r"came with PJRT API 0\.114"):
        safetensors.load_file(path, client)


def test_shards_go_straight_to_eight_devices(plugin, tmp_path):
    weights = {
        f"layer.{n}.{part}": np.full((16, 16), n, np.float32) for n in range(8) for part in "wb"
    }
    index = safetensors.save_file(weights, tmp_path / "m.safetensors", max_shard_nbytes=2048)
    assert len(list(tmp_path.glob("m-*.safetensors"))) == 8
    with plugin.client(device_count(8)) as client:
        buffers = safetensors.load_file(
            index, client, device=lambda name: client.devices[int(name.split(".")[1])]
        )
        assert list(buffers) == list(weights)
        for name, buffer in buffers.items():
            assert buffer.device is client.devices[int(name.split(".")[1])]
            assert np.array_equal(buffer, weights[name])


@pytest.mark.parametrize("by_device", [False, True])
def test_without_a_client_it_is_that_of_the_device_or_the_first_one(
    client, tmp_path, monkeypatch, by_device
):
    monkeypatch.setattr(pjrt_hub.door.client, "client", lambda: client)
    path = safetensors.save_file({"t": np.arange(4)}, tmp_path / "a.safetensors")
    device = client.devices[0] if by_device else None
    buffer = safetensors.load_file(path, device=device)["t"]
    assert (buffer.client is client, buffer.tolist()) == (True, [0, 1, 2, 3])


def test_a_device_of_another_client_is_refused(client, pair, tmp_path):
    path = safetensors.save_file({"t": np.ones(4)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="another client"):
        safetensors.load_file(path, client, device=lambda _: pair.devices[1])
