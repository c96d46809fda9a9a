"""LAPACK: what the CPU plugin needs to run a program of linear algebra.

The handlers of jaxlib, else ours over the LAPACK of another package. Must not import any of these
for programs without such a call.
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
    """Return the handlers of a program's custom calls that are LAPACK's, by name.

    Those of which no package is installed are left out.
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
    """Register these handlers, apart from what somebody registered before."""
    for name, handler in handlers(custom_calls, client).items():
        with contextlib.suppress(AlreadyExistsError):
            client.plugin.ffi.register(name, handler)
