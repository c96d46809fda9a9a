"""Compiling in a separate process: a crash is an exception here, and nothing else differs."""

import base64
import logging
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from children import PLATFORM, adds, command, in_child
from texts import DONATED, custom_call, doubling, products

import pjrt_hub
from pjrt_hub import CompileOptions
from pjrt_hub.errors import (
    ClosedError,
    PjrtError,
    PluginCrashedError,
    PluginTimeoutError,
    UnknownError,
)
from pjrt_hub.running.sandbox import child as child_module

VECTOR = "tensor<4xf32>"


def main(arguments: str, results: str, *body: str, attributes: str = "") -> str:
    head = f"func.func @main({arguments}) -> {attributes or results} {{"
    return "\n".join([head, *body, f"return %r : {results}", "}"])


def of_vector(*body: str) -> str:
    return main(f"%a: {VECTOR}", VECTOR, *body)


def calling(name: str, callee: str, visibility: str = "private") -> str:
    return (
        f"func.func {visibility} @{name}(%a: {VECTOR}) -> {VECTOR} {{\n"
        f"  %r = func.call @{callee}(%a) : ({VECTOR}) -> {VECTOR}\n  return %r : {VECTOR}\n}}\n"
    )


def chain(depth: int) -> str:
    links = "".join(calling(f"f{n}", f"f{n + 1}") for n in range(1, depth))
    end = f"func.func private @f{depth}(%a: {VECTOR}) -> {VECTOR} {{ return %a : {VECTOR} }}\n"
    return calling("main", "f1", "public") + links + end


def by_zero(operation: str) -> str:
    a, z = (f"%{x} = stablehlo.constant dense<{n}> : tensor<i32>" for x, n in ("a1", "z0"))
    return main("", "tensor<i32>", a, z, f"%r = stablehlo.{operation} %a, %z : tensor<i32>")


def bitcast(given: str, wanted: str) -> str:
    given, wanted = f"tensor<{given}>", f"tensor<{wanted}>"
    return main(
        f"%a: {given}", wanted, f"%r = stablehlo.bitcast_convert %a : ({given}) -> {wanted}"
    )


def reordered(element: str) -> str:
    kind = f"tensor<2x3x{element}>"
    return (
        f'func.func @main(%a: {kind} {{mhlo.layout_mode = "{{0,1}}"}}) -> '
        f'({kind} {{mhlo.layout_mode = "{{1,0}}"}}) {{\n  return %a : {kind}\n}}'
    )


BOUNDED = "tensor<?x3xf32, #stablehlo.bounds<2, ?>>"
COMPOSITE = of_vector(
    f'%r = stablehlo.composite "a.b" %a {{decomposition = @main}} : ({VECTOR}) -> {VECTOR}'
)
TERABYTES = "tensor<1099511627776xf32>"
GENERIC_CALL = f"""
"builtin.module"() ({{
  "func.func"() <{{function_type = ({VECTOR}) -> {VECTOR}, sym_name = "main"}}> ({{
    ^bb0(%a: {VECTOR}):
      %0 = "func.call"(%a) <{{callee = @main}}> : ({VECTOR}) -> {VECTOR}
      "func.return"(%0) : ({VECTOR}) -> ()
  }}) : () -> ()
}}) : () -> ()
"""

