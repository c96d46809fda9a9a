"""Plugins in Python with our own runtime, and the runtime's reactions when they fail."""

import contextlib
import gc
import types
from collections import Counter

import numpy as np
import pytest

from pjrt_hub import errors
from pjrt_hub.finding.contract import option
from pjrt_hub.finding.contract.manifest import default_manifest
from pjrt_hub.frameworks.jax import backend, framework
from pjrt_hub.kit import authoring
from pjrt_hub.kit.authoring import Backend, Device, Executable, Recorder, Signature, Slot
from pjrt_hub.running.compilation.policy import Policy
from pjrt_hub.running.executable.execute_options import ExecuteOptions
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program

ROW = np.arange(4, dtype=np.float32)
VECTOR = Slot.of("f32", (4,))


class Sum(Executable):
    """Adds two arguments on each device, and returns the sum as every output."""

    def __init__(self, outputs=1, donated=()):
        self.signature = Signature((VECTOR, VECTOR), (VECTOR,) * outputs, donated=donated)

    def execute(self, arguments):
        outputs = len(self.signature.outputs)
        return [[first + second] * outputs for first, second in arguments]


class Toy(Backend):
    """A backend that does what words in a program say."""

    platform_name = "toy"
    options = ("count",)

    def devices(self, options):
        return [Device(10 + i, "toy", {"place": i}) for i in range(options.get("count", 2))]

    def compile(self, program):
        words = program.code.decode()
        if "refused" in words:
            raise ValueError("it is refused")
        return Sum(2 if "two outputs" in words else 1, (0,) if "donate" in words else ())


class Later(Toy):
    """The same backend, which runs programs in another thread."""

    asynchronous = True


class Far(Later):
    """The same backend with its own memory: a list of arrays, addressed by their index."""

    def __init__(self):
        self.memory = []

    def put(self, array, device_id):
        self.memory.append(np.array(array))
        return len(self.memory) - 1

    def get(self, handle):
        return self.memory[handle]

    def compile(self, program):
        backend = self

        class FarSum(Sum):
            def execute(self, arguments):
                rows = [[backend.get(each) for each in row] for row in arguments]
                return [[backend.put(array, -1) for array in row] for row in super().execute(rows)]

        return FarSum()


def program(words=""):
    return f"module {{ func.func {words} }}"


def compiling(executable):
    """A backend that compiles every program to this executable."""
    return type("Compiling", (Toy,), {"compile": lambda self, program: executable})()


@pytest.fixture(params=[Toy, Later, Far])
def client(request):
    with authoring.plugin(request.param()).client() as client:
        yield client


@pytest.fixture
def toy():
    with authoring.plugin(Toy()).client() as client:
        yield client


@pytest.fixture(params=[Toy, Later])
def recorder(request):
    with Recorder(request.param()) as recorder:
        yield recorder


def test_a_program_runs_on_what_another_gave(client):
    executable = client.compile(program())
    x = client.buffer_from_host(ROW)
    y = executable(executable(x, x), x)
    assert y.to_numpy().tolist() == [0, 3, 6, 9]
    assert str(executable.signature) == "(f32[4], f32[4]) -> (f32[4])"


def test_an_executable_survives_as_bytes(client):
    executable = client.compile(program("two outputs"))
    again = client.load(executable.serialize())
    assert again.fingerprint == executable.fingerprint
    x = client.buffer_from_host(ROW)
    assert np.asarray(again(x, x, simplify=False)[0]).tolist() == [0, 2, 4, 6]


def test_what_the_backend_says_is_told(client):
    told = [(each.id, each.kind, each.attributes["place"]) for each in client.devices]
    assert told == [(10, "toy", 0), (11, "toy", 1)]
    assert client.platform_name == client.topology.platform_name == "toy"
    assert len({each.id for each in client.topology.device_descriptions}) == 2


