"""Compile errors: hints on the next step after a compiler refused a program.

Owns reading the compilers' messages, and rewriting programs for an MLIR of another age; must not
compile, nor replace the messages.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from pjrt_hub.errors import PjrtError, UnknownError
from pjrt_hub.running.program.program import Program

_NO_FUNCTION = re.compile(
    r"No (?:FFI handler registered for|registered implementation for (?P<old>untyped )?custom call"
    r" to) \"?(?P<name>[^\s\"]+)"
)
_NO_FLAG = re.compile(r"No such compile option: '([^']*)'")
_NO_VALUE = re.compile(r"While setting option (\w+), ")
_NO_EMITTER = re.compile(r"Custom emitter for (\S+) not found")  # This is libtpu's message.
_NO_OPERATION = re.compile(
    r"custom op '(stablehlo\.\w+)' is unknown|unregistered operation '((?:stablehlo|vhlo)\.\w+)'"
)
_OTHER_BOOLEANS = re.compile(
    r"elements hex data size is invalid for provided type: '[^']*[x<]i1[,>]"
)
_NEWER_BYTECODE = re.compile(r"bytecode version \d+ is newer")
_NO_DIALECT = re.compile(
    r"Dialect `(\w+)' not found|'(\w+)\.[\w.]+' op unsupported op for export to XLA"
)
#: What a reader of portable artifacts reports for other input; MLIR's parser adds `_NO_FUNC`.
_NO_ARTIFACT = "failed to deserialize portable artifact"
_NO_FUNC = re.compile(r"[Dd]ialect [`']func' (?:not found|is unknown)")
#: The custom calls by which JAX and Shardy mark where a program is split.
_SPLITS = ("xla.sdy.", "SPMDFullToShardShape", "SPMDShardToFullShape")
#: A long boolean constant in MLIR's text. It has a bit for each element, or since 2026 a byte; no
#: release of MLIR reads both.
_CONSTANT = re.compile(
    rb'dense<"0x(?P<digits>(?:[0-9A-Fa-f]{2})*+)">'
    rb"(?P<type>\s*:\s*(?:tensor|vector)<(?P<sizes>(?:\s*\d{1,19}\s*x){0,99})\s*i1\s*[,>])"
)
_READS = re.compile(r"using StableHLO v(\d+\.\d+\.\d+)")


def find_refused_flag(error: PjrtError) -> str:
    """Return the flag whose name or value a compiler does not know; empty if there is none."""
    found = _NO_FLAG.search(error.message) or _NO_VALUE.search(error.message)
    return found[1] if found else ""


def rewrite(error: PjrtError, program: Program) -> Program | None:
    """Rewrite a program as an MLIR of another age does, if the plugin's MLIR reads only that."""
    if not _OTHER_BOOLEANS.search(error.message):
        return None
    code = rewrite_booleans(program.code)
    return None if code is None else replace(program, code=code)


def rewrite_booleans(text: bytes) -> bytes | None:
    """Rewrite boolean constants from bytes to bits or, if none has bytes, from bits to bytes.

    Gives None if there is no such constant.
    """
    found = [_size(constant) for constant in _CONSTANT.finditer(text)]
    has_bytes = any(nbytes == count > 1 for nbytes, count in found)
    if not has_bytes and not any(nbytes == -(-count // 8) > 1 for nbytes, count in found):
        return None
    import numpy as np

    def other(constant: re.Match[bytes]) -> bytes:
        nbytes, count = _size(constant)
        # A constant of another size is one value for all elements, or malformed.
        if nbytes != (count if has_bytes else -(-count // 8)):
            return constant[0]
        data = np.frombuffer(bytes.fromhex(constant["digits"].decode()), np.uint8)
        if has_bytes:
            data = np.packbits(data, bitorder="little")
        else:
            data = np.unpackbits(data, count=count, bitorder="little")
        return b'dense<"0x%s">%s' % (data.tobytes().hex().encode(), constant["type"])

    return _CONSTANT.sub(other, text)


def _size(constant: re.Match[bytes]) -> tuple[int, int]:
    """Return the bytes of a constant's digits, and how many elements it has."""
    sizes = map(int, re.findall(rb"\d+", constant["sizes"]))
    return len(constant["digits"]) // 2, math.prod(sizes)


def hint(error: PjrtError, program: Program) -> str:
    """Return the next step after an error of a compiler; empty if unknown."""
    said = error.message
    if missing := _NO_FUNCTION.search(said):
        return _about_function(missing["name"], old=missing["old"] is not None, said=said)
    if missing := _NO_EMITTER.search(said):
        return f"the plugin has no function {missing[1]!r} and takes none: express it in StableHLO"
    if flag := _NO_FLAG.search(said):
        bare = flag[1].lstrip("-")
        if bare != flag[1]:
            return f"give the name without dashes: {bare!r}"
        return "CompileOptions.flags are XLA's flags by name, as far as this plugin has them"
    if "SPMD partitioning not enabled" in said:
        return "a program of several partitions needs use_spmd_partitioning, which is the default"
    if program.stablehlo_version is None and (_NO_ARTIFACT in said or _NO_FUNC.search(said)):
        return (
            f"the plugin reads portable artifacts alone, and {program.origin} is none: jaxlib's "
            "`stablehlo.serialize_portable_artifact_str(code, version)`, of jaxlib.mlir.dialects, "
            "makes one of text and of bytecode; what jax.export gives has one as its "
            "`mlir_module_serialized`"
        )
    if not isinstance(error, UnknownError):  # MLIR's parser and verifier report this code.
        return ""
    found = _READS.search(said)
    reads = f"StableHLO up to {found[1]}" if found else "an older StableHLO"
    if unknown := _NO_OPERATION.search(said):
        return (
            f"the plugin reads {reads}: {unknown[1] or unknown[2]} is misspelled or newer; "
            "serialize the program as a portable artifact of that version, or use a newer plugin"
        )
    if _NEWER_BYTECODE.search(said):
        return (
            f"the plugin reads {reads}: serialize the program as a portable artifact of that "
            "version, which all later plugins read too, or give it as text"
        )
    if dialect := _NO_DIALECT.search(said):
        return f"lower what is of the dialect {dialect[1] or dialect[2]!r} to StableHLO"
    if "requires module with `main` function" in said:
        return "a plugin runs the public function `func.func @main`: give the program one"
    where = (
        f"{program.origin} was taken as {program.format!r}; the plugin's line and column numbers "
        "refer to it"
    )
    if found:
        where += ", and its words about StableHLO's version follow every error of its parser"
    return where


def _about_function(name: str, *, old: bool, said: str) -> str:
    if name.startswith("lapack_") and "Host" in said:
        if old:
            return (
                "plugins take the LAPACK functions that are named lapack_..._ffi, which JAX 0.6.2 "
                "and newer call: export it again with one of these"
            )
        return (
            "load_exported registers it where jaxlib or SciPy is, or after "
            "`pip install 'pjrt-hub[lapack]'`; for other programs, register jaxlib's functions "
            "before compiling: docs/custom_calls.md"
        )
    if name.startswith(_SPLITS):
        return "the program is for several devices, and does not say how many: give num_partitions"
    register = f"before compiling, plugin.ffi.register({name!r}, function): docs/custom_calls.md"
    if old:
        return f"{register}; and call it with `api_version = 4 : i32`"
    return register
