"""The command line as a user runs it: processes, pipes, a terminal, statuses, a real plugin."""

import json
import os
import re
import sys
import threading
from pathlib import Path

import finished
import numpy as np
import pytest
from children import NAME, PLATFORM, PROGRAMS

import pjrt_hub

HELLO = str(Path(__file__).parents[2] / "examples" / "hello.mlir")
COMMAND = [sys.executable, "-m", "pjrt_hub.cli"]


@pytest.fixture
def hub(clean_env, tmp_path):
    """Run `pjrt-hub` with a cache of its own and without the user's choices."""
    clean = {**clean_env, "PJRT_HUB_CACHE": str(tmp_path / "cache")}

    def call(*args, status=0, input=None, **env):
        done = finished.run(*COMMAND, *args, input=input, env={**clean, **env})
        assert done.returncode == status, done.stdout + done.stderr
        return done

    call.env = clean
    return call


def test_run_prints_an_array_and_where_it_is(hub):
    done = hub("run", HELLO, "--platform", PLATFORM, "--arg", "f32[8]:0.5", "--arg", "f32[8]:2")
    assert "0.9640276" in done.stdout
    assert "f32[8]" in done.stdout


@pytest.mark.parametrize("place", ["-", "/dev/stdin", "named"])
def test_a_program_comes_through_a_pipe_once(hub, tmp_path, place):
    """There is no second time to read it."""
    text = Path(HELLO).read_text()
    told = {"input": text}
    if place == "named":
        os.mkfifo(place := tmp_path / "p.mlir")
        threading.Thread(target=place.write_text, args=(text,), daemon=True).start()
        told = {}
    done = hub("inspect", place, "--json", **told)
    assert json.loads(done.stdout)["inputs"] == ["f32[8]", "f32[8]"]


def test_inspect_asks_the_plugin_of_any_program(hub, tmp_path):
    (bad := tmp_path / "bad.mlir").write_text(Path(HELLO).read_text().replace("add", "nope"))
    assert "plugin" not in json.loads(hub("inspect", HELLO, "--json").stdout)
    for file, status, can_run in ((HELLO, 0, True), (bad, 1, False)):
        done = hub("inspect", file, "--compile", "--json", status=status)
        plugin = json.loads(done.stdout)["plugin"]
        assert (plugin["can_run"], plugin["compiled"]) == (can_run, can_run)
    assert f"\n{plugin['name']}: can run it, compiled" in hub("inspect", HELLO, "--compile").stdout
    done = hub("inspect", HELLO, "--platform", "nope", status=3)
    assert "nope: cannot run it\n  because no plugin for 'nope'" in done.stdout


def test_fetch_takes_no_file_that_is_no_plugin(hub):
    done = hub("fetch", "/etc/passwd", status=5)
    assert (done.stdout, "is not a shared library" in done.stderr) == ("", True)


def test_a_name_that_nothing_has_is_said(hub):
    assert "nothing is named 'nope'" in hub("list", "nope").stderr
    assert "nothing is named so that it contains 'nope'" in hub("search", "nope").stderr
    for command in ("targets", "info"):
        assert "error: nothing is named 'nope'" in hub(command, "nope", status=3).stderr
    assert hub("targets", "cpu").stdout.startswith("TARGET")


def test_checks_as_json(hub):
    checks = json.loads(hub("check", "--list", "--area", "events", "--json").stdout)
    assert {tuple(each) for each in checks} == {("name", "number", "needs", "title")}


@pytest.mark.cpu("its flags")
def test_a_flag_may_be_true(hub, tmp_path):
    flag = ("--flag", "xla_cpu_enable_fast_math=true", "-o", out := tmp_path / "p")
    hub("export", HELLO, *flag)
    assert b"True" in out.read_bytes()
    options = pjrt_hub.CompileOptions(flags={"xla_cpu_enable_fast_math": "true"})
    with pjrt_hub.client("cpu", offline=True) as client:
        exe = client.compile(Path(HELLO).read_text(), options)
        assert len(exe.signature.outputs) == 1


def test_a_dimension_that_the_program_lacks_is_refused(hub, tmp_path):
    command = ("export", HELLO, "-o", tmp_path / "p", "--dimension", "b=3")
    assert "'b' is no symbolic dimension" in hub(*command, status=2).stderr
    assert not (tmp_path / "p").exists()


def test_a_path_that_names_no_plugin_is_told(hub):
    paths = {"PJRT_HUB_PLUGIN_PATH": "/nope:foo"}
    told = hub("doctor", "cpu", **paths).stdout
    assert "path: PJRT_HUB_PLUGIN_PATH names foo, which is left out: the path is not abs" in told
    done = hub("run", PROGRAMS / "no_args.mlir", **paths)
    assert "/nope: /nope is neither a file nor a folder" in done.stderr


def test_colours_in_a_pipe_where_they_are_forced(hub):
    assert "\x1b[" in (done := hub("list", "cpu", FORCE_COLOR="1", TERM="xterm")).stdout
    plain = hub("list", "cpu").stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", done.stdout) == plain


def test_arrays_do_not_come_through_a_pipe(hub, tmp_path):
    os.mkfifo(pipe := tmp_path / "p.npy")
    done = hub("run", HELLO, "--arg", pipe, status=1)
    assert f"{pipe} is a pipe, and arrays are mapped" in done.stderr


def test_run_reads_and_writes_files(hub, tmp_path):
    a, b, out = (tmp_path / f"{name}.npy" for name in ("a", "b", "out"))
    np.save(a, np.arange(8, dtype=np.float32))
    np.save(b, np.linspace(-1, 1, 8, dtype=np.float32)[::-1])
    hub("run", HELLO, "--platform", PLATFORM, "--arg", a, "--arg", b, "--output", out)
    expected = np.tanh(np.load(a) * np.load(b) + 1)
    assert np.allclose(np.load(out), expected, atol=1e-6)


