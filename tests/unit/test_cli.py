"""The command line against a public interface of plain objects: text, JSON, statuses, errors."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
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

PROGRAM = "func.func @main() { return }\n"


class Result(SimpleNamespace):
    """A buffer as the command line sees it."""

    def __init__(self, array):
        super().__init__(dtype=array.dtype, shape=array.shape, waited=False)
        self.element_type, self.device = f"of {array.dtype}", "a device"
        self.ready = SimpleNamespace(wait=lambda: setattr(self, "waited", True))
        self.to_numpy = lambda: array

    def __str__(self):
        assert self.waited
        return str(self.to_numpy())


class Client:
    """A client whose programs give back their arguments."""

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


def test_list_in_a_pipe_is_a_line_per_candidate(public, capsys):
    public("plugins", lambda platform: [FOUND, LOST])
    assert run(["list"]) == 0
    header, found, lost = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "PLATFORM", "VERSION", "API", "VERDICT"]
    assert found.split(maxsplit=4) == ["cpu", "cpu", "0.0.1", "0.81", "chosen: the only one"]
    assert lost.endswith("no: no NVIDIA device is here")
    assert header.index("VERDICT") == found.index("chosen") == lost.index("no: ")
    assert run(["list", "--wide"]) == 0
    header, found, _ = capsys.readouterr().out.splitlines()
    assert header.split() == [
        *("NAME", "PLATFORM", "VERSION", "API", "PACKAGE", "LICENSE", "ATTESTED", "BY"),
        *("PRIORITY", "HARDWARE", "FROM", "VERDICT"),
    ]
    assert found.split(maxsplit=9)[4:] == [
        *("xla-cpu-pjrt", "MIT", "nobody", "0", "yes"),
        "/site/xla_cpu_pjrt.so  chosen: the only one",
    ]


def test_list_counts_what_is_not_for_this_machine(public, capsys):
    elsewhere = LOST._replace(aside=True)
    public("plugins", lambda platform: [FOUND, elsewhere, elsewhere])
    assert run(["list"]) == 0
    _, _, last = capsys.readouterr().out.splitlines()
    assert last == "2 more: --all"
    assert run(["list", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_list_has_a_line_for_each_plugin_on_a_terminal(public, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in {"COLUMNS": "50", "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    public("plugins", lambda platform: [FOUND, LOST])
    assert run(["list"]) == 0
    lines = re.sub(r"\x1b\[\d*m", "", screen.getvalue()).splitlines()
    assert len(lines) == 3
    assert [len(line) for line in lines if len(line) > 50] == []
    assert lines[2].endswith("…")


def test_list_as_json(public, capsys):
    asked = []
    public("plugins", lambda platform: asked.append(platform) or [FOUND, LOST])
    assert run(["list", "cuda", "--json"]) == 0
    found, lost = json.loads(capsys.readouterr().out)
    assert asked == ["cuda"]
    assert found["api_version"] == "0.81"
    assert found["chosen"] is True
    assert found["library_path"] == "/site/xla_cpu_pjrt.so"
    assert (lost["api_version"], lost["library_path"]) == (None, None)
    assert lost["hardware"] == {"ok": False, "reason": "no /dev/nvidiactl"}


def test_a_table_on_a_terminal_wraps_and_keeps_every_word(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    output.show_table(
        ("name", "verdict"), [("cpu", "one two three four five six seven eight nine")]
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, shown.splitlines())) <= 40
    assert "one two three four five six seven eight nine" in " ".join(shown.split())


def test_get_prints_the_path(public, capsys):
    def fetch(name, *, offline, plugin_only):
        assert (name, offline, plugin_only) == ("cpu", True, False)
        return Path("/cache/plugin.so")

    public("fetch", fetch)
    assert run(["get", "cpu", "--offline"]) == 0
    assert capsys.readouterr() == ("/cache/plugin.so\n", "")
    assert run(["get", "cpu", "--offline", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"platform": "cpu", "path": "/cache/plugin.so"}


def test_run_prints_every_result(program, capsys):
    assert run(["run", program, "--arg", "f32[2]:1,2", "--arg", "true"]) == 0
    assert capsys.readouterr().out == (
        "[1. 2.]\nof float32[2] on a device\nTrue\nof bool[] on a device\n"
    )


def test_run_as_json_keeps_what_json_cannot_say(program, capsys):
    literals = ["f32[3]:1,nan,-inf", "bf16[1]:0.5", "s4[2]:-8,7", "c64[1]:1-2j"]
    assert run(["run", program, "--json", *(w for text in literals for w in ("--arg", text))]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["data"] for result in results] == [
        [1.0, "NaN", "-Infinity"],
        [0.5],
        [-8, 7],
        [[1.0, -2.0]],
    ]
    assert (results[1]["dtype"], results[1]["element_type"]) == ("bfloat16", "of bfloat16")
    assert results[3]["shape"] == [1]


def test_run_takes_a_platform_or_a_library(program, public, capsys):
    asked = []
    public("client", lambda name, *, offline: asked.append((name, offline)) or Client())
    assert run(["run", program, "--platform", "./x.so", "--offline", "--arg", "1"]) == 0
    assert asked == [("./x.so", True)]
    assert capsys.readouterr().out == "1\nof int32[] on a device\n"


def test_an_argument_that_does_not_fit_is_an_error_with_a_hint(program, capsys):
    assert run(["run", program, "--arg", "f64[]:1"]) == 1
    assert capsys.readouterr().err == (
        "error: argument 0 must be f32[], the buffer has f64\n\nhint: omit --arg: it takes none\n"
    )


def test_run_writes_files(program, tmp_path, capsys):
    one, many = tmp_path / "one.npy", tmp_path / "many"
    assert run(["run", program, "--arg", "s8[2]:1,2", "--output", str(one)]) == 0
    assert np.load(one).tolist() == [1, 2]
    capsys.readouterr()
    assert run(["run", program, "--arg", "1", "--arg", "2", "--output", str(many)]) == 0
    assert [int(np.load(many / f"{n}.npy")) for n in (0, 1)] == [1, 2]
    assert capsys.readouterr().out.split() == [str(many / "0.npy"), str(many / "1.npy")]


@pytest.mark.parametrize("out", ["new/x.npy", "new/folder"])
def test_run_makes_no_folder_around_what_it_writes(program, tmp_path, capsys, out):
    assert run(["run", program, "--arg", "1", "--output", str(tmp_path / out)]) == 2
    said = "".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"thereisnofolder{tmp_path / 'new'}." in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--arg", "1", "--arg", "2", "--output", "x.npy"], "the program has 2 results"),
        (["--arg", "bf16[1]:1", "--output", "x.npy"], "cannot name the type bfloat16"),
    ],
)
def test_run_refuses_to_write_what_a_file_cannot_hold(
    program, tmp_path, monkeypatch, capsys, args, message
):
    monkeypatch.chdir(tmp_path)
    assert run(["run", program, *args]) == 1
    assert message in capsys.readouterr().err
    assert not Path("x.npy").exists()


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
def test_a_junk_literal_is_a_usage_error(program, capsys, text, message):
    assert run(["run", program, "--arg", text]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert "FILE.npy" in said


def test_files_as_arguments(tmp_path):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    assert arguments.parse(str(tmp_path / "a.npy")).tolist() == array.tolist()
    write_safetensors(tmp_path / "w.safetensors", {"x": b"\x80\x3f", "y": b"\x00\x40"})
    two = arguments.parse(f"{tmp_path}/w.safetensors:y")
    assert two.dtype == ml_dtypes.bfloat16
    assert two.tolist() == [2.0]
    write_safetensors(tmp_path / "only.safetensors", {"x": b"\x80\x3f"})
    assert arguments.parse(f"{tmp_path}/only.safetensors").tolist() == [1.0]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, raw in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "BF16", "shape": [len(raw) // 2], "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_junk_files_as_arguments(program, tmp_path, capsys):
    (tmp_path / "junk.npy").write_bytes(b"junk")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "short.npy", np.array([1], ml_dtypes.bfloat16))
    np.savez(tmp_path / "several.npz", a=[1])
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    write_safetensors(tmp_path / "w.safetensors", {"x": b"\x80\x3f", "y": b"\x00\x40"})
    for name, status, message in [
        ("junk.npy", 1, "junk.npy is not a .npy file of numbers"),
        ("objects.npy", 1, "hint: write it with numpy.save"),
        ("short.npy", 1, "a .npy file cannot name bfloat16"),
        ("several.npy", 1, "several.npy is not a .npy file of numbers"),
        ("w.safetensors:z", 1, "holds 2 tensors, none of them named 'z'"),
        ("w.safetensors", 1, "w.safetensors:x"),
        ("absent.npy", 2, "absent.npy: No such file or directory"),
    ]:
        assert run(["run", program, "--arg", f"{tmp_path}/{name}"]) == status
        assert message in " ".join(capsys.readouterr().err.split())


def test_a_missing_program_is_a_usage_error(capsys):
    assert run(["run", "absent.mlir"]) == 2
    assert "absent.mlir" in capsys.readouterr().err


ENTRY = SimpleNamespace(
    artifact=SimpleNamespace(
        platform="cpu", package="xla-cpu-pjrt", version="0.0.1", sha256="ab" * 32, nbytes=259000000
    ),
    library_path=Path("/cache/v1/plugin.so"),
)


class Cache:
    root = Path("/cache")

    def __init__(self, *audits):
        self.audits = audits

    def entries(self):
        return (ENTRY,)

    def nbytes(self):
        return 259000000

    def verify(self):
        return self.audits

    def last_use(self, entry):
        return 0.0

    def clear(self):
        return SimpleNamespace(nbytes=1500, removed=(), kept=())


def test_cache_list(public, capsys):
    public("cache", Cache)
    assert run(["cache", "list"]) == 0
    _, row, total = capsys.readouterr().out.splitlines()
    day = time.strftime("%Y-%m-%d", time.localtime(0))
    shown = ["cpu", "xla-cpu-pjrt", "0.0.1", "259", "MB", day]
    assert row.split() == shown
    assert total == "259 MB in /cache"
    assert run(["cache", "list", "--wide"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [*shown, "/cache/v1/plugin.so"]
    assert run(["cache", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["entries"][0]["nbytes"] == 259000000


def test_cache_verify_fails_where_an_entry_does(public, capsys):
    good = SimpleNamespace(root=Path("/cache/v1/ab"), verdict=Verdict(True))
    bad = SimpleNamespace(root=Path("/cache/v1/cd"), verdict=Verdict(False, "x.so has 3 bytes"))
    public("cache", lambda: Cache(good))
    assert run(["cache", "verify"]) == 0
    public("cache", lambda: Cache(good, bad))
    assert run(["cache", "verify"]) == 4
    assert capsys.readouterr().out.splitlines()[1:] == [
        "/cache/v1/ab: ok",
        "/cache/v1/cd: x.so has 3 bytes",
    ]
    assert run(["cache", "verify", "--json"]) == 4
    assert [audit["ok"] for audit in json.loads(capsys.readouterr().out)] == [True, False]


def test_cache_clear(public, capsys):
    public("cache", Cache)
    assert run(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed 1.5 kB from /cache\n"


def test_doctor_fails_where_a_step_does(public, capsys):
    good = SimpleNamespace(what="hardware", ok=True, detail="/dev/nvidiactl", hint="")
    bad = SimpleNamespace(what="library", ok=False, detail="no libcudart.so.13", hint="install it")
    public("diagnose", lambda platform, *, to_run, after: pjrt_hub.Diagnosis((good,)))
    assert run(["doctor", "cuda"]) == 0
    public("diagnose", lambda platform, *, to_run, after: pjrt_hub.Diagnosis((good, bad)))
    assert run(["doctor", "cuda"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "ok    hardware: /dev/nvidiactl",
        "no    library: no libcudart.so.13",
        "",
        "hint  library: install it",
    ]
    assert run(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[1]["detail"] == "no libcudart.so.13"


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
def test_an_error_is_a_paragraph_a_hint_and_a_status(public, capsys, monkeypatch, raised, status):
    def plugins(platform):
        raise raised

    public("plugins", plugins)
    monkeypatch.delenv("PJRT_HUB_DEBUG", raising=False)
    assert run(["list"]) == status
    assert capsys.readouterr() == ("", f"error: {raised.message}\n\nhint: do it\n")
    monkeypatch.setenv("PJRT_HUB_DEBUG", "1")
    assert run(["list"]) == status
    assert "Traceback" in capsys.readouterr().err


def test_verbose_is_debug_for_one_command(public, monkeypatch):
    monkeypatch.setenv("PJRT_HUB_DEBUG", "")
    asked = []
    public("plugins", lambda platform: asked.append(os.environ["PJRT_HUB_DEBUG"]) or [])
    assert run(["list"]) == run(["--verbose", "list"]) == run(["-v", "list"]) == 0
    assert asked == ["", "all", "all"]


def test_a_defect_asks_for_a_report(public, capsys, monkeypatch):
    monkeypatch.delenv("PJRT_HUB_DEBUG", raising=False)
    public("plugins", lambda platform: {}["x"])
    assert run(["list"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: KeyError: 'x'\n\nhint: ")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (FileNotFoundError(2, "No such file", "/none/x"), "/none/x: No such file"),
        (OSError(28, "No space left"), "No space left"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_the_system_refuses_is_said_with_its_place(public, capsys, monkeypatch, raised, said):
    def plugins(platform):
        raise raised

    public("plugins", plugins)
    monkeypatch.delenv("PJRT_HUB_DEBUG", raising=False)
    assert run(["list"]) == 1
    assert capsys.readouterr().err.startswith(f"error: {said}\n\nhint: ")


def test_ctrl_c(public, capsys):
    def plugins(platform):
        raise KeyboardInterrupt

    public("plugins", plugins)
    assert run(["list"]) == 130


def test_ctrl_c_in_a_download_is_one_line(public, capsys):
    def fetch(platform, offline, plugin_only):
        exc = KeyboardInterrupt()
        exc.add_note("interrupted: 1.0 of 3.1 MB are kept")
        raise exc

    public("fetch", fetch)
    assert run(["fetch", "toy"]) == 130
    assert capsys.readouterr() == ("", "interrupted: 1.0 of 3.1 MB are kept\n")


@pytest.mark.parametrize("args", [["nonsense"], ["list", "--nonsense"], ["get"]])
def test_a_wrong_command_line(capsys, args):
    assert run(args) == 2
    assert "Usage: pjrt-hub" in capsys.readouterr().err


def test_help_names_every_command(capsys):
    assert run(["--help"]) == 0
    said = capsys.readouterr().out
    assert [said.count(f"\n  {name} ") for name in ("list", "run", "fetch", "cache", "doctor")] == [
        *(1, 1, 1, 1, 1)
    ]


def test_a_closed_pipe_is_silent():
    code = "from pjrt_hub.cli.__main__ import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.argv[1:] = ['--help']; {code}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
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


@pytest.mark.parametrize(("columns", "wide"), [("40", 40), ("100", 100), ("240", 100)])
def test_text_is_as_wide_as_the_terminal_but_can_be_read(monkeypatch, columns, wide):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", columns)
    assert output.width() == 100  # whoever reads a pipe gets the same lines everywhere
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    assert output.width() == wide
