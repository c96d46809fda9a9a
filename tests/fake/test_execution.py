"""What plugins newer than the CPU plugin of today answer and read, on the stub of 0.117."""

from __future__ import annotations

from dataclasses import replace

from stubbed import ONE_TO_FOUR, func, live, raises, release, text_of, with_stub

from pjrt_hub import CompileOptions, ExecuteOptions, errors


@with_stub()
def test_what_an_executable_tells(client):
    options = CompileOptions(optimization_level=0, compiler_variant="fast", flags={"a": 1})
    exe = client.compile(func("add"), options)
    own = {"use_spmd_partitioning": False, "use_shardy_partitioner": False}
    told = replace(options, num_replicas=1, num_partitions=1, **own)
    assert exe.compile_options == told, exe.compile_options
    assert exe.parameter_memory_kinds == ("device", "pinned_host"), exe.parameter_memory_kinds
    assert exe.output_memory_kinds == ("device",)
    assert exe.addressable_device_logical_ids == ((3, 4),)
    assert [p.name for p in exe.parameters] == ["", ""]
    assert not exe.is_deleted
    exe.delete()
    assert exe.is_deleted
    assert exe.closed
    client.close()
    assert live() == {}, live()


@with_stub()
def test_execute_options_arrive(client):
    """Every one, of every type of a custom option."""
    exe = client.compile(func("add"))
    row = [client.buffer_from_host(ONE_TO_FOUR) for _ in "ab"]
    exe.execute([row])
    assert text_of("stub_executed") == "launch 0 at nowhere on all", text_of("stub_executed")
    options = ExecuteOptions(
        launch_id=-7,
        non_donatable=[1, 0],
        call_location="f.py:3",
        incarnations={2: 2**40, 5: -1},
        custom_options={"text": "x", "int": 1, "list": [1, 2], "float": 0.5, "bool": True},
        use_major_to_minor_data_layout_for_callbacks=True,
        multi_slice_config=0x1234,
    )
    exe.execute([row], options)
    assert text_of("stub_executed") == (
        "launch -7 at f.py:3 on all, keep 1, keep 0, task 2 is 1099511627776, task 5 is -1, "
        "text type 0, int type 1, list type 2, float type 3, bool type 4, major to minor, "
        "slices at 0x1234"
    ), text_of("stub_executed")
    options = ExecuteOptions(launch_id=2)
    (result,), event = exe.execute_on(row, client.devices[0], options)
    assert text_of("stub_executed") == "launch 2 at nowhere on one", text_of("stub_executed")
    event.wait(10)
    assert result.tolist() == (2 * ONE_TO_FOUR).tolist()


@with_stub()
def test_events_end_with_their_client(client, a):
    """The stub aborts if an event outlives its client or is destroyed twice."""
    exe = client.compile(func("held"))
    for _ in range(5):
        [[_result]], [event] = exe.execute([[a]], return_events=True)
    assert not event.is_ready()
    release()
    event.wait(10)
    del event
    kept = client.compile(func("never")).execute([[a]], return_events=True)
    client.close()
    raises(errors.ClosedError, kept[1][0].wait)
    assert live() == {}, live()


@with_stub()
def test_a_failed_execution_gives_no_event(client, a):
    exe = client.compile(func("error=3:refused_now"))
    exc = raises(errors.InvalidArgumentError, exe.execute, [[a]], return_events=True)
    assert "refused_now" in str(exc)
    exe = client.compile(func("fails"))
    [[result]], [event] = exe.execute([[a]], return_events=True)
    raises(errors.PluginInternalError, event.wait)
    raises(errors.PluginInternalError, result.to_numpy)
