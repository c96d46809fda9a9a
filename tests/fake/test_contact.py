"""First contact with a faulty library: an exact error, a living parent, and what is remembered."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from children import in_threads
from stubbed import (
    CLASSES,
    ONE_TO_FOUR,
    ends,
    func,
    live,
    path,
    raises,
    traces,
    with_stub,
)
from trees import compile_library

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.door import preflight
from pjrt_hub.running.capi.library import load
from pjrt_hub.running.client.plugin import Plugin


@pytest.fixture
def meet(environment):
    """`meet(library)` makes the first contact, as `pjrt_hub.load` does."""

    def first_contact(library: Path, **env: str):
        return preflight.first_contact(library, (), {**environment, **env})

    return first_contact


def refused(meet, cls, library: Path, **env: str):
    with pytest.raises(errors.PjrtHubError) as caught:
        meet(library, **env)
    assert type(caught.value) is cls, repr(caught.value)
    return caught.value


ATTRIBUTES = {"stub_version": [1, 2, 3], "stub_name": "stub"}


def test_a_working_plugin_tells_about_itself(stub, meet) -> None:
    library = stub()
    assert meet(library) == {
        "api_version": "0.117",
        "extensions": {},
        "attributes": ATTRIBUTES,
        "libraries": [str(library)],
        "modules": [],
        "client_error": None,
        "topology_error": None,
    }


@pytest.mark.parametrize(
    ("macro", "said"),
    [
        ("NO_ENTRY", "exports no GetPjrtApi"),
        ("TABLE=NULL", "returns no table from GetPjrtApi"),
        ("TABLE_SIZE=0", "says that it has 0 bytes"),
        ("TABLE_SIZE=40", "says that it has 40 bytes"),
        ("TABLE_SIZE=47", "says that it has 47 bytes"),
        ("TABLE_SIZE=1140", "says that it has 1140 bytes"),
    ],
)
def test_a_library_that_is_no_plugin(stub, meet, macro: str, said: str) -> None:
    library = stub(macro)
    error = refused(meet, errors.PluginLoadError, library)
    assert said in error.message
    assert error.path == str(library)


@pytest.mark.parametrize(
    ("macros", "have", "why"),
    [
        (["MAJOR=1", "MINOR=0"], "1.0", "another ABI"),
        # In another ABI, the chain of extensions may be anything, so it is not walked.
        (["MAJOR=1", "EXTENSIONS=(void*)8"], "1.117", "another ABI"),
        (["MINOR=54", "TABLE_SIZE=808"], "0.54", "misreports"),
        (["MINOR=55"], "0.55", "another order"),
        (["MINOR=56"], "0.56", "another order"),
    ],
)
def test_a_version_that_cannot_be_used(stub, meet, macros, have: str, why: str) -> None:
    error = refused(meet, errors.IncompatiblePluginError, stub(*macros))
    assert (error.need, error.have) == ("0.57 or newer, major 0", have)
    assert why in error.message
    assert "install a release" in error.hint


LOUD = 'for (int i = 0; i < 1 << 17; i++) dprintf(2, "loud %06d\\n", i)'
AGAIN = 'return fail(3, "the plugin was already initialized")'


@pytest.mark.parametrize(
    ("macros", "name", "told"),
    [
        (["MINOR=57", "TABLE_SIZE=848"], "api_version", "0.57"),
        (["MINOR=130", "TABLE_SIZE=1144"], "api_version", "0.130"),
        (["EXTENSIONS=&cycle"], "extensions", {"Stream": 24}),
        (["EXTENSIONS=&unknown"], "extensions", {"unknown 4242": 24, "Stream": 24}),
        (['ON_ATTRIBUTES=return fail(12, "absent")'], "attributes", {}),
        (["TABLE_SIZE=1144", "MINOR=81"], "attributes", ATTRIBUTES),
        ([f"ON_INITIALIZE={LOUD}"], "api_version", "0.117"),
        (['ON_INITIALIZE=dprintf(1, "no end of line")'], "api_version", "0.117"),
        ([f"ON_INITIALIZE={AGAIN}"], "api_version", "0.117"),
    ],
)
def test_what_can_be_used_tells_about_itself(stub, meet, macros, name, told) -> None:
    assert meet(stub(*macros))[name] == told


@pytest.mark.parametrize(
    ("macro", "signal", "returncode", "step"),
    [
        ("ON_LOAD=abort()", "SIGABRT", -6, "dlopen"),
        ("ON_LOAD=*(volatile int*)8=1", "SIGSEGV", -11, "dlopen"),
        ("ON_LOAD=_exit(0)", None, 0, "dlopen"),
        ("ON_INITIALIZE=abort()", "SIGABRT", -6, "PJRT_Plugin_Initialize"),
        ("ON_INITIALIZE=*(volatile int*)8=1", "SIGSEGV", -11, "PJRT_Plugin_Initialize"),
        ("ON_INITIALIZE=raise(SIGRTMIN + 1)", "SIGRTMIN+1", -35, "PJRT_Plugin_Initialize"),
        ("ON_INITIALIZE=exit(0)", None, 0, "PJRT_Plugin_Initialize"),
        ("ON_INITIALIZE=exit(3)", None, 3, "PJRT_Plugin_Initialize"),
        ("ON_ATTRIBUTES=abort()", "SIGABRT", -6, "PJRT_Plugin_Attributes"),
    ],
)
def test_a_crash_is_an_error_here(stub, meet, macro: str, signal, returncode: int, step) -> None:
    library = stub(macro)
    error = refused(meet, errors.PluginCrashedError, library)
    assert (error.signal, error.returncode) == (signal, returncode)
    how = f"died of {signal}" if signal else f"exited with status {returncode}"
    said = f"{library.name} {how} in {step}, in a process of its own ({library})"
    assert error.message == said
    assert "another release" in error.hint


def test_what_a_crashed_plugin_started_ends_with_it(stub, environment, tmp_path) -> None:
    leaving = stub("ON_INITIALIZE=leave_daemon(false); abort()")
    with pytest.raises(errors.PluginCrashedError):
        preflight.first_contact(leaving, (), environment)
    assert [ends(pid) for pid in traces(tmp_path)] == [True] * 2


def test_a_deadline_that_is_no_number_is_said(stub, meet) -> None:
    for text in ("soon", "nan", "inf", "-1", "0"):
        with pytest.raises(errors.PjrtHubError, match=f"PJRT_HUB_PROBE_SECONDS is '{text}'"):
            meet(stub(), PJRT_HUB_PROBE_SECONDS=text)


@pytest.mark.parametrize("code", [3, 9, 13])
def test_an_error_of_initialize_keeps_its_class(stub, meet, code: int) -> None:
    macro = f'ON_INITIALIZE=return fail({code}, "no driver here")'
    error = refused(meet, CLASSES[code], stub(macro))
    assert error.message == "PJRT_Plugin_Initialize: no driver here"
    assert (error.code, error.function) == (code, "PJRT_Plugin_Initialize")


def connect():
    client = pjrt_hub.client(path)
    assert client.platform_name == "cpu"
    assert len(client.devices) == 1


def test_success_is_remembered_by_content(stub, check, tmp_path) -> None:
    library = tmp_path / "plugin.so"
    library.write_bytes(stub().read_bytes())
    check(library, connect)
    assert len(traces(tmp_path)) == 2  # the probe loaded it, then the process itself
    check(library, connect)
    assert len(traces(tmp_path)) == 3
    copy = tmp_path / "copy.so"
    copy.write_bytes(library.read_bytes())
    check(copy, connect)
    assert len(traces(tmp_path)) == 4
    library.write_bytes(stub("MINOR=81").read_bytes())
    check(library, connect)
    assert len(traces(tmp_path)) == 6


def crash(seconds=600.0):
    preflight._CRASH_SECONDS = seconds
    first, again = (raises(errors.PluginCrashedError, pjrt_hub.load, path) for _ in range(2))
    assert first.signal == again.signal == "SIGABRT"
    assert first.stderr == again.stderr == "no chip"
    assert first.message.endswith("; its last output:\nno chip") or not seconds
    assert "s ago, and nothing that can be seen has changed" in again.message or not seconds
    assert "\n" not in again.message or not seconds
    assert f"`pjrt-hub doctor {path}` tries it again" in again.hint or not seconds


def test_a_death_is_remembered_for_a_while(stub, check, tmp_path) -> None:
    library = stub('ON_INITIALIZE=dprintf(2, "no chip"); abort()')
    check(library, crash)
    assert len(traces(tmp_path)) == 1
    check(library, crash, 0.0)  # a death is remembered for 0 s now
    assert len(traces(tmp_path)) == 3


def die_until_it_is_mended():
    error = raises(errors.PluginCrashedError, pjrt_hub.load, path)
    Path(os.environ["CHIP"]).touch()  # only the plugin looks at this file
    again = raises(errors.PluginCrashedError, pjrt_hub.load, path)
    assert error.returncode == again.returncode == -6
    assert pjrt_hub.diagnose(path).ok
    pjrt_hub.load(path)


def test_the_doctor_lets_a_plugin_be_met_again(stub, check, tmp_path) -> None:
    library = stub('ON_INITIALIZE=if (access(getenv("CHIP"), F_OK)) abort()')
    check(library, die_until_it_is_mended, env={"CHIP": str(tmp_path / "chip")})


def hang_twice(is_known):
    first, again = (raises(errors.PluginTimeoutError, pjrt_hub.load, path) for _ in range(2))
    assert first.seconds == again.seconds == 1.0
    said = "s ago, and nothing that can be seen has changed"
    assert ((said in first.message), (said in again.message)) == (is_known, True)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["nothing", "a variable", "a package"])
def test_what_hung_is_met_again_where_something_changed(stub, check, tmp_path, change) -> None:
    library, site = stub("ON_INITIALIZE=pause()"), tmp_path / "site"
    site.mkdir()
    paths = filter(None, (str(site), os.environ.get("PYTHONPATH")))
    env = {"PJRT_HUB_PROBE_SECONDS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    check(library, hang_twice, False, env=env)
    if change == "a variable":
        env["NPU_QUEUES"] = "2"
    elif change == "a package":
        (site / "npu_driver").mkdir()
    check(library, hang_twice, change == "nothing", env=env)
    assert len(traces(tmp_path)) == (1 if change == "nothing" else 2)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize(
    ("macro", "raised", "said"),
    [
        ("ON_CREATE=abort()", "PluginCrashedError", "died of SIGABRT in PJRT_Client_Create"),
        ("ON_CREATE=exit(4)", "PluginCrashedError", "exited with status 4 in PJRT_Client_Create"),
        ("ON_CREATE=pause()", "PluginTimeoutError", "did not make a client within 2 s"),
    ],
)
@pytest.mark.slow
@with_stub("{macro}", env={"PJRT_HUB_PROBE_SECONDS": "2"})
def test_a_client_that_would_end_the_process(loaded, macro, raised, said):
    call = pjrt_hub.load(path).client if loaded else partial(pjrt_hub.client, path)
    error = raises(getattr(errors, raised), call)
    assert said in error.message, error


def choose_options():
    plugin = pjrt_hub.load(path)
    for options in ({}, {"count": 2}, {"count": 3}, {"count": 2}):
        plugin.client(options).close()


def test_options_of_an_undescribed_plugin_are_tried_each(stub, check, tmp_path) -> None:
    library = stub()
    check(library, choose_options)
    assert len(traces(tmp_path)) == 5  # four probes, then the process itself loaded it
    check(library, choose_options)
    assert len(traces(tmp_path)) == 6


def crash_while_loading():
    error = raises(errors.PluginCrashedError, pjrt_hub.client, path)
    assert "in dlopen" in error.message, error


def test_a_dependency_that_changes_is_met_again(stub, check, tmp_path) -> None:
    dependency = compile_library("void nothing(void) {}", tmp_path / "libneeded.so")
    macro = f'ON_LOAD=extern void *dlopen(const char *, int); dlopen("{dependency}", 2)'
    check(stub(macro), connect)
    check(stub(macro), connect)
    assert len(traces(tmp_path)) == 3
    dying = "__attribute__((constructor)) static void die(void) { __builtin_trap(); }"
    dependency.unlink()
    compile_library(dying, dependency)
    check(stub(macro), crash_while_loading)


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_another_search_is_another_contact(stub, check, tmp_path, variable: str) -> None:
    check(stub(), connect)
    check(stub(), connect, env={variable: str(compile_library("", tmp_path / "other.so"))})
    assert len(traces(tmp_path)) == 4


@with_stub('ON_CREATE=return fail(9, "no device of ours")')
def test_a_client_that_cannot_be_made():
    plugin = pjrt_hub.load(path)
    for _ in range(3):
        error = raises(errors.FailedPreconditionError, plugin.client)
        assert error.message == "PJRT_Client_Create: no device of ours", error
    assert live() == {}, live()


@with_stub("DEVICES=0")
def test_a_plugin_without_devices():
    for _ in range(2):
        error = raises(errors.PluginError, pjrt_hub.load(path).client)
        assert "made a client of cpu without any device" in str(error), error
        assert live() == {}, live()


@with_stub("ON_INITIALIZE=static int times; if (times++ > 0) abort()")
def test_a_library_is_initialized_once_for_each_file(tmp_path):
    plugins, (link, same) = [], (f"{tmp_path}/{name}.so" for name in ("link", "same"))
    os.symlink(path, link)
    os.link(path, same)
    ways = [lambda each=each: plugins.append(Plugin(load(each))) for each in (path, link, same)]
    in_threads(*ways * 4)
    assert len(plugins) == 12
    assert len({plugin.api.address for plugin in plugins}) == 1


@with_stub(other='PLATFORM="other"')
def test_two_plugins_of_the_same_symbols_stay_apart(client, a, other):
    other = Plugin(load(other)).client()
    assert (client.platform_name, other.platform_name) == ("cpu", "other")
    b = other.buffer_from_host(ONE_TO_FOUR)
    assert live() == {"client": 1, "buffer": 1}, live()
    exe = client.compile(func("add"))
    error = raises(ValueError, exe, a, b)
    assert "another client" in str(error), error
    copy = b.copy_to_device(client.devices[0])
    assert copy.client is client
    assert exe(a, copy).tolist() == [2, 4, 6, 8]
    other.close()
    assert exe(a, a).tolist() == [2, 4, 6, 8]