#: Programs that crash the compiler of some generation of the CPU plugin, each with the signal.
DEADLY = {
    "a function that calls itself": (calling("main", "main", "public"), "SIGSEGV"),
    "the same in MLIR's generic form": (GENERIC_CALL, "SIGSEGV"),
    "a composite of itself": (COMPOSITE, "SIGSEGV"),
    "sizes that overflow": (doubling("4611686018427387904xf32"), "SIGABRT"),
    "functions in a circle": (calling("main", "f", "public") + calling("f", "main"), "SIGSEGV"),
    "5000 calls deep": (chain(5000), "SIGSEGV"),
    "i1 as i64": (bitcast("64xi1", "i64"), "SIGSEGV"),
    "i1 as f64": (bitcast("2x64xi1", "2xf64"), "SIGSEGV"),
    "i64 as i1": (bitcast("2xi64", "2x64xi1"), "SIGSEGV"),
    "a constant divided by zero": (by_zero("divide"), "SIGFPE"),
    "the remainder of that": (by_zero("remainder"), "SIGFPE"),
    "i2 joined": (
        main(
            "%a: tensor<3xi2>, %b: tensor<3xi2>",
            "tensor<6xi2>",
            "%r = stablehlo.concatenate %a, %b, dim = 0 : "
            "(tensor<3xi2>, tensor<3xi2>) -> tensor<6xi2>",
        ),
        "SIGABRT",
    ),
    "random i8": (
        main(
            "%a: tensor<i8>, %b: tensor<i8>",
            "tensor<2xi8>",
            "%n = stablehlo.constant dense<[2]> : tensor<1xi64>",
            '%r = "stablehlo.rng"(%a, %b, %n) '
            "{rng_distribution = #stablehlo<rng_distribution UNIFORM>} : "
            "(tensor<i8>, tensor<i8>, tensor<1xi64>) -> tensor<2xi8>",
        ),
        "SIGABRT",
    ),
    "another layout of i4": (reordered("i4"), "SIGABRT"),
    "another layout of ui4": (reordered("ui4"), "SIGABRT"),
    "another layout of i2": (reordered("i2"), "SIGABRT"),
    "another layout of f4": (reordered("f4E2M1FN"), "SIGABRT"),
    "dynamic dimensions in another order": (
        main(
            "%a: tensor<2x3xf32>, %n: tensor<i32>",
            BOUNDED,
            "%r = stablehlo.set_dimension_size %a, %n, dim = 0 : "
            f"(tensor<2x3xf32>, tensor<i32>) -> {BOUNDED}",
            attributes=f'({BOUNDED} {{mhlo.layout_mode = "{{0,1}}"}})',
        ),
        "SIGABRT",
    ),
    "more numbers than fit": (
        main("", TERABYTES, f"%r = stablehlo.iota dim = 0 : {TERABYTES}"),
        "SIGFPE",
    ),
}  # fmt: skip
#: Programs that newer generations compile or refuse -> since which PJRT API, words of the error.
MENDED = {
    "i1 as i64": ("0.106", "Last dimension of input"),
    "i1 as f64": ("0.106", "Last dimension of input"),
    "i64 as i1": ("0.106", ""),
    "a constant divided by zero": ("0.115", ""),
    "the remainder of that": ("0.115", ""),
    "another layout of i4": ("0.106", ""),
    "another layout of ui4": ("0.106", ""),
    "another layout of i2": ("0.106", ""),
    "another layout of f4": ("0.106", ""),
}
#: Programs that older generations compile -> the PJRT API since which they crash.
BROKEN = {"more numbers than fit": "0.115"}

#: The first of `DEADLY` in jaxlib's MLIR bytecode, and as a portable artifact of 1.0.0.
BYTECODE = {
    "bytecode": (
        "O-%1n4NXi*QZh3xFfK4>X><Sq83h3a2>}BO0|y5W69Xj^2LTfc3lj?y6AKd)0S6No2Leq63k3}q0RaIG0~Y}"
        "U0~Y}UBMAc+0R;^g0S5yc0}%xU0|5g83j|FC0Z;`22LwF>0R;n42?GZNDFX!y0|N^H1x61A0|5g82LurV0|o"
        ";D1pxqG4+{kk3l9qsVs&Y3bZKq?W_5030Bvt%b!=q-V_|G;0CHt?b#iV1EdXs{X>I@rAqNEk0Sy5M0RaO62>"
        "}fO0R"
    ),
    "a portable artifact": (
        "O-%1n4O4VsVr*qdOiy2SF)lDJFaQA=1px&K0RsyI2M-e$11l8=0SyZi6B82?0|^TY3kw4W6Bh>pQ3VYb0Rsa"
        "U0R;ya0R<-)0S6Tq0SOBO0UZw`104}50}%xg0|5g82?R|A0Z;=02LwF>0R;n41p@~JDFX!y0|N&D1x5)40|5"
        "g82LuZP0|o;D1pxqo69Wqc6%i2+3lU;<X>4?9ZUA;@Y;OQ<Z)A0BWdLS%Zew3|F#uy>Y;0e4F#vL9bairWUv"
        "@D7EdXs{X>I@j2pI<j0RamQ5e*L$0}l"
    ),
}
DEADLY |= {name: (base64.b85decode(code), "SIGSEGV") for name, code in BYTECODE.items()}


def kills(name):
    """A parameter for the generations that a program crashes."""
    builds = f">={BROKEN[name]}" if name in BROKEN else ">=0"
    builds += f",<{MENDED[name][0]}" if name in MENDED else ""
    return pytest.param(name, marks=pytest.mark.api(builds, "dies of it"))


