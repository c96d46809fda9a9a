"""How a plugin becomes PyTorch's device, in processes of their own, and how processes end."""

from __future__ import annotations

import signal

import pytest

SUM = "import torch; print(torch.ones(3, device='tpu').sum().item(), torch.empty(0).device)"
REGISTER = "import pjrt_hub.torch; pjrt_hub.torch.register('cpu'); "


@pytest.fixture(scope="session", autouse=True)
def device():
    """Nothing is registered in this process."""


def test_a_variable_registers_it(python):
    done = python(SUM, PJRT_HUB_TORCH="cpu;cpu_device_count=1")
    assert done.stdout == "3.0 cpu\n", done.stderr
    assert done.stderr.count("tpu") == 0  # What TorchTPU tells of itself is a record of the log.


@pytest.mark.parametrize("first", ["import torch; ", ""], ids=["torch first", "pjrt_hub first"])
def test_a_program_registers_it(python, first):
    assert python(first + REGISTER + SUM).stdout == "3.0 cpu\n"


def test_nothing_changes_for_a_program_without_it(python):
    loaded = "'pjrt_hub.frameworks.torch.framework' in sys.modules"
    code = f"import torch, sys; print(torch.ones(3).sum().item(), {loaded})"
    assert python(code).stdout == "3.0 False\n"


REFUSED = {
    "another plugin": (
        REGISTER + "pjrt_hub.torch.register('cpu')",
        "FrameworkError: cpu cannot be registered: TorchTPU has another plugin already",
    ),
    "no plugin": (
        "import pjrt_hub.torch; pjrt_hub.torch.register('nothing')",
        "PluginNotFoundError: no plugin for 'nothing'",
    ),
    "an option": (
        "import pjrt_hub.torch; pjrt_hub.torch.register('cpu', {'cpu_device_count': 'many'})",
        "TypeError: option 'cpu_device_count' is of type int64, found 'many' of type str",
    ),
    "several processes": (
        REGISTER + "import torch; torch.distributed.init_process_group("
        "'tpu_dist', init_method='file://{store}', world_size=2, rank=0)",
        "FrameworkError: torch.distributed has 2 processes",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(python, what, tmp_path):
    code, message = REFUSED[what]
    done = python(code.replace("{store}", str(tmp_path / "store")))
    assert done.returncode == 1
    assert message in done.stderr


def test_a_variable_that_asks_for_nothing_that_is_there(python):
    done = python(SUM, PJRT_HUB_TORCH="nothing")
    assert done.returncode == 1
    assert "no plugin for 'nothing'" in done.stderr


def test_one_process_group_of_one_process(python):
    code = """
import pjrt_hub.torch, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
device = pjrt_hub.torch.register("cpu", {"cpu_device_count": 1})
torch.distributed.init_process_group("tpu_dist")
x = torch.arange(4.0, device=device)
torch.distributed.all_reduce(x)
print(x.tolist())
print((2 * distribute_tensor(x, init_device_mesh(device, (1,)), [Shard(0)])).full_tensor().tolist())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).to(device))
model(x).sum().backward()
print(model.module.weight.grad.tolist())
"""
    variables = {
        "TORCH_TPU_TOPOLOGY": "1,1,1",
        "TORCH_TPU_SLICEBUILDER_ADDRESSES": "localhost:8471",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29511",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }
    done = python(code, **variables)
    wanted = "[0.0, 1.0, 2.0, 3.0]\n[0.0, 2.0, 4.0, 6.0]\n[[0.0, 1.0, 2.0, 3.0]]\n"
    assert done.stdout == wanted, done.stderr


#: How a process ends -> its code after the first tensors, and its status.
ENDS = {
    "an exception": ("raise ValueError", 1),
    "sys.exit": ("import sys; sys.exit(3)", 3),
    "Ctrl-C": (
        "import os, signal, threading\n"
        "threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "while True: x = (x @ x).tanh()",
        -signal.SIGINT,
    ),
    "a daemon thread": (
        "import threading, time\n"
        "def work():\n  while True: (x @ x).sum().item()\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.1)",
        0,
    ),
    "a fork": ("import os; os._exit(0) if os.fork() == 0 else os.wait(); x.sum().item()", 0),
    "a fork that ends as Python does": ("import os, sys; sys.exit(os.fork() and os.wait()[1])", 0),
    "os._exit": ("import os; os._exit(5)", 5),
    "live tensors": ("import builtins; builtins.kept = [x, x @ x]", 0),
}


@pytest.mark.parametrize("how", ENDS)
def test_how_a_process_ends(python, how):
    code, status = ENDS[how]
    x = "import torch; x = torch.eye(64, device='tpu'); (x @ x).sum().item()"
    done = python("\n".join((REGISTER, x, code)))
    assert done.returncode == status, done.stderr