def test_run_uses_one_device(hub):
    split = PROGRAMS / "shard_map_shardy.mlir"
    done = hub("run", split, "--platform", PLATFORM, "--arg", "f32[16,4]:1", status=1)
    assert f"1 replica(s) of 8 partition(s) need 8 devices, {NAME} has 1" in done.stderr
    assert "this runs on one device; docs/executables.md" in done.stderr


def test_several_results_are_several_files(hub, tmp_path):
    args = ["--platform", PLATFORM, "--arg", "f32[2,3]:-1,0,1,2,3,4", "--output", tmp_path / "out"]
    done = hub("run", PROGRAMS / "two_outputs.mlir", *args)
    double, positive = done.stdout.split()
    assert [double, positive] == [str(tmp_path / "out" / f"{n}.npy") for n in (0, 1)]
    assert np.load(double).tolist() == [[-2, 0, 2], [4, 6, 8]]
    assert np.load(positive).tolist() == [[False, False, True], [True, True, True]]


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["--arg", "f64[8]:1", "--arg", "f32[8]:1"], 1, "argument 0 of 2 must be"),
        (["--arg", "f32[7]:1", "--arg", "f32[8]:1"], 1, "argument 0 of 2 must be"),
        (["--arg", "f32[8]:1"], 1, "2"),
        (["--platform", "cppu"], 3, "cpu"),
        (["--platform", "/absent/plugin.so"], 5, "/absent/plugin.so"),
        (["--arg", "junk"], 2, "'junk' is not a number"),
        (["--arg", __file__ + ".npy"], 2, "No such file or directory"),
    ],
)
@pytest.mark.slow
def test_a_failure_is_a_paragraph_a_hint_and_a_status(hub, args, status, message):
    platform = [] if "--platform" in args else ["--platform", PLATFORM]
    done = hub("run", HELLO, *platform, *args, status=status)
    assert done.stdout == ""
    said = " ".join(done.stderr.replace("│", " ").split())
    assert message in said
    assert "Traceback" not in said
    if status != 2:
        assert "error: " in done.stderr
        assert "hint: " in done.stderr


def test_a_junk_program_is_an_error_with_a_hint(hub, tmp_path):
    for name, content in (("a.mlir", b"junk"), ("b.mlir", b"\xff\x00junk"), ("c.mlir", b"")):
        (tmp_path / name).write_bytes(content)
        done = hub("run", tmp_path / name, "--platform", PLATFORM, status=1)
        assert "error: " in done.stderr
        assert "hint: " in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.cpu("its compiler dies")
def test_a_program_that_the_compiler_dies_of_is_an_error(hub, library, tmp_path):
    path = tmp_path / "recursion.mlir"
    path.write_text(
        "func.func @main(%a: tensor<i32>) -> tensor<i32> {\n"
        "  %r = func.call @main(%a) : (tensor<i32>) -> tensor<i32>\n"
        "  return %r : tensor<i32>\n}\n"
    )
    done = hub("run", path, "--platform", PLATFORM, status=5)
    assert done.stdout == ""
    assert f"{library.name} died of SIGSEGV as it compiled {path}, in a process" in done.stderr
    hub("run", path, "--platform", PLATFORM, "--no-isolate", status=-11)
    hub("run", path, "--platform", PLATFORM, status=-11, PJRT_HUB_ISOLATE="0")


def test_debug_adds_the_traceback(hub):
    done = hub("run", HELLO, "--platform", "cppu", status=3, PJRT_HUB_DEBUG="1")
    assert "Traceback" in done.stderr
    assert "error: " in done.stderr


def test_list_explains_every_candidate(hub):
    listed = json.loads(hub("list", "cpu", "--json").stdout)
    chosen = [found for found in listed if found["chosen"]]
    assert [found["platform"] for found in chosen] == ["cpu"]
    assert {"cpu", "cuda", "tpu", "rocm"} <= {found["platform"] for found in listed}
    assert [
        found for found in listed if not found["verdict"]["ok"] and not found["verdict"]["reason"]
    ] == []
    table = hub("list", "cpu", "--all").stdout.splitlines()
    assert len(table) == len(listed) + 1
    short = hub("list", "cpu").stdout.splitlines()
    aside = [found for found in listed if found["aside"]]
    assert len(short) == len(table) - len(aside) + 1
    assert short[-1] == f"{len(aside)} more: --all"
    assert table[0].startswith("NAME ")


def test_get_finds_what_is_installed(hub, library, tmp_path):
    done = hub("fetch", "cpu", "--offline")
    assert Path(done.stdout.strip()) == library
    assert not (tmp_path / "cache").exists()


def test_a_library_by_its_path(hub):
    library = hub("get", "cpu").stdout.strip()
    done = hub("run", PROGRAMS / "no_args.mlir", "--platform", library, "--json")
    assert json.loads(done.stdout)["platform"] == NAME


def test_compile_for_what_describes_no_machines(hub, tmp_path):
    command = ("compile", HELLO, "-o", tmp_path / "out", "--num-replicas", 2, "--target")
    done = hub(*command, "cpu:any", status=1)
    assert "describes no devices that are not there" in done.stderr
    assert "hint: " in done.stderr
    done = hub(*command, "cpu:any", "--compile-option", "num_replicas", status=2)
    assert "'num_replicas' is not NAME=VALUE" in " ".join(done.stderr.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