@pytest.mark.parametrize("name", [kills(name) for name in DEADLY])
def test_a_deadly_program_is_an_exception(client, name):
    text, signal = DEADLY[name]
    with pytest.raises(PluginCrashedError) as caught:
        client.compile(text, isolated=True)
    assert (caught.value.signal, caught.value.returncode < 0) == (signal, True)
    assert f"died of {signal} as it compiled the program" in caught.value.message
    assert caught.value.stderr in caught.value.message
    assert "docs/executables.md" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param(name, words, marks=pytest.mark.api(f">={since}", "does not die of it"))
        for name, (since, words) in MENDED.items()
    ],
)
def test_what_was_deadly_once(client, name, words):
    if words:
        with pytest.raises(UnknownError, match=words):
            client.compile(DEADLY[name][0], isolated=True)
    else:
        assert client.compile(DEADLY[name][0], isolated=True).name == "main"


def test_the_last_words_are_the_compilers(client):
    with pytest.raises(PluginCrashedError, match="; its last output:\n") as caught:
        client.compile(DEADLY["i2 joined"][0], isolated=True)
    assert "Check failed: bit_offset != nullptr" in caught.value.stderr


@in_child(stdout="", status=-11, PYTHONFAULTHANDLER="")
def test_without_isolation_it_is_the_end(client):
    """Without isolation the same program ends the process, so the tests above mean something."""
    client.compile(DEADLY["a function that calls itself"][0])


def test_what_comes_is_what_a_plain_compilation_gives(client, program):
    plain = client.compile(program("add"))
    executable = client.compile(program("add"), isolated=True)
    assert adds(executable)
    assert executable.signature == plain.signature
    for name in ("name", "fingerprint", "devices", "compile_options", "parameters"):
        assert getattr(executable, name) == getattr(plain, name), name
    assert adds(client.load(executable.serialize()))


def test_donation_is_kept(client, vector):
    executable = client.compile(doubling("8xf32", DONATED), isolated=True)
    given = vector()
    assert executable(given).tolist() == [2.0 * n for n in range(8)]
    with pytest.raises(ClosedError, match="deleted or donated"):
        executable(given)


@pytest.mark.parametrize(
    "options",
    [
        CompileOptions(num_replicas=2),
        CompileOptions(num_replicas=2, device_ids=[[1], [0]]),
        CompileOptions(device_ids=[[1]]),
        CompileOptions(flags={"xla_cpu_enable_fast_math": True}),
    ],
    ids=["replicas", "in another order", "the second device", "a flag"],
)
def test_options_are_kept(pair, program, options):
    plain, executable = (
        pair.compile(program("add"), options, isolated=isolated) for isolated in (False, True)
    )
    assert executable.devices == plain.devices
    assert executable.signature == plain.signature
    ones = np.ones(8, np.float32)
    rows = executable.execute([[ones, ones] for _ in executable.devices])
    assert [result.tolist() for [result] in rows] == [[2.0] * 8] * len(plain.devices)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("module {}", None),
        (of_vector(f"%r = stablehlo.newer %a : {VECTOR}"), None),
        (custom_call("absent"), None),
        (doubling("4xf32"), CompileOptions(flags={"xla_absent": True})),
        (of_vector("%t = stablehlo.create_token : !stablehlo.token",
                   '%r, %u = "stablehlo.infeed"(%t) {infeed_config = ""} : '
                   f"(!stablehlo.token) -> ({VECTOR}, !stablehlo.token)"), None),
    ],
    ids=["no main", "an operation", "a function", "a flag", "an infeed"],
)  # fmt: skip
def test_what_a_compiler_refuses_is_the_same_error(client, text, options):
    found = []
    for isolated in (False, True):
        with pytest.raises(PjrtError) as caught:
            client.compile(text, options, isolated=isolated)
        error = caught.value
        found.append(
            (type(error), error.code, error.function, error.message, error.hint, error.payloads)
        )
    assert found[0] == found[1]


def test_a_function_of_this_process_is_called(own, plugin):
    def double(given, out, *, times):
        out[...] = given * times

    plugin.ffi.register("isolated_double", double, instantiate=lambda **attributes: attributes)
    text = custom_call("isolated_double", "4xf32", "times = 3.0 : f32")
    executable = own.compile(text, isolated=True)
    assert executable(np.arange(4, dtype=np.float32)).tolist() == [0.0, 3.0, 6.0, 9.0]


def test_large_constants(client):
    """They are passed in a file: 32 MB to the compiler, and 32 MB back."""
    values = np.arange(8 << 20, dtype=np.float32)
    kind = f"tensor<{values.size}xf32>"
    text = main(
        f"%a: {kind}",
        kind,
        f'%c = stablehlo.constant dense<"0x{values.tobytes().hex().upper()}"> : {kind}',
        f"%r = stablehlo.add %a, %c : {kind}",
    )
    result = client.compile(text, isolated=True)(np.ones_like(values))
    np.testing.assert_array_equal(result.to_numpy(), values + 1)


