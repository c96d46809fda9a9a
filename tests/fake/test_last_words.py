"""The last words of plugins and compilers that die: the line with the reason is always kept.

What they print while they live becomes log records of `pjrt_hub.native`, on request.
"""

from __future__ import annotations

import logging
import time

import pytest
from stubbed import func, path, raises

import pjrt_hub
from pjrt_hub import errors
from pjrt_hub.base import native_log
from pjrt_hub.running.sandbox.last_words import LastWords

_FRAMES = "".join(f" --- /lib/libnpu.so(+0x{n:x}) [0x7f5ddb36{n:04x}]\n" for n in range(80))
_ABSL = "".join(f"    @     0x7f11c0de{n:04x}        320  npu::Device::Open()\n" for n in range(80))
_LLVM = "".join(
    f" #{n} 0x00007f11c0de{n:04x} llvm::sys::Run(int) (x.so+0x{n})\n" for n in range(80)
)
_GDB = "".join(f"#{n}  npu::run (this=0x5, count={n}) at npu/device.cc:{n}\n" for n in range(80))
_RUST = "".join(f"  {n:2}: npu::device::open\n       at ./src/lib.rs:{n}:5\n" for n in range(80))
_INFO = "I0000 00:00:1700000000.1 42 npu.cc:7] the queue has room for 64 programs\n"

#: Name -> the text that a plugin writes as it dies, and the part of it that must be kept.
DEATHS = {
    "a vendor's log": (
        "12:00 | info | opening the driver\n12:00 | critical | NPU_FATAL: no chips were found\n"
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        f"  what():  NPU_FATAL @ npu/cluster.cpp:129\ninfo:\nno chips\nbacktrace:\n{_FRAMES}",
        "NPU_FATAL: no chips were found",
    ),
    "absl": (
        f"F0000 00:00:1700000000.1 42 npu.cc:12] Check failed: n > 0 (0 vs. 0)\n"
        f"*** Check failure stack trace: ***\n{_ABSL}*** SIGABRT received by PID 42 ***\n{_ABSL}",
        "Check failed: n > 0 (0 vs. 0)",
    ),
    "a compiler": (
        f"LLVM ERROR: Unsupported vector size\nStack dump without symbol names:\n{_LLVM}",
        "LLVM ERROR: Unsupported vector size",
    ),
    "a debugger": (f"fatal: the firmware does not answer\n{_GDB}", "the firmware does not answer"),
    "a Rust panic": (
        f"thread 'main' panicked at src/lib.rs:3:5:\nno adapter was found\n{_RUST}",
        "no adapter was found",
    ),
    "a Go panic": (
        "panic: runtime error: index out of range [3]\n\ngoroutine 1 [running]:\n"
        + "main.open(0x3)\n\t/src/npu/main.go:12 +0x1d\n" * 80,
        "panic: runtime error: index out of range [3]",
    ),
    "a sanitizer": (
        f"==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x602\n{_LLVM}"
        + "  0x0c047fff8000: fa fa fd fd fa fa fd fd fa fa\n" * 80,
        "heap-use-after-free",
    ),
    "glibc": (f"{_INFO * 200}free(): invalid pointer\n", "free(): invalid pointer"),
    "an assertion": (
        f"{_INFO * 200}npu: npu.c:12: open: Assertion `n > 0' failed.\n{_INFO * 200}",
        "Assertion `n > 0' failed.",
    ),
    "a Python backend": (
        'Traceback (most recent call last):\n  File "npu.py", line 3, in open\n'
        f"    raise ValueError(name)\nValueError: no card is called npu7\n{_INFO * 200}",
        "ValueError: no card is called npu7",
    ),
    "errors before a flood": (
        f"{_INFO}E0000 00:00:1700000000.1 42 npu.cc:9] npuInit: NPU_NO_DEVICE\n{_INFO * 20000}",
        "npuInit: NPU_NO_DEVICE",
    ),
    "a flood of errors": (
        "error: try 0 of 5000: the card is in use\n"
        + "".join(f"error: try {n} of 5000: timed out\n" for n in range(1, 5000)),
        "the card is in use",
    ),
    "a progress bar in colours": (
        "".join(f"\r\x1b[32mloading {n} %\x1b[0m" for n in range(50))
        + "\r\x1b[1;31mCRITICAL\x1b[0m: the \x1b[1mimage\x1b[0m is damaged\r\n"
        + "".join(f"\r\x1b[32mclosing {n} %\x1b[0m" for n in range(500)),
        "CRITICAL: the image is damaged",
    ),
    "a line without an end": ("x" * 3_000_000 + "\nCheck failed: \xff", "Check failed: \xff"),
    "a long line": ("y" * 5000 + " FATAL: no licence " + "z" * 5000, "FATAL: no licence"),
    "nothing": ("", ""),
}

