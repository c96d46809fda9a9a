"""Execute options and contexts: what is refused, what the plugin takes, and who outlives whom."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from children import SLOW

from pjrt_hub import CompileOptions, ExecuteOptions
from pjrt_hub.errors import ClosedError, UnimplementedError, UnsupportedByPluginError
from pjrt_hub.extensions import execute_context

NUMBERS = np.arange(8, dtype=np.float32)


@pytest.fixture
def context(client):
    """An execute context of the shared client."""
    with execute_context.ExecuteContext(client) as context:
        yield context


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"launch_id": -(2**31)},
        {"launch_id": 2**31 - 1},
        {"call_location": "model.py:12 of naïve"},
        {"incarnations": {0: 1, 7: -(2**63)}},
        {"launch_id": 3, "call_location": "x", "incarnations": {1: 2}, "non_donatable": [1, 0]},
    ],
)
def test_options_that_change_nothing(executables, vector, options):
    [[result]] = executables("add").execute([[vector(), vector(1)]], ExecuteOptions(**options))
    assert result.tolist() == (2 * NUMBERS + 1).tolist()


def test_a_plain_call_takes_options(client, program):
    """A donated argument that stays says that they reach the plugin, and arrays are put as ever."""
    donate = client.compile(program("donate"))
    a, b = (client.buffer_from_host(NUMBERS) for _ in range(2))
    keep = ExecuteOptions(non_donatable=[0])
    result = donate(a, b, options=keep)
    assert (result.tolist(), a.is_deleted) == ((2 * NUMBERS).tolist(), False)
    [result] = donate(a, NUMBERS, options=keep, simplify=False)
    assert (result.tolist(), a.is_deleted) == ((2 * NUMBERS).tolist(), False)
    assert donate(a, b, options=None).tolist() == (2 * NUMBERS).tolist()
    assert a.is_deleted
    with pytest.raises(ClosedError, match="argument 0 is a buffer that was deleted or donated"):
        donate(a, b, options=keep)
    with pytest.raises(TypeError, match="the program takes 2 arguments, 1 given"):
        donate(b, options=keep)
    with pytest.raises(TypeError, match=r"'option'.*beside them simplify and options"):
        donate(a, b, option=keep)


def test_a_program_of_several_devices_is_not_called_plainly(pair, program):
    add = pair.compile(program("add"), CompileOptions(num_replicas=2))
    with pytest.raises(TypeError, match=r"runs on 2 devices: give execute\(\)"):
        add(NUMBERS, NUMBERS, options=ExecuteOptions())


def test_a_bound_call_takes_options(executables, vector, context):
    call = executables("add").bind(vector(), vector(1))
    options = ExecuteOptions(context=context)
    assert call(options=options).tolist() == (2 * NUMBERS + 1).tolist()
    assert call(options=None).tolist() == (2 * NUMBERS + 1).tolist()
    apart = executables("add").bind(vector(), vector(1), simplify=False)
    assert [each.tolist() for each in apart(options=options)] == [(2 * NUMBERS + 1).tolist()]
    rows = executables("add").bind_rows([[vector(), vector(1)]])
    assert [[each.tolist() for each in row] for row in rows(options=options)] == [
        [(2 * NUMBERS + 1).tolist()]
    ]
    context.close()
    for each in (call, apart, rows):
        with pytest.raises(ClosedError, match="the execute context is closed"):
            each(options=options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"launch_id": 1.0}, TypeError, "launch_id is 1.0, a float"),
        ({"launch_id": True}, TypeError, "a bool; it must be an int"),
        ({"launch_id": 2**31}, OverflowError, "does not fit 32 bits"),
        ({"non_donatable": 0}, TypeError, "iterable"),
        ({"non_donatable": [None]}, TypeError, "non_donatable is None"),
        ({"context": 0}, TypeError, "not an ExecuteContext"),
        ({"call_location": b"x"}, TypeError, "must be a str"),
        ({"call_location": "a\0b"}, ValueError, "holds a NUL"),
        ({"incarnations": [1]}, TypeError, "must be a mapping"),
        ({"incarnations": {2**31: 1}}, OverflowError, "a task id"),
        ({"incarnations": {1: 2**63}}, OverflowError, "does not fit 64 bits"),
        ({"incarnations": {"a": 1}}, TypeError, "a task id"),
        ({"multi_slice_config": b"x"}, TypeError, "multi_slice_config is b'x', a bytes"),
        ({"multi_slice_config": -1}, OverflowError, "does not fit 64 bits"),
        ({"custom_options": "x"}, TypeError, "must be a mapping"),
    ],
)
def test_options_that_c_cannot_hold(options, error, message):
    with pytest.raises(error, match=message):
        ExecuteOptions(**options)


@pytest.mark.parametrize(
    ("options", "since"),
    [
        pytest.param(
            {"custom_options": {"a": 1}},
            "0.116",
            marks=pytest.mark.api("<0.116", "it does not read them"),
        ),
        pytest.param(
            {"multi_slice_config": 0x1234},
            "0.97",
            marks=pytest.mark.api("<0.97", "it does not read it"),
        ),
        pytest.param(
            {"use_major_to_minor_data_layout_for_callbacks": True},
            "0.108",
            marks=pytest.mark.api("<0.108", "it does not read it"),
        ),
    ],
)
def test_an_older_plugin_would_not_read_it(client, executables, vector, options, since):
    with pytest.raises(UnsupportedByPluginError, match=f"came with PJRT API {since}") as caught:
        executables("add").execute([[vector(), vector()]], ExecuteOptions(**options))
    assert (caught.value.since, caught.value.have) == (since, str(client.api.version))


@pytest.mark.api(">=0.108", "it reads it")
def test_a_newer_plugin_reads_it(executables, vector):
    options = ExecuteOptions(use_major_to_minor_data_layout_for_callbacks=True)
    [[result]] = executables("add").execute([[vector(), vector()]], options)
    assert result.tolist() == [2.0 * n for n in range(8)]


def test_this_plugin_exchanges_nothing_with_the_host(client):
    """Where this fails, it does: then the callbacks can be shown on it, as on the stub."""
    with pytest.raises(UnimplementedError, match="`send` is not supported"):
        client.compile("""func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
          %t = stablehlo.create_token : !stablehlo.token
          %s = "stablehlo.send"(%a, %t) {is_host_transfer = true,
              channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>}
              : (tensor<8xf32>, !stablehlo.token) -> !stablehlo.token
          return %a : tensor<8xf32> }""")


@pytest.mark.parametrize("options", [3, {"launch_id": 1}, "launch"])
def test_options_are_execute_options(executables, vector, options):
    with pytest.raises(TypeError, match="not ExecuteOptions"):
        executables("add").execute([[vector(), vector()]], options)
    with pytest.raises(TypeError, match="not ExecuteOptions"):
        executables("add")(vector(), vector(), options=options)
    with pytest.raises(TypeError, match="not ExecuteOptions"):
        executables("add").bind(vector(), vector())(options=options)


def test_a_closed_context(executables, vector, context):
    assert not context.closed
    context.close()
    context.close()
    assert (context.closed, repr(context)) == (True, "<ExecuteContext closed>")
    with pytest.raises(ClosedError, match="the execute context is closed"):
        executables("add").execute([[vector(), vector()]], ExecuteOptions(context=context))
    with pytest.raises(ClosedError, match="the execute context is closed"):
        context.keep(object())


class Thing:
    """Something whose end can be seen."""


def test_a_running_execution_keeps_its_context(client, wait_until):
    """Closed while the program runs, what it keeps goes when the program has ended, not before."""
    executable = client.compile(SLOW)
    context, thing = execute_context.ExecuteContext(client), Thing()
    context.keep(thing)
    seen = weakref.ref(thing)
    del thing
    identity, rounds = np.eye(256, dtype=np.float32), np.int32(1000)
    rows = [[client.buffer_from_host(each) for each in (identity, rounds)]]
    [[result]], [event] = executable.execute(
        rows, ExecuteOptions(context=context), return_events=True
    )
    context.close()
    del context
    gc.collect()
    assert seen() is not None or event.is_ready()
    result.ready.wait(60)
    event.wait(60)
    wait_until(lambda: seen() is None)


def test_a_context_outlives_its_client(plugin):
    client = plugin.client()
    context = execute_context.ExecuteContext(client)
    client.close()
    context.close()
    with pytest.raises(ClosedError):
        execute_context.ExecuteContext(client)


def test_donation_is_in_the_signature(executables, vector):
    donate = executables("donate")
    assert donate.signature.donated == (0,)
    assert [parameter.donated for parameter in donate.parameters] == [True, False]
    assert executables("add").signature.donated == ()
    given = vector()
    [[_]] = donate.execute(
        [[given, vector()]], ExecuteOptions(non_donatable=donate.signature.donated)
    )
    assert not given.is_deleted


def test_a_donor_without_an_alias_is_in_the_signature(client):
    """jax.buffer_donor gives memory away without saying to which result."""
    executable = client.compile("""
      func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32> {jax.buffer_donor = true})
          -> tensor<8xf32> {
        %0 = stablehlo.add %a, %b : tensor<8xf32>
        return %0 : tensor<8xf32>
      }""")
    assert executable.signature.donated == (1,)


def test_deleting_an_executable(client, program, vector):
    executable = client.compile(program("add"))
    result = executable(vector(), vector())
    assert not executable.is_deleted
    executable.delete()
    executable.delete()
    assert (executable.is_deleted, executable.closed) == (True, True)
    assert result.tolist() == (2 * NUMBERS).tolist()
    for use in (
        lambda: executable(vector(), vector()),
        lambda: executable.execute([[vector(), vector()]]),
        lambda: executable.execute_on([vector(), vector()], client.devices[0]),
        executable.cost_analysis,
    ):
        with pytest.raises(ClosedError, match="the executable is closed"):
            use()
