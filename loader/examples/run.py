"""Runs a program on a plugin, through pjrt_loader.c and pjrt_program.c in a shared library.

`run.py SHARED PLUGIN PROGRAM [ARRAY ...]`: arrays are files of raw elements. Prints the elements
of the results, which must be f32.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path


class Value(ctypes.Structure):
    """A parameter or a result: `pjrt_program_value`."""

    _fields_ = (
        ("name", c_char_p),
        ("type", c_int),
        ("num_dims", c_size_t),
        ("dims", POINTER(c_int64)),
        ("nbytes", c_size_t),
    )


def main(shared: str, plugin_name: str, path: str, *arrays: str) -> None:
    """Run the program once, and print its results."""
    c, error = ctypes.CDLL(shared), c_char_p()

    def call(name: str, *args: object, restype: object = c_void_p) -> c_void_p:
        function = getattr(c, name)
        function.restype = restype
        result = function(*args, byref(error))
        if error.value is not None:
            sys.exit(error.value.decode())
        return c_void_p(result)

    c.pjrt_loader_api.restype = c_void_p
    c.pjrt_program_parameters.restype = c.pjrt_program_results.restype = POINTER(Value)
    plugin = call("pjrt_loader_open", plugin_name.encode(), None)
    program = call("pjrt_program_read", path.encode())
    api = c_void_p(c.pjrt_loader_api(plugin))
    client = call("pjrt_program_client_create", api, None, c_size_t(0))
    executable = call("pjrt_program_compile", client, program)
    prepared = call("pjrt_program_call_create", executable)
    takes, gives = c.pjrt_program_parameters(program), c.pjrt_program_results(program)
    given = [Path(each).read_bytes() for each in arrays]
    assert len(given) == c.pjrt_program_num_parameters(program), "wrong number of arrays"
    assert all(len(each) == takes[i].nbytes for i, each in enumerate(given)), "wrong sizes"
    count = c.pjrt_program_num_results(program)
    made = [(ctypes.c_float * (gives[i].nbytes // 4))() for i in range(count)]
    results = (c_void_p * count)(*map(ctypes.addressof, made))
    arguments = (c_char_p * len(given))(*given)
    call("pjrt_program_call_arrays", prepared, arguments, results, restype=c_int)
    print(*(f"{element:.9g}" for each in made for element in each), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