@pytest.mark.parametrize("count", [5, "5"])  # JAX passes its variable on as text
def test_create_options_reach_it(count):
    with authoring.plugin(Toy()).client({"count": count}) as client:
        assert len(client.devices) == 5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", float(1 << 63)),
        ("9" * 5000, float("inf")),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("", ""),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("0,1", "0,1"),
        ("\u0663", "\u0663"),
    ],
)
def test_what_a_text_without_a_type_means(text, value):
    found = option.parse(text)
    assert (type(found), found) == (type(value), value)


def test_jaxs_variable_is_read_for_a_plugin_that_nobody_described(monkeypatch):
    given = {"count": "5", "name": "abacus"}
    monkeypatch.setattr(framework, "all_create_options", lambda platform: given)
    monkeypatch.setattr(framework, "create_options", lambda: "count:5;name:abacus")
    monkeypatch.setattr(framework, "place_in_job", dict)
    plugin = types.SimpleNamespace(name="toy", policy=Policy(), api_version=None)
    found = backend.create_options(plugin, default_manifest("toy"), None)
    assert found == {"count": 5, "name": "abacus"}


def test_what_a_backend_does_not_name_or_compile_is_refused(client, toy):
    with pytest.raises(errors.InvalidArgumentError, match="python has no option count"):
        authoring.plugin(Backend()).client({"count": 5})
    with pytest.raises(errors.InvalidArgumentError, match="toy has no option size; it has count"):
        authoring.plugin(Toy()).client({"count": 1, "size": 5})
    with pytest.raises(errors.InvalidArgumentError, match="toy reads mlir, no format 'hlo'"):
        client.compile(Program(b"an HloModuleProto", "hlo"))
    with pytest.raises(errors.InvalidArgumentError, match="it is refused"):
        toy.compile(program("refused"))


def test_a_copy_is_on_the_other_device(client):
    first, second = client.devices
    copy = client.buffer_from_host(ROW, device=first).copy_to_device(second)
    assert copy.device is second
    assert copy.to_numpy().tolist() == ROW.tolist()


def test_all_devices_of_a_program_run_in_one_call(client):
    options = CompileOptions(num_replicas=2)
    executable = client.compile(program(), options)
    rows = [[client.buffer_from_host(ROW + i, device=d)] * 2 for i, d in enumerate(client.devices)]
    outputs = executable.execute(rows)
    assert [row[0].to_numpy().tolist() for row in outputs] == [[0, 2, 4, 6], [2, 4, 6, 8]]
    assert executable.device_assignment == ((10,), (11,))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3).T,
        np.arange(8, dtype=np.float64)[::-2],
        np.array(True),
        np.zeros((0, 3), np.complex64),
    ],
)
def test_strides_types_and_empty_arrays_come_back(toy, array):
    back = toy.buffer_from_host(array).to_numpy()
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist()


def test_a_donated_buffer_is_gone(toy):
    executable = toy.compile(program("donate"))
    assert executable.signature.donated == (0,)
    given, kept = toy.buffer_from_host(ROW), toy.buffer_from_host(ROW)
    assert executable(given, kept).to_numpy().tolist() == [0, 2, 4, 6]
    assert (given.is_deleted, kept.is_deleted) == (True, False)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_what_a_host_keeps_is_told_to_those_who_ask(asynchronous, recorded):
    told = []

    class Asking(Sum):
        def execute(self, arguments, *, non_donatable):
            told.append(non_donatable)
            return super().execute(arguments)

    backend = compiling(Asking(donated=(0, 1)))
    backend.asynchronous = asynchronous
    with contextlib.ExitStack() as stack:
        if recorded:
            backend = stack.enter_context(Recorder(backend))
        client = stack.enter_context(authoring.plugin(backend).client())
        executable = client.compile(program())
        for kept in ((), (0,), (1, 0)):
            given = [client.buffer_from_host(ROW) for _ in range(2)]
            [(result,)] = executable.execute([given], ExecuteOptions(non_donatable=kept))
            assert np.asarray(result).tolist() == [0, 2, 4, 6]
            assert [each.is_deleted for each in given] == [0 not in kept, 1 not in kept]
    assert told == [(), (0,), (1, 0)]


