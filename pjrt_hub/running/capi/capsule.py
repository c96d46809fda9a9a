"""The capsule in which JAX takes a plugin's table. Must not load libraries."""

from __future__ import annotations

#: What JAX asks a capsule to be called; the capsule keeps the pointer to it.
_NAME = b"pjrt_c_api"


def of_table(address: int) -> object:
    """Gives a capsule of a `PJRT_Api`, which must stay at `address` for ever, as plugins' do."""
    import ctypes  # only here: a process without a framework does not pay for it

    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule: object = new(address, _NAME, None)
    return capsule
