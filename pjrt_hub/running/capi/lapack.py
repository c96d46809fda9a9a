"""LAPACK: handlers of custom calls in C, over the routines of a package that is installed.

That is SciPy or `scipy-openblas32`. `lapack/lapack.c` says what each handler does. Must not open
the library or import a package before a handler is asked for.
"""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from pjrt_hub.running.capi import hotpath

_NAME = re.compile(r"lapack_(?P<type>[sdcz])(?P<routine>\w+)_ffi")
_TYPES = "sdcz"
#: The prefix of a routine for complex elements, and that of the same routine for real ones.
_REAL = {"un": "or", "he": "sy"}


def handler(name: str) -> int | None:
    """Return the handler's address for a name of JAX's; None if it or its routine is missing."""
    if name == "tridiagonal_solve_perturbed_ffi":  # LAPACK has no routine for it.
        return _handler("perturbed", 0, None)
    if (found := _NAME.fullmatch(name)) is None:
        return None
    letter, kind = found["type"], found["routine"]
    if (routine := _routine(letter + kind)) is None:
        return None
    if letter in "cz":
        kind = _REAL.get(kind[:2], kind[:2]) + kind[2:]
    return _handler(kind, _TYPES.index(letter), routine)


def _handler(kind: str, letter: int, routine: int | None) -> int | None:
    """Return the C handler of a kind for one element type, after giving it the routine."""
    import ctypes  # Only programs that need LAPACK pay for this import.

    function = ctypes.CDLL(str(Path(__file__).with_suffix("") / "lapack.so")).pjrt_hub_lapack
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)
    address: int | None = function(kind.encode(), letter, routine)
    return address


def _routine(name: str) -> int | None:
    """Return the address of a routine in the first package that has it."""
    for find in (_in_scipy, _in_openblas):
        with suppress(ImportError, OSError):
            if address := find(name):
                return address
    return None


def _in_scipy(name: str) -> int | None:
    for part in ("lapack", "blas"):
        capsule = import_module(f"scipy.linalg.cython_{part}").__pyx_capi__.get(name)
        # The capsule's name is the routine's type in C, which lacks `int` where sizes have 64 bits.
        if ", int *" in str(capsule):
            return hotpath.capsule_address(capsule)
    return None


def _in_openblas(name: str) -> int | None:
    import ctypes

    package = import_module("scipy_openblas32")
    library = ctypes.CDLL(str(Path(package.get_lib_dir(), package.get_library(fullname=True))))
    symbol = getattr(library, f"scipy_{name}_", None)
    return None if symbol is None else ctypes.cast(symbol, ctypes.c_void_p).value
