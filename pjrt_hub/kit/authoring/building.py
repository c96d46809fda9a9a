"""A library that starts a backend in Python: one file that any host of PJRT plugins can open.

The launcher is compiled once, for the wheel; `build` writes the words that it reads into a copy.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.kit.authoring.backend import Backend

_MARK = b"pjrt-hub backend is written here"
_ROOM = 16352
_LARGEST = 1 << 20  # Bytes to search for the mark; the launcher has far fewer.


def build(backend: str, output: str | os.PathLike[str]) -> Path:
    """Write a library that starts a backend.

    The library finds the backend's module where this process finds it, so it belongs to this
    machine and to this version of Python.

    Args:
        backend: "module:Class", a `Backend` that is made without arguments.
        output: where to write the library.

    Returns:
        The library's absolute path.

    Raises:
        ValueError: there is no such backend, or its paths are too long.
    """
    backend_class(backend)
    here = Path(__file__)
    folders = [os.path.abspath(each or ".") for each in [*sys.path, str(here.parents[3])]]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    start = [backend, version, _libpython(), sys.executable, str(here.with_name("guest.py"))]
    words = "\n".join([*start, *dict.fromkeys(folders), ""]).encode()
    if len(words) >= _ROOM:
        raise ValueError(f"sys.path is too long for the library: {len(words)} bytes of {_ROOM}")
    code = (here.parent / "native" / "launcher.so").read_bytes()
    place = code.index(_MARK) + len(_MARK)
    path = Path(output).absolute()
    path.write_bytes(code[:place] + words.ljust(_ROOM, b"\0") + code[place + _ROOM :])
    path.chmod(0o755)
    return path


def refuse_built(library: Path) -> None:
    """Refuse to hand on a library that `build` wrote: it starts this machine's Python only."""
    if not library.is_file():
        return
    with library.open("rb") as file:
        words = file.read(_LARGEST).partition(_MARK)[2]
    if backend := words.partition(b"\n")[0].strip(b"\0").decode("utf-8", "replace"):
        raise PjrtHubError(
            f"{library} starts {backend} where this machine has it: no other machine can use it",
            hint="package the Python project that it is in; where that is installed, "
            f"`pjrt-hub build {backend} -o LIB.so` makes its library",
        )


def backend_class(backend: str) -> type[Backend]:
    """Import the `Backend` that "module:Class" names, or raise ValueError."""
    name, _, attribute = backend.partition(":")
    try:
        value = getattr(import_module(name), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ValueError(f"{backend!r} names no backend, as module:Class does: {exc}") from exc
    except (Exception, SystemExit) as exc:  # The import may raise anything.
        reason = f"{type(exc).__name__}: {exc}"
        raise ValueError(f"the module of {backend!r} cannot be imported: {reason}") from exc
    if not (isinstance(value, type) and issubclass(value, Backend)):
        raise ValueError(f"{backend} is {value!r}, not a class derived from Backend")
    return value


def _libpython() -> str:
    """Find this Python's shared library; empty if it has none, and the host must have Python."""
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return ""
    folder, name = (sysconfig.get_config_var(each) for each in ("LIBDIR", "INSTSONAME"))
    path = Path(folder) / name
    return str(path) if path.exists() else str(name)