@pytest.fixture
def started(monkeypatch):
    """A list that grows with each process that is started."""
    count = []
    start = child_module.Child.__init__

    def counting(self, *words, **options):
        count.append(words)
        start(self, *words, **options)

    monkeypatch.setattr(child_module.Child, "__init__", counting)
    return count


def test_a_cached_compilation_starts_no_process(client, program, started, kept):
    for _ in range(3):
        assert adds(client.compile(program("add"), cache=kept, isolated=True))
    assert (len(kept), len(started)) == (1, 1)
    assert adds(client.compile(program("add"), cache=kept))
    other = type(kept)()
    client.compile(program("add"), cache=other)
    assert other.keys() == kept.keys()
    client.compile(program("add"), cache=other, isolated=True)
    assert len(started) == 1


@pytest.mark.usefixtures("client")  # the first contact also starts a process
@pytest.mark.parametrize("value", ["1", "", "0"])
def test_the_variable_says_what_is_isolated(clean_env, program, monkeypatch, started, value):
    monkeypatch.setenv("PJRT_HUB_CACHE", clean_env["PJRT_HUB_CACHE"])
    monkeypatch.setenv("PJRT_HUB_ISOLATE", value)
    with pjrt_hub.client(PLATFORM, offline=True) as client:
        assert adds(client.compile(program("add")))
        assert len(started) == (1 if value == "1" else 0)
        assert adds(client.compile(program("add"), isolated=value != "1"))
        assert len(started) == 1


@pytest.mark.slow
def test_a_deadline(clean_env, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_CACHE", clean_env["PJRT_HUB_CACHE"])
    monkeypatch.setenv("PJRT_HUB_ISOLATE_SECONDS", "8")
    with pjrt_hub.client(PLATFORM, offline=True) as client:
        with pytest.raises(PluginTimeoutError, match="within 8 s") as caught:
            client.compile(products(), isolated=True)
        assert caught.value.seconds == 8
        assert "PJRT_HUB_ISOLATE_SECONDS" in caught.value.hint


def compilers(mark: str) -> list[int]:
    """The compiler processes that have that mark in their environment."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words, env = (
                Path(f"/proc/{pid}", name).read_bytes() for name in ("cmdline", "environ")
            )
            if b"pjrt_hub.running.compilation.isolation" in words and mark.encode() in env:
                found.append(int(pid))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("end", ["SIGINT", "SIGKILL"])
def test_the_compiler_ends_with_whoever_waits_for_it(child, tmp_path, wait_until, end):
    path = tmp_path / "slow.mlir"
    path.write_text(products())
    mark = f"MARK={tmp_path}"
    env = {**child.env, "MARK": str(tmp_path)}
    words = command(compile_isolated, str(path))
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE) as waiting:
        wait_until(lambda: len(compilers(mark)) == 2)  # the watcher and its child, the compiler
        time.sleep(0.5)
        begun = time.monotonic()
        waiting.send_signal(getattr(signal, end))
        out, _ = waiting.communicate(timeout=30)
        took = time.monotonic() - begun
    if end == "SIGINT":
        assert out == b"interrupted\n"
        assert took < 5  # usually less than a second
    wait_until(lambda: compilers(mark) == [])


def compile_isolated(client, path):
    try:
        client.compile(path, isolated=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def test_where_no_other_process_can_compile(plugin, program, caplog):
    """A plugin object made by hand does not tell where another process could load it."""
    with pjrt_hub.Plugin(plugin.api).client() as client, caplog.at_level(logging.WARNING):
        assert adds(client.compile(program("add"), isolated=True))
    [record] = [each for each in caplog.records if each.name == "pjrt_hub.isolation"]
    assert "compiled in this process, which its compiler may end: " in record.getMessage()


def test_a_library_that_was_replaced_is_not_used(own, program, caplog, monkeypatch):
    monkeypatch.setattr(own.api, "identity", "another")
    with caplog.at_level(logging.WARNING):
        assert adds(own.compile(program("add"), isolated=True))
    assert "is not the file any more that was loaded" in caplog.text


def test_create_options_that_only_one_client_can_have(own, program, caplog, started, monkeypatch):
    """If no second client can be made, that is tried only once. Older plugins crash on it."""
    refused = {"cpu_device_count": "two"}
    monkeypatch.setattr(own.plugin.policy, "check_create_options", lambda *_: refused)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert adds(own.compile(program("add"), isolated=True))
    assert len(started) == 1
    words = "died of SIGABRT" if own.api.version.minor < 115 else "has type index 0 but expected"
    assert caplog.text.count(words) == 2
