"""What the small program costs elsewhere: other ways from Python to a compiled computation."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from timeit import Timer
from typing import Any

import programs
import report
import rounds

ROUNDS, RUNS, CALLS = 11, 3, 2_000

CALL, NUMPY = "a call", "numpy → numpy"
#: A peer -> the package that it needs.
PEERS = {"jax": "jax", "pypjrt": "pypjrt", "onnxruntime": "onnxruntime", "torch": "torch"}
#: The C type of float32 in PJRT.
F32 = 11

Ways = dict[str, dict[str, Timer]]
BARS = (report.Bar("a call, times pypjrt's", "pjrt-hub", "÷ pypjrt", 0.1, 0.05),)


def measure() -> report.Section:
    """The median of several processes."""
    rows = rounds.median_of_runs(__file__, RUNS)
    absent = [name for name, package in PEERS.items() if find_spec(package) is None]
    note = (
        "Microseconds of tanh(a·b+1) on float32[8], without gradients; pinned to one CPU. A call "
        "takes and gives what a library\nkeeps arrays in, and does not wait; from numpy to numpy "
        "includes the way there and back. pypjrt drives the same plugin\nby ctypes. onnxruntime "
        "calls with values that were bound before."
    )
    if absent:
        note += f" Not installed, so not measured: {', '.join(absent)}."
    return report.Section(
        "Peers", note, rows, tuple(bar for bar in BARS if bar.column in rows[bar.row])
    )


def once() -> rounds.Rows:
    """One process's figures."""
    rounds.pin()
    os.environ |= {"OMP_NUM_THREADS": "1"}
    import numpy as np

    x = np.linspace(0, 1, 8, dtype=np.float32)
    ways: Ways = {"numpy": {CALL: Timer("np.tanh(x * x + 1)", globals={"np": np, "x": x})}}
    for add, package in (
        (_pjrt_hub, "numpy"),
        (_jax, "jax"),
        (_pypjrt, "pypjrt"),
        (_onnxruntime, "onnxruntime"),
        (_torch, "torch"),
    ):
        if find_spec(package) is not None:
            ways |= add(np, x)
    rows: rounds.Rows = {name: {} for name in ways}
    for column in (CALL, NUMPY):
        timers = {name: timers[column] for name, timers in ways.items() if column in timers}
        variants = {name: lambda timer=timer: timer.timeit(CALLS) for name, timer in timers.items()}
        times = rounds.interleave(variants, ROUNDS)
        for name, seconds in times.items():
            rows[name][f"{column} µs"] = median(seconds) / CALLS * 1e6
        if column == CALL:
            for base in ("numpy", "pypjrt"):
                if base in times:
                    rows["pjrt-hub"][f"÷ {base}"] = rounds.ratio(times, "pjrt-hub", base)
    return rows


def _timers(
    call: str, from_numpy: str, result: Callable[[], Any], **known: Any
) -> dict[str, Timer]:
    """Both ways of one library, after a look at what it computes."""
    np, x = known["np"], known["x"]
    np.testing.assert_allclose(result(), np.tanh(x * x + 1), rtol=1e-5)
    return {CALL: Timer(call, globals=known), NUMPY: Timer(from_numpy, globals=known)}


def _pjrt_hub(np: Any, x: Any) -> Ways:
    import raw

    import pjrt_hub

    client = pjrt_hub.client("cpu")
    exe = client.compile(raw.PROGRAMS / "tanh_mul_add.mlir")
    known = {"np": np, "x": x, "exe": exe, "a": client.buffer_from_host(x)}
    known["bound"] = exe.bind(known["a"], known["a"])
    way = _timers(
        "exe(a, a)",
        "np.asarray(exe(x, x))",
        lambda: np.asarray(exe(known["a"], known["a"])),
        **known,
    )
    return {"pjrt-hub, bound": {CALL: Timer("bound()", globals=known)}, "pjrt-hub": way}


def _jax(np: Any, x: Any) -> Ways:
    import jax

    jit, a = jax.jit(programs.tanh_in_jax()), jax.device_put(x)
    known = {"np": np, "x": x, "jit": jit, "a": a}
    return {
        "jax.jit": _timers("jit(a, a)", "np.asarray(jit(x, x))", lambda: jit(x, x), **known),
    }


def _pypjrt(np: Any, x: Any) -> Ways:
    import pypjrt
    import raw

    import pjrt_hub

    client = pypjrt.Client.create(str(pjrt_hub.client("cpu").plugin.path))
    exe = client.compile((raw.PROGRAMS / "tanh_mul_add.mlir").read_text("utf-8"))
    holding = client.devices()
    device = holding.__enter__()[0]

    def put() -> Any:
        return client.buffer_from_host(x, F32, x.shape, device)

    def back(buffer: Any) -> Any:
        return np.frombuffer(buffer.to_host(), np.float32)

    a = put()
    known = {"np": np, "x": x, "exe": exe, "a": a, "put": put, "back": back}
    known["holding"] = holding
    return {
        "pypjrt": _timers(
            "exe(a, a)", "back(exe(put(), put())[0])", lambda: back(exe(a, a)[0]), **known
        )
    }


def _onnxruntime(np: Any, x: Any) -> Ways:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(_onnx_model(np), options)
    bound = session.io_binding()
    for name in ("a", "b"):
        bound.bind_cpu_input(name, x)
    bound.bind_output("y")
    known = {"np": np, "x": x, "session": session, "bound": bound}
    return {
        "onnxruntime": _timers(
            "session.run_with_iobinding(bound)",
            "session.run(None, {'a': x, 'b': x})[0]",
            lambda: session.run(None, {"a": x, "b": x})[0],
            **known,
        )
    }


def _onnx_model(np: Any) -> bytes:
    from onnx import TensorProto, checker, helper, numpy_helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "aby"]
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["product"]),
        helper.make_node("Add", ["product", "one"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["y"]),
    ]
    one = numpy_helper.from_array(np.ones(8, np.float32), "one")
    graph = helper.make_graph(nodes, "small", values[:2], values[2:], [one])
    # Every onnxruntime of recent years reads these versions.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    return bytes(model.SerializeToString())


def _torch(np: Any, x: Any) -> Ways:
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    a = torch.from_numpy(x.copy())
    known = {"np": np, "x": x, "torch": torch, "a": a, "share": torch.from_numpy}
    return {
        "torch": _timers(
            "torch.tanh(a * a + 1)",
            "torch.tanh(share(x) * share(x) + 1).numpy()",
            lambda: torch.tanh(a * a + 1).numpy(),
            **known,
        )
    }


if __name__ == "__main__":
    report.main(measure, once)