def test_memory_is_counted_until_it_is_let_go_of(toy):
    [device, _] = toy.devices
    assert device.memory_stats()["bytes_in_use"] == 0
    buffer = toy.buffer_from_host(ROW)
    assert device.memory_stats()["bytes_in_use"] == ROW.nbytes
    del buffer
    gc.collect()
    assert device.memory_stats()["bytes_in_use"] == 0
    assert device.memory_stats()["peak_bytes_in_use"] == ROW.nbytes


def test_a_result_that_was_not_promised_is_an_error():
    class Wrong(Sum):
        def execute(self, arguments):
            return [[np.zeros(3, np.float32)]]

    with authoring.plugin(compiling(Wrong())).client() as client:
        x = client.buffer_from_host(ROW)
        with pytest.raises(errors.PluginInternalError, match=r"main gave .*\(3,\), not f32\[4\]"):
            client.compile(program())(x, x)


@pytest.mark.parametrize(
    ("function", "nth"),
    [
        ("PJRT_Client_BufferFromHostBuffer", 2),
        ("PJRT_LoadedExecutable_GetExecutable", 1),
        ("PJRT_Buffer_ToHostBuffer", 1),
    ],
)
def test_a_failed_call_leaves_the_next_alone(recorder, function, nth):
    def outcome():
        try:
            x = client.buffer_from_host(ROW)
            return client.compile(program())(x, x).to_numpy().tolist()
        except errors.UnavailableError as error:
            return error.message

    recorder.fail(function, errors.UnavailableError("it is gone"), nth=nth)
    with authoring.plugin(recorder).client() as client:
        outcomes = [outcome(), outcome(), outcome()]
    failed = outcomes.pop(nth - 1)
    assert "it is gone" in failed
    assert outcomes == [[0, 2, 4, 6], [0, 2, 4, 6]]
    calls = Counter(recorder.calls)
    assert calls["PJRT_LoadedExecutable_Destroy"] == calls["PJRT_Client_Compile"] >= 2


def test_a_program_that_fails_later_says_so_where_its_output_is_read():
    with Recorder(Later()) as recorder, authoring.plugin(recorder).client() as client:
        executable = client.compile(program())
        x = client.buffer_from_host(ROW)
        recorder.fail("execute", errors.DataLossError("a cable was pulled"))
        lost = executable(x, x)
        with pytest.raises(errors.DataLossError, match="a cable was pulled"):
            lost.to_numpy()
        with pytest.raises(errors.DataLossError, match="a cable was pulled"):
            executable(lost, x).to_numpy()  # the error is passed on without a run
        assert executable(x, x).to_numpy().tolist() == [0, 2, 4, 6]
        assert len(recorder.executions) == 2


def test_everything_is_destroyed_and_the_client_last(recorder):
    with authoring.plugin(recorder).client() as client:
        executable = client.compile(program("two outputs"))
        x = client.buffer_from_host(ROW)
        outputs = executable(x, x)
        assert outputs[0].ready.wait() is None
    calls = Counter(recorder.calls)
    assert calls["PJRT_Buffer_Destroy"] == 3
    assert calls["PJRT_LoadedExecutable_Destroy"] == 1
    assert calls["PJRT_Executable_Destroy"] == calls["PJRT_LoadedExecutable_GetExecutable"]
    assert recorder.calls[-1] == "PJRT_Client_Destroy"


def test_waiting_ends_in_time_where_a_plugin_calls_nobody_back(recorder):
    with authoring.plugin(recorder).client() as client:
        executable = client.compile(program())
        x = client.buffer_from_host(ROW)
        recorder.delay("execute", 0.3)
        recorder.drop("PJRT_Event_OnReady", times=None)
        recorder.drop("PJRT_Event_IsReady", times=None)  # it then always answers false
        with pytest.raises(TimeoutError):
            executable(x, x).ready.wait(0.05)
