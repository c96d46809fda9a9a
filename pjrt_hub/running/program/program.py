"""Programs: what is compiled, with its format.

Owns telling StableHLO text, StableHLO bytecode and HLO protos apart; must not compile.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.errors import FileFormatError, IncompatiblePluginError
from pjrt_hub.running.capi import wire
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.program import bytecode, signature

#: The magic number, the bytecode's version as a varint, and the producer's name.
_PORTABLE = re.compile(rb"ML\xefR[\x80-\xff]{0,8}.StableHLO_v(\d+)\.(\d+)\.(\d+)\0", re.DOTALL)
#: The most bytes and lines of a text that are printed.
_HEAD, _HEAD_LINES = 1 << 16, 20
#: The beginning of a constant's elements if they are written as hexadecimal bytes.
_DIGITS = b'"0x'
_HINT = (
    "give StableHLO as text or bytecode, or a serialized HloModuleProto; "
    "a jax.jit function gives the text by .lower(...).as_text()"
)
_EXPORTED_HINT = (
    "pjrt_hub.load_exported(file) and `pjrt-hub run` take what jax.export serialized; its "
    "mlir_module_serialized alone is a program"
)


@dataclass(frozen=True)
class Program:
    """A program to compile, with its format (`PJRT_Program`).

    Attributes:
        code: the bytes.
        format: "mlir" (text or bytecode), "hlo" (HloModuleProto), or one that only a plugin knows.
        origin: where it came from, for messages.
    """

    __module__ = "pjrt_hub"
    code: bytes
    format: str
    origin: str = "the program"

    def __post_init__(self) -> None:
        """Take text and other memory as bytes."""
        if isinstance(self.code, str):
            object.__setattr__(self, "code", self.code.encode())
        elif isinstance(self.code, bytearray | memoryview):
            object.__setattr__(self, "code", bytes(self.code))
        elif not isinstance(self.code, bytes):
            raise TypeError(f"the code is of type {type(self.code).__name__}, not text or bytes")
        if not isinstance(self.format, str):
            raise TypeError(f'the format is {self.format!r}; it must be "mlir" or "hlo"')

    @classmethod
    def of(cls, source: Any, origin: str = "the program") -> Program:
        """Read a program from text, bytes or a file, and detect its format.

        Args:
            source: StableHLO text, bytes of any format, the path of a file, which may be a pipe, or
                a module of MLIR's bindings. A `str` of one line without a brace is a path.
            origin: where it came from, for messages; of a file it is the path.

        Raises:
            FileFormatError: the file is missing, or nothing that a plugin compiles.
            TypeError: it is not one of these.
        """
        if isinstance(source, Program):
            return source
        if isinstance(source, bytes | bytearray | memoryview):
            return cls._detect(bytes(source), origin)
        if isinstance(source, str) and ("\n" in source or "{" in source):
            return cls._detect(source.encode(), origin)
        if not isinstance(source, str | os.PathLike):
            return cls._detect(_write(source), origin)
        if isinstance(source, str) and not source:
            return cls._detect(b"", origin)
        path = Path(source)
        try:
            code = path.read_bytes()
        except (OSError, ValueError) as exc:  # ValueError means that the path has a NUL.
            name = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."
            why = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise FileFormatError(
                f"the program {name!r} cannot be read: {why}", path=path, hint=_HINT
            ) from None
        return cls._detect(code, str(path))

    @cached_property
    def outline(self) -> bytes:
        """All text of the code, without the elements of its long constants."""
        if self.code.startswith(bytecode.MAGIC):
            return bytecode.words(self.code) or self.code
        if self.format != "mlir":
            return self.code
        kept, behind = list[bytes](), 0
        while (begin := self.code.find(_DIGITS, behind)) >= 0:
            begin += len(_DIGITS)
            end = self.code.find(b'"', begin)
            # A constant ends on the line on which it begins, unless it is in a comment.
            if end < 0 or self.code.find(b"\n", begin, end) >= 0:
                end = begin
            kept.append(self.code[behind:begin])
            behind = end
        return b"".join([*kept, self.code[behind:]]) if kept else self.code

    @property
    def stablehlo_version(self) -> tuple[int, int, int] | None:
        """The version of a portable artifact; None for any other program."""
        match = _PORTABLE.match(self.code)
        return (int(match[1]), int(match[2]), int(match[3])) if match else None

    def require_readable(self, api: Api) -> None:
        """Raise an error if a plugin is too old to read the program.

        Args:
            api: the plugin's function table.

        Raises:
            IncompatiblePluginError: it is a portable artifact of a newer StableHLO.
        """
        wanted, newest = self.stablehlo_version, api.attributes.get("stablehlo_current_version")
        if wanted is None or not isinstance(newest, tuple) or wanted <= newest:
            return
        need, have = ".".join(map(str, wanted)), ".".join(map(str, newest))
        raise IncompatiblePluginError(
            f"{self.origin} is of StableHLO {need}, the plugin {api.path.name} reads up to {have}",
            need=f"StableHLO {need}",
            have=f"StableHLO {have}",
            hint=f"serialize the program for StableHLO {have}, or use a newer plugin",
        )

    def __repr__(self) -> str:
        return f"<Program {self.format}, {len(self.code)} bytes, from {self.origin}>"

    def __str__(self) -> str:
        """Return the first lines of a text program; for bytes, how many they are."""
        if not _is_text(self.code):
            return repr(self)
        lines = self.code[:_HEAD].decode(errors="replace").splitlines()[:_HEAD_LINES]
        more = self.code.count(b"\n") + 1 - len(lines)
        return "\n".join([*lines, f"... {more} more lines"] if more > 1 else lines)

    @staticmethod
    def is_inside(code: bytes) -> bool:
        """Check whether code holds a program in bytecode, as files of `jax.export` do.

        Args:
            code: the bytes of a file.
        """
        return code.find(bytecode.MAGIC) > 0

    @classmethod
    def _detect(cls, code: bytes, origin: str) -> Program:
        if code.startswith(bytecode.MAGIC):
            return cls(code, "mlir", origin)
        hint = ""
        if _is_text(code):
            text = code.lstrip()
            if text.startswith(b"HloModule"):
                found = "HLO text, which the PJRT C API does not take"
            elif not text:
                found = "empty"
            elif b"func" not in text and b"module" not in text:
                found = f"text, but not MLIR: it begins {text[:40].decode(errors='replace')!r}"
            else:
                return cls(code, "mlir", origin)
        elif _is_hlo_module(code):
            if not _has_tuple_beside_others(code):
                return cls(code, "hlo", origin)
            found = "an HLO proto with a tuple beside other parameters, at which XLA ends"
        else:
            found = f"bytes of no known format: they begin {code[:8].hex(' ')}"
            if cls.is_inside(code):
                hint = _EXPORTED_HINT
                found = "no program, but holds one in bytecode, as what jax.export serializes does"
            elif b"func" in code and code[:8].isascii() and b"\0" not in code[:8]:
                found, hint = f"text that {_flaw(code)}", "write it as UTF-8 without zero bytes"
        hint = hint or (_EXPORTED_HINT if "export" in Path(origin).suffix else _HINT)
        raise FileFormatError(f"{origin} is {found}", path=origin, hint=hint)


def _write(module: Any) -> bytes:
    """Return the bytecode of a module of MLIR's bindings, whoever built them."""
    operation = getattr(module, "operation", module)
    write = getattr(operation, "write_bytecode", None)
    if write is None or isinstance(module, type):
        raise TypeError(
            f"the program is of type {type(module).__name__}; it must be text, bytes, a path, a "
            "Program or a module of MLIR's bindings"
        )
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _is_text(code: bytes) -> bool:
    if b"\0" in code:
        return False
    if code.isascii():  # Large programs are ASCII, and decoding them would be slower.
        return True
    try:
        code.decode()
    except UnicodeDecodeError:
        return False
    return True


def _flaw(code: bytes) -> str:
    """Return what is wrong with bytes that begin as text."""
    try:
        code.decode()
    except UnicodeDecodeError as exc:
        return f"is not UTF-8 from byte {exc.start} on, which is {code[exc.start]:02x}"
    return f"has a zero byte at {code.index(0)}"


def _is_hlo_module(code: bytes) -> bool:
    """Return whether bytes are an HloModuleProto, which has a name (1) and computations (3)."""
    try:
        return {1, 3} <= {number for number, _ in wire.fields(memoryview(code))}
    except ValueError:
        return False


def _has_tuple_beside_others(code: bytes) -> bool:
    try:
        tuples = signature.tuple_parameters(code, "hlo")
    except ValueError:  # The compiler reports what is wrong.
        return False
    return len(tuples) > 1 and any(tuples)
