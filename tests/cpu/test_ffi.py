"""Custom calls: Python and C functions that a program on the CPU plugin calls by name."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import signal
import subprocess
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from children import PLATFORM, calling, in_child, in_threads, ones
from texts import custom_call

import pjrt_hub
from pjrt_hub.errors import (
    AlreadyExistsError,
    DataLossError,
    InvalidArgumentError,
    PjrtError,
    UnimplementedError,
)
from pjrt_hub.extensions import execute_context
from pjrt_hub.running.array import dtypes

NUMBERS = itertools.count()
DTYPES = ("f32", "f64", "bf16", "f16", "f8E4M3FN", "i8", "i64", "ui16")
DTYPES += ("complex<f32>", "complex<f64>")


@pytest.fixture
def call(plugin, client):
    """Register a function under a new name and return its caller: `run(*arrays, results=...)`."""

    def call(function, config=""):
        name = f"test_{next(NUMBERS)}"
        plugin.ffi.register(name, function)

        def run(*arrays, results):
            buffers = [client.buffer_from_host(each) for each in arrays]
            outputs = compiled(client, name, buffers, results, config)(*buffers, simplify=False)
            return [np.array(each.to_numpy()) for each in outputs]

        return run

    return call


def compiled(client, name, buffers, results, config=""):
    """Compile one custom call with these arguments, results ("8xf32") and attributes."""
    taken = ", ".join(f"tensor<{signature(each)}>" for each in buffers)
    given = ", ".join(f"tensor<{each}>" for each in results)
    values = ", ".join(f"%a{i}" for i in range(len(buffers)))
    named = ", ".join(f"%a{i}: tensor<{signature(each)}>" for i, each in enumerate(buffers))
    outputs = ", ".join(f"%r#{i}" for i in range(len(results)))
    return client.compile(
        f"""
        func.func @main({named}) -> ({given}) {{
          %r:{len(results)} = stablehlo.custom_call @{name}({values})
              {{api_version = 4 : i32, backend_config = {{{config}}}}} : ({taken}) -> ({given})
          return {outputs} : {given}
        }}
        """
    )


def signature(buffer):
    return "".join(f"{size}x" for size in buffer.shape) + dtypes.of_code(buffer._dtype).name


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_arrives_and_returns(call, name):
    dtype, seen = dtypes.numpy_dtype(dtypes.of_type(name).code), []

    def add(a, b, out):
        seen.append((a.dtype, a.shape, out.dtype, out.shape))
        out[...] = a + b

    values = np.arange(6).astype(dtype).reshape(2, 3)
    [result] = call(add)(values, values, results=[f"2x3x{name}"])
    assert seen == [(dtype, (2, 3)) * 2]
    assert result.tolist() == (values + values).tolist()


def test_bool(call):
    def negate(a, out):
        np.logical_not(a, out=out)

    [result] = call(negate)(np.array([True, False]), results=["2xi1"])
    assert result.tolist() == [False, True]


def test_several_results_and_none_and_scalars(call):
    def divide(a, b, quotient, rest, empty):
        assert empty.shape == (0, 4)
        quotient[...], rest[...] = divmod(a, b)

    quotient, rest, empty = call(divide)(
        np.int32(17), np.int32(5), results=["i32", "i32", "0x4xf32"]
    )
    assert (quotient.item(), rest.item(), empty.shape) == (3, 2, (0, 4))


def test_attributes_have_their_types(call):
    seen = {}

    def look(out, **attributes):
        seen.update(attributes)
        out[...] = 0

    config = """flag = true, small = -3 : i8, big = 18446744073709551615 : ui64, half = 1.5 : f32,
        text = "h\\C3\\A9", empty = "", list = array<i64: 1, -2>, floats = array<f32: 0.5>,
        table = {inner = {deep = 2.5 : f64}, word = "x"}"""
    call(look, config)(results=["f32"])
    lists = seen.pop("list"), seen.pop("floats")
    assert seen == {
        "flag": True,
        "small": -3,
        "big": 2**64 - 1,
        "half": 1.5,
        "text": "hé",
        "empty": "",
        "table": {"inner": {"deep": 2.5}, "word": "x"},
    }
    assert seen["flag"] is True
    assert [(each.dtype, each.tolist()) for each in lists] == [
        (np.int64, [1, -2]),
        (np.float32, [0.5]),
    ]


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (ValueError("too cold"), InvalidArgumentError, "ValueError: too cold (test_ffi.py:"),
        (NotImplementedError("later"), UnimplementedError, "NotImplementedError: later"),
        (KeyError("k"), PjrtError, "KeyError: 'k'"),
        (SystemExit(3), PjrtError, "SystemExit: 3"),
        (Unspeakable(), PjrtError, "Unspeakable"),
        (ValueError("a\0b"), InvalidArgumentError, "ValueError: ab"),
        (
            DataLossError("gone", code=15, function="f", payloads={}),
            DataLossError,
            "DataLossError: gone",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_exception_is_the_error_of_the_execution(call, raised, expected, text):
    def fail(out):
        raise raised

    with pytest.raises(expected) as caught:
        call(fail)(results=["f32"])
    assert text in str(caught.value)


def test_a_wrong_signature_is_named(call):
    with pytest.raises(InvalidArgumentError, match=r"TypeError: .*takes 1 positional argument"):
        call(lambda out: None)(np.float32(1), results=["f32"])


def test_results_are_written_not_returned(call):
    with pytest.raises(InvalidArgumentError, match=r"it returned .*results are written in place"):
        call(lambda a, out: a + 1)(np.float32(1), results=["f32"])


def test_arguments_cannot_be_written(call):
    def write(a, out):
        a[...] = 0

    with pytest.raises(InvalidArgumentError, match="read-only"):
        call(write)(np.ones(3, np.float32), results=["3xf32"])


def test_an_array_that_outlives_the_call_is_an_error(call):
    kept = []

    def keep(a, out):
        out[...] = a
        kept.append(a[1:])

    with pytest.raises(InvalidArgumentError, match="it kept an array"):
        call(keep)(np.ones(3, np.float32), results=["3xf32"])

    def cycle(a, out):
        out[...] = a
        knot = [a]
        knot.append(knot)

    assert call(cycle)(np.ones(3, np.float32), results=["3xf32"])[0].tolist() == [1, 1, 1]


PACKED = {
    "i4": (ml_dtypes.int4, [-8, -1, 0, 3, 7]),
    "ui4": (ml_dtypes.uint4, [0, 1, 9, 15, 2]),
    "i2": (ml_dtypes.int2, [-2, -1, 0, 1, 1]),
    "ui2": (ml_dtypes.uint2, [0, 1, 2, 3, 3]),
    "f4E2M1FN": (ml_dtypes.float4_e2m1fn, [-6.0, 0.5, 1.5, 0.0, 6.0]),
}


@pytest.mark.parametrize("name", PACKED)
def test_elements_that_share_bytes(call, name):
    """The function gets copies with a byte for each element, and its results are packed again."""
    dtype, values = PACKED[name]
    kept = []

    def turn(a, out, number):
        assert not a.flags.writeable
        assert (out.shape, out.dtype, out.tolist()) == (a.shape, dtype, [0] * 5)
        kept.append(a)
        out[...] = a[::-1]
        number[...] = a.size

    result, number = call(turn)(np.array(values, dtype), results=[f"5x{name}", "i32"])
    assert result.dtype == dtype
    assert (result.tolist(), number.item()) == (values[::-1], 5)
    assert [each.tolist() for each in kept] == [values]


def test_no_elements_that_share_bytes(call):
    [result] = call(lambda a, out: None)(np.zeros((2, 0), ml_dtypes.int4), results=["0x3xi4"])
    assert result.shape == (0, 3)


def test_a_name_is_registered_once(plugin):
    plugin.ffi.register("once", lambda out: None)
    with pytest.raises(AlreadyExistsError, match="'once' is registered on Host already"):
        plugin.ffi.register("once", lambda out: None)
    plugin.ffi.register("once", lambda out: None, platform="Elsewhere")
    assert {("once", "Host"), ("once", "Elsewhere")} <= set(plugin.ffi.registered)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("", print), ValueError, "name"),
        (("a\0b", print), ValueError, "NUL"),
        ((b"x", print), TypeError, "not a str"),
        (("x", None), TypeError, "neither a Python function"),
        (("x", True), TypeError, "neither a Python function"),
        (("x", 0), ValueError, "no code"),
        (("x", 4096), ValueError, "no code"),
        (("x", id(object())), ValueError, "no code"),
        (("x", -1), ValueError, "no code"),
        (("x", 2**70), ValueError, "no code"),
    ],
)
def test_what_cannot_be_called_is_refused(plugin, arguments, error, text):
    with pytest.raises(error, match=text):
        plugin.ffi.register(*arguments)
    assert "x" not in {name for name, _ in plugin.ffi.registered}


@pytest.mark.cpu("runs several programs at once")
def test_from_several_threads(plugin, client):
    places, gate = set(), threading.Barrier(4, timeout=30)

    def meet(a, out):
        places.add(threading.get_ident())
        gate.wait()  # four calls must be in here at once
        out[...] = a + 1

    plugin.ffi.register("meet", meet)
    value = client.buffer_from_host(np.float32(1))
    executable = compiled(client, "meet", [value], ["f32"])
    answers = []
    in_threads(*[lambda: answers.append(executable(value).item())] * 4)
    assert (answers, len(places)) == ([2.0] * 4, 4)


@pytest.mark.cpu("runs several programs at once")
def test_a_program_inside_a_program(plugin, client, executables):
    def twice(a, out):
        inner = client.buffer_from_host(np.array(a))
        out[...] = executables("add")(inner, inner).to_numpy()
        assert plugin.ffi.current.name == "twice"

    executables("add")
    plugin.ffi.register("twice", twice)
    value = client.buffer_from_host(np.arange(8, dtype=np.float32))
    result = compiled(client, "twice", [value], ["8xf32"])(value)
    assert result.tolist() == (2 * np.arange(8)).tolist()
    with pytest.raises(LookupError):
        _ = plugin.ffi.current


def test_what_a_call_tells(plugin, call):
    told = []

    def tell(out):
        current = plugin.ffi.current
        told.append((current.platform, current.stream, current.device_ordinal, current.user_data))
        out[...] = 0

    call(tell)(results=["f32"])
    assert told == [("Host", None, 0, None)]


def test_user_data_comes_through_the_execute_context(plugin, client):
    seen = []

    def look(a, out):
        seen.append(plugin.ffi.current.user_data)
        out[...] = a

    plugin.ffi.register("look", look)
    value = client.buffer_from_host(np.float32(1))
    executable = compiled(client, "look", [value], ["f32"])
    with execute_context.ExecuteContext(client) as context:
        plugin.ffi.add_user_data(context, {"answer": 42})
        with pytest.raises(PjrtError):
            plugin.ffi.add_user_data(context, "again")
        options = pjrt_hub.ExecuteOptions(context=context)
        [[result]] = executable.execute([[value]], options)
        assert result.item() == 1.0
    executable(value).to_numpy()
    assert seen == [{"answer": 42}, None]


C_SOURCE = """
#include "pjrt_api.h"
XLA_FFI_Error *triple(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Buffer *in = frame->args.args[0], *out = frame->rets.rets[0];
  if (in->rank != 1) {
    XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE};
    args.message = "one dimension, please";
    args.errc = XLA_FFI_Error_Code_OUT_OF_RANGE;
    return frame->api->XLA_FFI_Error_Create(&args);
  }
  for (int64_t i = 0; i < in->dims[0]; i++)
    ((float *)out->data)[i] = 3 * ((float *)in->data)[i];
  return NULL;
}
"""


@pytest.fixture(scope="session")
def c_library(tmp_path_factory, header_folder):
    """A library with handlers in C, compiled against our own declarations."""
    folder = tmp_path_factory.mktemp("ffi")
    (folder / "triple.c").write_text(C_SOURCE)
    words = ["cc", "-shared", "-fPIC", f"-I{header_folder}", "-o", "triple.so", "triple.c"]
    subprocess.run(words, cwd=folder, check=True, timeout=60)
    return ctypes.CDLL(str(folder / "triple.so"))


@pytest.mark.parametrize("form", ["ctypes", "address"])
def test_a_function_in_c(call, c_library, form):
    address = ctypes.cast(c_library.triple, ctypes.c_void_p).value
    run = call(c_library.triple if form == "ctypes" else address)
    assert run(np.arange(4, dtype=np.float32), results=["4xf32"])[0].tolist() == [0, 3, 6, 9]
    with pytest.raises(PjrtError, match="one dimension, please") as caught:
        run(np.float32(1), results=["f32"])
    assert caught.value.code == 11


@in_child(stdout="ran\n")
def test_functions_run_until_the_end_and_not_after_it(client):
    """Python waits at its end for running programs; after that no function is called."""
    begun = threading.Event()

    def slow(a, out):
        begun.set()
        time.sleep(0.3)
        out[...] = a
        print("ran", flush=True)

    client.plugin.ffi.register("slow", slow)
    executable, value = client.compile(custom_call("slow")), ones(client)
    threading.Thread(target=lambda: executable(value), daemon=True).start()
    begun.wait()
    return client, executable, value


@pytest.mark.parametrize("order", ["close", "delete", "forget", "exit"])
@in_child(stdout="ran\n" * 3)
def test_any_end_while_the_plugin_calls(order):
    """Nobody waits for the program, whose calls come from a thread of the plugin."""
    client = pjrt_hub.client(PLATFORM, offline=True)

    def slow(a, out):
        time.sleep(0.1)
        out[...] = a
        print("ran", flush=True)

    client.plugin.ffi.register("slow", slow)
    executable = client.compile(calling("slow"))
    value = client.buffer_from_host(np.eye(256, dtype=np.float32))
    result = executable(value, client.buffer_from_host(np.int32(3)))
    if order == "exit":
        return client, executable, value, result
    if order == "delete":
        result.delete()
        del result, value
        executable.close()
    elif order == "forget":
        del result, value, executable
        gc.collect()
    if order != "forget":
        client.close()
    return None


@in_child
def test_an_interrupt_inside_a_function_reaches_the_caller(client):
    def wait(a, out):
        signal.raise_signal(signal.SIGINT)
        time.sleep(5)

    client.plugin.ffi.register("wait", wait)
    executable = client.compile(custom_call("wait"))
    with pytest.raises(KeyboardInterrupt):
        executable(ones(client)).to_numpy(), time.sleep(5)


@in_child
def test_a_function_that_closes_the_client(client):
    """The program waits for the function, and closing the client waits for the program."""

    def close(a, out):
        client.close()
        out[...] = a

    client.plugin.ffi.register("close", close)
    executable = client.compile(calling("close"))
    value = client.buffer_from_host(np.eye(256, dtype=np.float32))
    executable(value, client.buffer_from_host(np.int32(3)))
    deadline = time.monotonic() + 30
    while client.address and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (client.closed, client.address) == (True, 0)


@in_child
def test_the_entry_points_end_with_an_error(client):
    ffi = client.plugin.ffi
    for number in range(1024):
        ffi.register(f"n{number}", lambda out: None)
    with pytest.raises(RuntimeError, match="1024"):
        ffi.register("n1024", lambda out: None)


def test_failed_and_good_calls_leave_nothing(call):
    import weakref

    class Big:
        pass

    seen = []

    def work(a, out):
        big = Big()
        seen.append(weakref.ref(big))
        if a[0] > 0:
            raise ValueError("positive")
        out[...] = a

    run = call(work)
    for start in (0, 1, 0, 1):
        with contextlib.suppress(InvalidArgumentError):
            run(np.full(2, start, np.float32), results=["2xf32"])
    gc.collect()
    assert [each() for each in seen] == [None] * 4


def test_large_arrays(call):
    def flip(a, out):
        np.negative(a, out=out)

    values = np.arange(1 << 24, dtype=np.float32).reshape(4096, 4096)  # 64 MiB of values
    [result] = call(flip)(values, results=["4096x4096xf32"])
    assert np.array_equal(result, -values)


def test_a_result_in_the_memory_of_an_argument(plugin, client):
    """Writing the result changes the argument, because the program aliases the two."""
    seen = []

    def add(a, out):
        seen.append(a.ctypes.data == out.ctypes.data)
        out[...] = a + 1

    plugin.ffi.register("in_place", add)
    aliases = """@in_place(%s) {output_operand_aliases = [#stablehlo.output_operand_alias<
        output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], """
    added = "%s = stablehlo.add %a, %a : tensor<8xf32>\n  %r ="
    text = custom_call("in_place").replace("%r =", added).replace("@in_place(%a) {", aliases)
    executable = client.compile(text)
    value = client.buffer_from_host(np.arange(8, dtype=np.float32))
    assert executable(value).tolist() == [2 * i + 1 for i in range(8)]
    assert seen == [True]
    assert value.tolist() == list(range(8))


def test_tokens_order_calls(plugin, client):
    """Neither call uses the other's result, so only the token decides their order."""
    order = []

    def note(before, after, *, number):
        assert (before, after) == (None, None)
        order.append(number)

    plugin.ffi.register("note", note)
    call = """stablehlo.custom_call @note({0}) {{api_version = 4 : i32, has_side_effect = true,
        backend_config = {{number = {1} : i32}}}} : (!stablehlo.token) -> !stablehlo.token"""
    lines = "\n".join(f"%t{i + 1} = {call.format(f'%t{i}', i)}" for i in range(5))
    executable = client.compile(f"""
        func.func @main(%a: tensor<f32>) -> tensor<f32> {{
          %t0 = stablehlo.create_token : !stablehlo.token
          {lines}
          return %a : tensor<f32>
        }}
    """)
    value = client.buffer_from_host(np.float32(3))
    for _ in range(3):
        executable(value).ready.wait()
    assert order == list(range(5)) * 3
