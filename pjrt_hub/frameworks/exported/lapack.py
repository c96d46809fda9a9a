"""LAPACK: the handlers that the CPU plugin needs to run a program of linear algebra.

They are jaxlib's, else pjrt-hub's own over the LAPACK of another package. Must not import any of
these for programs without calls of LAPACK.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pjrt_hub.errors import AlreadyExistsError
from pjrt_hub.running.capi.handle import compiler_platform

if TYPE_CHECKING:
    from pjrt_hub.running.client.client import Client

_PREFIXES = ("lapack_", "tridiagonal_solve_")
_TYPED = "_ffi"  # The names of XLA FFI functions end in this; others are called differently.


def handlers(custom_calls: Iterable[str], client: Client) -> dict[str, object]:
    """Return handlers, by name, for those custom calls of a program that are LAPACK's.

    Calls for which no installed package has a handler are left out.
    """
    names = [each for each in custom_calls if each.startswith(_PREFIXES) and each.endswith(_TYPED)]
    if not names or compiler_platform(client) != "cpu" or "FFI" not in client.plugin.extensions:
        return {}
    from pjrt_hub.running.capi import lapack

    known: dict[str, object] = {}
    with contextlib.suppress(ImportError):
        from jaxlib.lapack import _lapack

        _lapack.initialize()  # This finds SciPy's LAPACK, without which these functions crash.
        known = _lapack.registrations()
    found = {name: known.get(name) or lapack.handler(name) for name in names}
    return {name: handler for name, handler in found.items() if handler is not None}


def register(custom_calls: Iterable[str], client: Client) -> None:
    """Register the LAPACK handlers that a program needs and that are not registered yet."""
    for name, handler in handlers(custom_calls, client).items():
        with contextlib.suppress(AlreadyExistsError):
            client.plugin.ffi.register(name, handler)
