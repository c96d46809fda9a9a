"""The command line with a stubbed public interface: text, JSON, exit statuses and errors."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.base.abi import ApiVersion, Verdict
from pjrt_hub.cli import arguments, output
from pjrt_hub.cli.__main__ import run
from pjrt_hub.door.diagnosis import Step

PROGRAM = "func.func @main() { return }\n"


class Result(SimpleNamespace):
    """A stub of a buffer, with the members that the command line uses."""

    def __init__(self, array):
        super().__init__(dtype=array.dtype, shape=array.shape, waited=False)
        self.element_type, self.device = f"of {array.dtype}", "a device"
        self.ready = SimpleNamespace(wait=lambda: setattr(self, "waited", True))
        self.to_numpy = lambda: array

    def __str__(self):
        assert self.waited
        return str(self.to_numpy())


class Client:
    """A stub of a client whose programs return their arguments."""

    platform_name = "cpu"

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def buffer_from_host(self, array):
        return Result(array)

    def compile(self, program, *, isolated):
        assert program.code == PROGRAM.encode()
        return self

    def __call__(self, *args, simplify):
        assert simplify is False
        for number, arg in enumerate(args):
            if arg.dtype == np.float64:
                raise TypeError(f"argument {number} must be f32[], the buffer has f64\n\nhint: no")
        return args


@pytest.fixture
def hub(capsys):
    """Run `pjrt-hub` with these words, and return its stdout, or its stderr if it fails."""

    def call(words, status=0):
        assert run(words.split()) == status
        out, err = capsys.readouterr()
        printed, nothing = (err, out) if status else (out, err)
        assert nothing == ""
        return printed

    return call


@pytest.fixture
def public(monkeypatch):
    """Replace a public function of the package."""

    def replace(name, value):
        monkeypatch.setattr(pjrt_hub, name, value, raising=False)

    return replace


@pytest.fixture
def program(tmp_path, public):
    public("client", lambda platform, *, offline: Client())
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return str(path)


FOUND = pjrt_hub.Finding(
    name="cpu",
    platform="cpu",
    version="0.0.1",
    api_version=ApiVersion(0, 81),
    priority=0,
    hardware=Verdict(True, ""),
    source="vendor wheel",
    origin="xla-cpu-pjrt 0.0.1",
    library_path=Path("/site/xla_cpu_pjrt.so"),
    verdict=Verdict(True, "the only one"),
    chosen=True,
    aside=False,
    package="xla-cpu-pjrt",
    license="MIT",
)
LOST = pjrt_hub.Finding(
    name="cuda13",
    platform="cuda",
    version="",
    api_version=None,
    priority=500,
    hardware=Verdict(False, "no /dev/nvidiactl"),
    source="registry",
    origin="jax-cuda13-pjrt",
    library_path=None,
    verdict=Verdict(False, "no NVIDIA device\nis here"),
    chosen=False,
    aside=False,
)


@pytest.fixture
def screen(monkeypatch) -> Callable[[int], io.StringIO]:
    """Make stdout a terminal of `columns` columns without colours."""

    def make(columns: int) -> io.StringIO:
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdout", screen)
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}.items():
            monkeypatch.setenv(name, value)
        return screen

    return make


def lines_of(screen: io.StringIO) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()


def test_list_in_a_pipe_is_a_line_per_candidate(public, hub):
    public("plugins", lambda platform: [FOUND, LOST])
    header, found, lost = hub("list").splitlines()
    assert header.split() == ["NAME", "PLATFORM", "VERSION", "API", "VERDICT"]
    assert found.split(maxsplit=4) == ["cpu", "cpu", "0.0.1", "0.81", "chosen: the only one"]
    assert lost.endswith("no: no NVIDIA device is here")
    assert header.index("VERDICT") == found.index("chosen") == lost.index("no: ")
    header, found, _ = hub("list --wide").splitlines()
    names = "NAME PLATFORM VERSION API PACKAGE LICENSE ATTESTED BY PRIORITY HARDWARE FROM VERDICT"
    assert header.split() == names.split()
    *values, last = found.split(maxsplit=9)[4:]
    assert values == ["xla-cpu-pjrt", "MIT", "nobody", "0", "yes"]
    assert last == "/site/xla_cpu_pjrt.so  chosen: the only one"


def test_list_has_a_line_for_each_plugin_on_a_terminal(public, screen):
    shown = screen(50)
    public("plugins", lambda platform: [FOUND, LOST])
    assert run(["list"]) == 0
    lines = lines_of(shown)
    assert len(lines) == 3
    assert [len(line) for line in lines if len(line) > 50] == []
    assert lines[2].endswith("…")


def test_list_as_json(public, hub):
    asked = []
    public("plugins", lambda platform: asked.append(platform) or [FOUND, LOST])
    found, lost = json.loads(hub("list cuda --json"))
    assert asked == ["cuda"]
    assert found["api_version"] == "0.81"
    assert found["chosen"] is True
    assert found["library_path"] == "/site/xla_cpu_pjrt.so"
    assert (lost["api_version"], lost["library_path"]) == (None, None)
    assert lost["hardware"] == {"ok": False, "reason": "no /dev/nvidiactl"}


def test_a_table_on_a_terminal_wraps_and_keeps_every_word(screen):
    shown, words = screen(40), "one two three four five six seven eight nine"
    output.show_table(("name", "verdict"), [("cpu", words)])
    assert max(map(len, lines_of(shown))) <= 40
    assert words in " ".join(" ".join(lines_of(shown)).split())


def test_get_prints_the_path(public, hub):
    asked = []

    def fetch(name, **given):
        asked.append((name, given))
        return Path("/cache/plugin.so")

    public("fetch", fetch)
    assert hub("get cpu --offline") == "/cache/plugin.so\n"
    told = json.loads(hub("get cpu --plugin-only --json"))
    assert told == {"platform": "cpu", "path": "/cache/plugin.so"}
    assert asked == [
        ("cpu", {"offline": True, "plugin_only": False}),
        ("cpu", {"offline": False, "plugin_only": True}),
    ]


def test_run_prints_every_result(program, public, hub):
    asked = []
    public("client", lambda name, *, offline: asked.append((name, offline)) or Client())
    shown = "[1. 2.]\nof float32[2] on a device\nTrue\nof bool[] on a device\n"
    assert hub(f"run {program} --platform ./x.so --offline --arg f32[2]:1,2 --arg true") == shown
    assert asked == [("./x.so", True)]


def test_run_as_json_keeps_what_json_cannot_say(program, hub):
    literals = "--arg f32[3]:1,nan,-inf --arg bf16[1]:0.5 --arg s4[2]:-8,7 --arg c64[1]:1-2j"
    results = json.loads(hub(f"run {program} --json {literals}"))["results"]
    data = [result["data"] for result in results]
    assert data == [[1.0, "NaN", "-Infinity"], [0.5], [-8, 7], [[1.0, -2.0]]]
    assert (results[1]["dtype"], results[1]["element_type"]) == ("bfloat16", "of bfloat16")
    assert results[3]["shape"] == [1]


def test_an_argument_that_does_not_fit_is_an_error_with_a_hint(program, hub):
    said = "argument 0 must be f32[], the buffer has f64\n\nhint: omit --arg: it takes none\n"
    assert hub(f"run {program} --arg f64[]:1", status=1) == f"error: {said}"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--arg 1 --output new/x.npy", 2, "thereisnofolder{tmp_path}/new."),
        ("--arg 1 --output new/folder", 2, "thereisnofolder{tmp_path}/new."),
        ("--arg 1 --arg 2 --output x.npy", 1, "theprogramhas2results"),
        ("--arg bf16[1]:1 --output x.npy", 1, "cannotnamethetypebfloat16"),
    ],
)
def test_run_refuses_to_write_what_a_file_cannot_hold(
    program, tmp_path, monkeypatch, hub, words, status, message
):
    monkeypatch.chdir(tmp_path)
    words = words.replace("new/", f"{tmp_path}/new/")
    told = "".join(hub(f"run {program} {words}", status).replace("│", " ").split())
    assert message.format(tmp_path=tmp_path) in told
    assert os.listdir(tmp_path) == ["program.mlir"]


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("3.0", "float32", 3.0),
        ("-7", "int32", -7),
        ("true", "bool", True),
        ("f32[]:1e3", "float32", 1000.0),
        ("f64[2,2]:1,2,3,4", "float64", [[1, 2], [3, 4]]),
        ("ui8[2]:255,0", "uint8", [255, 0]),
        ("u64[1]:18446744073709551615", "uint64", [18446744073709551615]),
        ("s32[2,2]:5", "int32", [[5, 5], [5, 5]]),
        ("f32[0]:", "float32", []),
        ("pred[2]:1,false", "bool", [True, False]),
        ("c128[1]:1+2j", "complex128", [1 + 2j]),
        ("f8e4m3fn[1]:1.5", "float8_e4m3fn", [1.5]),
        ("f8E4M3FN[1]:1.5", "float8_e4m3fn", [1.5]),
        ("complex<f32>[1]:1+2j", "complex64", [1 + 2j]),
        ("i8[2]:1,-1", "int8", [1, -1]),
        ("u8[1]:255", "uint8", [255]),
        ("i4[1]:-8", "int4", [-8]),
        ("float32[1]:1.5", "float32", [1.5]),
        ("int4[1]:7", "int4", [7]),
        ("u32[2]:0xffffffff,0x0", "uint32", [0xFFFFFFFF, 0]),
        ("f32[1]:1e39", "float32", [float("inf")]),
    ],
)
def test_literals(text, dtype, value):
    array = arguments.parse(text)
    assert array.dtype.name == dtype
    assert array.tolist() == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file.txt", "'file.txt' is not a number"),
        ("4000000000", "'4000000000' is not a value of int32: -2147483648 to 2147483647"),
        ("s4[1]:8", "'8' is not a value of int4: -8 to 7"),
        ("s32[1]:1.5", "'1.5' is not a value of int32"),
        ("f32[2]:1,2,3", "[2] holds 2 values, found 3"),
        ("q7[1]:1", "'q7' is not an element type"),
        ("pred[1]:2", "'2' is not true, false, 1 or 0"),
        ("c64[1]:x", "'x' is not a complex number"),
        ("f32[2,,3]:1", "'f32[2,,3]:1' is not a number"),
        ("f32[999999999999999]:0", "Unable to allocate"),
    ],
)
def test_a_junk_literal_is_a_usage_error(program, hub, text, message):
    said = " ".join(hub(f"run {program} --arg {text}", status=2).split())
    assert message in said
    assert "FILE.npy" in said


def test_files_as_arguments(tmp_path):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    assert arguments.parse(str(tmp_path / "a.npy")).tolist() == array.tolist()
    write_safetensors(tmp_path / "w.safetensors", x=1, y=2)
    two = arguments.parse(f"{tmp_path}/w.safetensors:y")
    assert two.dtype == ml_dtypes.bfloat16
    assert two.tolist() == [2.0]
    write_safetensors(tmp_path / "only.safetensors", x=1)
    assert arguments.parse(f"{tmp_path}/only.safetensors").tolist() == [1.0]


def write_safetensors(path, **numbers):
    """Write a safetensors file with a one-element tensor for each number."""
    header = {
        name: {"dtype": "BF16", "shape": [1], "data_offsets": [2 * i, 2 * i + 2]}
        for i, name in enumerate(numbers)
    }
    text = json.dumps(header).encode()
    data = np.array([*numbers.values()], ml_dtypes.bfloat16).tobytes()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("junk.npy", 1, "junk.npy is not a .npy file of numbers"),
        ("objects.npy", 1, "hint: write it with numpy.save"),
        ("short.npy", 1, "a .npy file cannot name bfloat16"),
        ("several.npy", 1, "several.npy is not a .npy file of numbers"),
        ("w.safetensors:z", 1, "holds 2 tensors, none of them named 'z'"),
        ("w.safetensors", 1, "w.safetensors:x"),
        ("absent.npy", 2, "absent.npy: No such file or directory"),
    ],
)
def test_junk_files_as_arguments(program, tmp_path, hub, name, status, message):
    (tmp_path / "junk.npy").write_bytes(b"junk")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "short.npy", np.array([1], ml_dtypes.bfloat16))
    np.savez(tmp_path / "several.npz", a=[1])
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    write_safetensors(tmp_path / "w.safetensors", x=1, y=2)
    assert message in " ".join(hub(f"run {program} --arg {tmp_path}/{name}", status).split())


def test_doctor_fails_where_a_step_does(public, capsys):
    good = Step("hardware", True, "/dev/nvidiactl")
    bad = Step("library", False, "no libcudart.so.13", "install it")
    public("diagnose", lambda platform, *, to_run, after: pjrt_hub.Diagnosis((good,)))
    assert run(["doctor", "cuda"]) == 0
    public("diagnose", lambda platform, *, to_run, after: pjrt_hub.Diagnosis((good, bad)))
    assert run(["doctor", "cuda"]) == 1
    first = "ok    hardware: /dev/nvidiactl\n"
    rest = "no    library: no libcudart.so.13\n\nhint  library: install it\n"
    assert capsys.readouterr().out == first + first + rest
    assert run(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[1]["detail"] == "no libcudart.so.13"


@pytest.fixture
def failing(public, monkeypatch):
    """Make `pjrt-hub list` raise an exception, and check that it prints no traceback."""
    monkeypatch.delenv("PJRT_HUB_DEBUG", raising=False)

    def make(raised):
        def plugins(platform):
            raise raised

        public("plugins", plugins)

    return make


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (errors.PluginNotFoundError("no plugin", hint="do it"), 3),
        (errors.AmbiguousPluginError("two plugins", hint="do it"), 3),
        (errors.DownloadError("no file", url="x", hint="do it"), 4),
        (errors.OfflineError("no network", hint="do it"), 4),
        (errors.PluginLoadError("no library", path="x", hint="do it"), 5),
        (errors.ManifestError("no data", hint="do it"), 5),
        (errors.InvalidArgumentError("no program", hint="do it"), 1),
    ],
)
def test_an_error_is_a_paragraph_a_hint_and_a_status(failing, hub, monkeypatch, raised, status):
    failing(raised)
    assert hub("list", status) == f"error: {raised.message}\n\nhint: do it\n"
    monkeypatch.setenv("PJRT_HUB_DEBUG", "1")
    assert "Traceback" in hub("list", status)


def test_verbose_is_debug_for_one_command(public, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_DEBUG", "")
    asked = []
    public("plugins", lambda platform: asked.append(os.environ["PJRT_HUB_DEBUG"]) or [])
    assert run(["list"]) == run(["--verbose", "list"]) == run(["-v", "list"]) == 0
    assert asked == ["", "all", "all"]


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("x"), "KeyError: 'x'"),  # a bug in pjrt-hub
        (FileNotFoundError(2, "No such file", "/none/x"), "/none/x: No such file"),
        (OSError(28, "No space left"), "No space left"),
        (OSError("odd"), "odd"),
    ],
)
def test_a_defect_and_what_the_system_refuses_are_said(failing, hub, raised, said):
    failing(raised)
    told = hub("list", status=1)
    assert told.startswith(f"error: {said}\n\nhint: ")
    assert "Traceback" not in told


@pytest.mark.parametrize("note", ["", "interrupted: 1.0 of 3.1 MB are kept"])
def test_ctrl_c_is_one_line(failing, capsys, note):
    exc = KeyboardInterrupt()
    if note:
        exc.add_note(note)
    failing(exc)
    assert run(["list"]) == 130
    assert capsys.readouterr() == ("", f"{note}\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("nonsense", "nonsense"),
        ("list --nonsense", "--nonsense"),
        ("get", "PLATFORM"),
        ("run absent.mlir", "absent.mlir"),
    ],
)
def test_a_wrong_command_line(hub, args, said):
    told = hub(args, status=2)
    assert "Usage: pjrt-hub" in told
    assert said in told


def test_help_names_every_command(hub):
    said = hub("--help")
    names = ("list", "run", "fetch", "cache", "doctor")
    assert {name: said.count(f"\n  {name} ") for name in names} == dict.fromkeys(names, 1)


def test_a_closed_pipe_is_silent():
    command = [sys.executable, "-m", "pjrt_hub.cli", "--help"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait(timeout=60) == 1


@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_matter(redirect):
    command = f"exec {sys.executable} -m pjrt_hub.cli list {redirect}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr == b""
    assert (b"VERDICT" in done.stdout) == (">&- " not in f" {redirect} ".replace("2>&-", ""))


def test_a_path_that_the_locale_cannot_spell_is_escaped(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pjrt_hub.cli", "cache", "list"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PJRT_HUB_CACHE": str(tmp_path / "ü")},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.strip().endswith(rb"/\xfc")


@pytest.mark.parametrize(("columns", "wide"), [(40, 40), (100, 100), (240, 100)])
def test_text_is_as_wide_as_the_terminal_but_can_be_read(monkeypatch, screen, columns, wide):
    shown = screen(columns)
    assert output.width() == wide
    monkeypatch.setattr(shown, "isatty", lambda: False)
    assert output.width() == 100  # lines in a pipe have the same width everywhere
