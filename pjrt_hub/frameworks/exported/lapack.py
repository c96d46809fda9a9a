"""LAPACK: jaxlib's functions, given to the CPU plugin whose program calls them.

Must not import jaxlib for programs without such a call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pjrt_hub.errors import AlreadyExistsError

if TYPE_CHECKING:
    from pjrt_hub.running.client.client import Client

_TYPED = "_ffi"  # the XLA FFI; functions of other names have another calling convention


def handlers(custom_calls: Iterable[str], client: Client) -> dict[str, object]:
    """Return those of a program's custom calls that jaxlib has for the client's plugin.

    Returns:
        Handlers by name; none where jaxlib or its SciPy is not installed.
    """
    names = {name for name in custom_calls if name.startswith("lapack_")}
    if not names or client.compiler_platform != "cpu" or "FFI" not in client.plugin.extensions:
        return {}
    try:
        from jaxlib import lapack

        lapack._lapack.initialize()  # finds SciPy's LAPACK, without which these functions crash
    except ImportError:
        return {}
    known = lapack._lapack.registrations()
    return {name: known[name] for name in names & known.keys() if name.endswith(_TYPED)}


def register(custom_calls: Iterable[str], client: Client) -> None:
    """Registers these handlers, apart from what somebody registered before."""
    for name, handler in handlers(custom_calls, client).items():
        with contextlib.suppress(AlreadyExistsError):
            client.plugin.ffi.register(name, handler)