SAY = 'char b[4096]; int f = open(getenv("WORDS"), 0); ssize_t n; '
SAY += "while ((n = read(f, b, sizeof b)) > 0) n = write(2, b, n); abort()"


@pytest.mark.parametrize("death", DEATHS)
def test_the_telling_line_is_left(death) -> None:
    written, telling = DEATHS[death]
    words, data = LastWords(), written.encode()
    for begin in range(0, len(data), 4096):
        words.add(data[begin : begin + 4096])
    left = words.text()
    assert telling in left
    assert len(left) <= 2000
    assert "\x1b" not in left
    for frame in ("[0x7f5ddb36", "0x7f11c0de", "0x00007f11", "npu::run", "lib.rs:7", "main.go"):
        assert frame not in left
    words.clear()
    assert words.text() == ""


def test_what_is_left_out_is_marked_and_in_its_order() -> None:
    words = LastWords()
    words.add(b"first\n" + b"chatter\n" * 500 + b"fatal: three\n" + b"chatter\n" * 500 + b"last\n")
    told = words.text(200).splitlines()
    kept = [line for line in told if line not in ("chatter", "...")]
    assert kept == ["first", "fatal: three", "last"]
    assert told.count("...") == 2


def test_reading_is_linear() -> None:
    """A plugin must not keep this process busy by what it writes."""

    def seconds(text: bytes) -> float:
        begun = time.process_time()
        words = LastWords()
        words.add(text)
        words.text()
        return time.process_time() - begun

    for unit in (
        b"(",
        b"#1 f(",
        b") at x",
        b"a.b:1",
        b"[0x1",
        b"\x1b[1",
        b"\x1b]",
        b"error ",
        b"\r",
    ):
        few, many = (unit * (nbytes // len(unit)) for nbytes in (100_000, 1_000_000))
        assert seconds(many) < 40 * max(seconds(few), 0.005), unit


def load():
    print(raises(errors.PluginCrashedError, pjrt_hub.load, path).message)


def compile_isolated():
    client = pjrt_hub.load(path).client()
    print(raises(errors.PluginCrashedError, client.compile, func("add"), isolated=True).message)


@pytest.mark.parametrize("death", ["a vendor's log", "a line without an end", "nothing"])
@pytest.mark.parametrize(
    ("where", "meet"),
    [("INITIALIZE", load), ("COMPILE", compile_isolated)],
    ids=["plugin", "compiler"],
)
@pytest.mark.slow
def test_the_telling_line_of_a_process_is_left(stub, run, tmp_path, death, where, meet) -> None:
    library = stub(f"ON_{where}={SAY}")
    written, telling = DEATHS[death]
    (tmp_path / "words").write_text(written, newline="")
    ended = run(library, meet, env={"WORDS": str(tmp_path / "words")})
    assert ended.returncode == 0, ended
    assert telling in ended.stdout
    first = ended.stdout.splitlines()[0]
    assert first.startswith(f"{library.name} died of SIGABRT ")
    assert first.endswith("; its last output:" if written else ")")
    assert ended.stderr == ""


NOISE = r'ON_INITIALIZE=dprintf(2, "W0000 00:00:1.1 7 stub.cc:12] it is old\nplain\n")'


def load_and_hear(captures):
    native_log._PATIENCE = 60
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append((record.levelname, record.getMessage()))
    logger = logging.getLogger("pjrt_hub.native")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    pjrt_hub.load(path).client().close()
    if captures:
        pjrt_hub.capture_native_logs().close()
    print(heard)


def test_the_variable_turns_words_into_records(stub, run) -> None:
    ended = run(stub(NOISE), load_and_hear, True, env={"PJRT_HUB_CAPTURE": "1"})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "[('WARNING', 'it is old'), ('INFO', 'plain')]"
    assert "it is old" in ended.stderr  # the original stderr has it, too


def test_without_it_nothing_is_captured(stub, run) -> None:
    ended = run(stub(NOISE), load_and_hear, False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "[]")
    assert "it is old" in ended.stderr
