"""torch_xla on the plugin that pjrt-hub found for it: programs, settings, errors, ends."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from signal import SIGABRT

import pytest

if find_spec("torch_xla") is None:
    pytest.fail("torch_xla is missing: install the group torch_xla", pytrace=False)

BY_NAME = """
import torch, torch_xla
import pjrt_hub.torch_xla
name = pjrt_hub.torch_xla.register("cpu", options={"cpu_device_count": 2})
"""
ON_EVERY_DEVICE = """
print(name, torch_xla.runtime.device_type(), len(torch_xla.devices()))
for device in torch_xla.devices():
    x = torch.arange(4.0, device=device)
    print(device, (x * x + device.index).cpu().tolist())
"""
LINEAR_ALGEBRA = """
torch.manual_seed(0)
here, device = torch.randn(6, 6), torch_xla.device()
positive = here @ here.T + 6 * torch.eye(6)
for function in (torch.linalg.cholesky, torch.linalg.inv, lambda a: torch.linalg.qr(a).R.abs()):
    torch.testing.assert_close(function(positive.to(device)).cpu(), function(positive))
for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool):
    there = positive.to(dtype).to(device)
    assert there.dtype == dtype and torch.equal(there.cpu(), positive.to(dtype)), dtype
print("as torch has it")
"""
TRAINING = """
def train(device):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1)
    ).to(device)
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(2)).to(device)
    y = x.square().sum(1, keepdim=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if device != "cpu":
            torch_xla.sync()
        losses.append(loss.item())
    return losses

ours, torchs = train(torch_xla.device()), train("cpu")
assert torchs[-1] < 0.8 * torchs[0], torchs
torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-4)
print("the same losses")
"""


@pytest.mark.timeout(300)
def test_a_registered_plugin_computes_and_trains_as_torch_does(python):
    done = python(BY_NAME + ON_EVERY_DEVICE + LINEAR_ALGEBRA + TRAINING)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "HUBCPU HUBCPU 2",
        "xla:0 [0.0, 1.0, 4.0, 9.0]",
        "xla:1 [1.0, 2.0, 5.0, 10.0]",
        "as torch has it",
        "the same losses",
    ]


ASKED = """
import torch, torch_xla
from torch_xla.experimental import plugins
name = type(plugins.default()).__name__
"""


@pytest.mark.timeout(300)
def test_the_environment_chooses_without_a_line_of_code(python):
    wish = {"PJRT_DEVICE": "PJRTHUB", "PJRT_HUB_TORCH_XLA": "cpu;cpu_device_count=3"}
    done = python(ASKED + ON_EVERY_DEVICE, **wish)
    assert done.returncode == 0, done.stderr
    first, *devices = done.stdout.splitlines()
    assert first == "AskedPlugin PJRTHUB 3"
    assert devices[2] == "xla:2 [2.0, 3.0, 6.0, 11.0]"


@pytest.mark.timeout(300)
def test_an_import_changes_nothing_for_who_asked_for_nothing(python):
    done = python(
        "import sys, torch_xla\n"
        "print(torch_xla.runtime.device_type(), torch_xla._XLAC._xla_runtime_is_initialized())\n"
        "print([m for m in ('pjrt_hub.door.client', 'pjrt_hub.running.capi', 'httpx', 'cffi')"
        " if m in sys.modules])\n"
        "import torch; print((torch.ones(2, device='xla') + 1).cpu().tolist())\n"
        "import os; print('forward.so' in open(f'/proc/{os.getpid()}/maps').read())"
    )
    assert done.stdout.splitlines() == ["CPU False", "[]", "[2.0, 2.0]", "False"], done.stderr


@pytest.mark.timeout(600)
def test_ten_processes_end_well(python):
    """Work is still under way as they end; the plugin is never unloaded and keeps its threads."""
    script = BY_NAME + (
        "x = torch.randn(256, 256, device=torch_xla.device())\n"
        "for _ in range(20):\n    x = torch.tanh(x @ x)\n"
        "torch_xla.sync()\nprint('done')"
    )
    for _ in range(10):
        done = python(script)
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


LATE = "import logging\nlogging.basicConfig(level=logging.INFO)\n"


@pytest.mark.timeout(300)
def test_padding_is_said_and_nothing_of_the_plugin_is_written(python):
    script = (
        LATE
        + BY_NAME
        + """
import ctypes, pjrt_hub
plugin = pjrt_hub.load("cpu")
before = ctypes.string_at(plugin.api.address, 900)
print((torch.ones(2, device="xla") + 1).cpu().tolist())
print(before == ctypes.string_at(plugin.api.address, 900))
"""
    )
    done = python(script)
    assert done.stdout == "[2.0, 2.0]\nTrue\n", done.stderr
    said = [line for line in done.stderr.splitlines() if "they are padded" in line]
    assert len(said) == 1
    assert "built with PJRT API 0.7" in said[0]
    assert "smaller structs than cpu, 0.81, insists on" in said[0]


USE = "\nimport torch; print((torch.ones(2, device='xla') + 1).cpu().tolist())"
REGISTER = "import torch_xla, pjrt_hub.torch_xla\npjrt_hub.torch_xla.register("
WRONG = {
    "no such plugin": ("'warp')" + USE, {}, "PluginNotFoundError: no plugin for 'warp'"),
    "no such option": (
        "'cpu', options={'devices': 2})" + USE,
        {},
        "ValueError: cpu has no create option 'devices'; it has cpu_device_count",
    ),
    "wrong type": (
        "'cpu', options={'cpu_device_count': '2'})" + USE,
        {},
        "TypeError: option 'cpu_device_count' is of type int64, found '2' of type str",
    ),
    "layers without padding": (
        "'cpu')" + USE,
        {"PJRT_HUB_LAYERS": "validate"},
        "hint: PJRT_HUB_LAYERS=validate,pad",
    ),
    "two plugins": (
        "'cpu')\nfrom torch_xla.experimental import plugins\n"
        "plugins.default().library_path()\npjrt_hub.torch_xla.register({library!r}, 'other')" + USE,
        {},
        "cannot be handed on: another plugin was",
    ),
    "too late": (
        "'cpu')" + USE + "\npjrt_hub.torch_xla.register('cpu', 'other')",
        {},
        "FrameworkError: cpu cannot be registered: torch_xla has made its client already",
    ),
    "a name with an underscore": ("'cpu', 'my_cpu')", {}, "'my_cpu' is not a device type"),
    "a taken name": ("'cpu', 'tpu')", {}, "cannot be called TPU in torch_xla: that is built into"),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_an_error(python, case, library, tmp_path):
    code, env, message = WRONG[case]
    if "{library!r}" in code:
        copied = copy_of_the_plugin(library, tmp_path)
        code = code.replace("{library!r}", repr(str(copied)))
    done = python(REGISTER + code, **env)
    assert message in done.stderr
    # As torch_xla 2.8 ends, it asks for its client again, and aborts if there is still none.
    ends = {1, -SIGABRT} if version("torch_xla").startswith("2.8.") else {1}
    assert done.returncode in ends, (done.returncode, done.stderr)


def copy_of_the_plugin(library, folder):
    """A copy of the library: another file is another plugin."""
    import shutil

    return shutil.copy(library, folder / "pjrt_plugin_other.so")
