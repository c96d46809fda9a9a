"""The raw C loops of raw_loop.c, over the very objects that pjrt-hub holds in this process."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy

from pjrt_hub import Buffer, Client, HostBufferSemantics, LoadedExecutable

HERE = Path(__file__).parent
PROGRAMS = HERE.parent / "tests" / "programs"

#: The PJRT_Buffer_Type of the arrays that are put.
F32 = 11


class _Host(ctypes.Structure):
    _fields_ = [
        ("client", ctypes.c_void_p),
        ("device", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("dims", ctypes.c_void_p),
        ("num_dims", ctypes.c_size_t),
        ("semantics", ctypes.c_int),
    ]


class RawLoop:
    """The C loops, compiled for this process against the header that our declarations give."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._api = ctypes.c_void_p(client.api.address)
        self._library = _compiled()

    def call(
        self, executable: LoadedExecutable, arguments: list[Buffer], outputs: int, count: int
    ) -> float:
        """Seconds for `count` executions, each with the destruction of its outputs."""
        addresses = (ctypes.c_void_p * len(arguments))(*(each.address for each in arguments))
        return self._seconds(
            "raw_call",
            ctypes.c_void_p(executable.address),
            addresses,
            ctypes.c_size_t(len(arguments)),
            ctypes.c_size_t(outputs),
            ctypes.c_long(count),
        )

    def call_rows(
        self, executable: LoadedExecutable, rows: list[list[Buffer]], count: int
    ) -> float:
        """Seconds for `count` executions on all devices, awaited, each with one output."""
        addresses = [each.address for row in rows for each in row]
        return self._seconds(
            "raw_call_rows",
            ctypes.c_void_p(executable.address),
            (ctypes.c_void_p * len(addresses))(*addresses),
            ctypes.c_size_t(len(rows)),
            ctypes.c_size_t(len(rows[0])),
            ctypes.c_long(count),
        )

    def carry(
        self, executable: LoadedExecutable, arguments: list[Buffer], carried: int, count: int
    ) -> float:
        """Seconds for `count` executions whose first results are the next one's first arguments.

        These are donated; the other results are destroyed.
        """
        addresses = (ctypes.c_void_p * len(arguments))(*(each.address for each in arguments))
        sizes = len(arguments), carried, len(executable.signature.outputs)
        pointer = ctypes.c_void_p(executable.address)
        return self._seconds(
            "raw_carry", pointer, addresses, *map(ctypes.c_size_t, sizes), ctypes.c_long(count)
        )

    def threads(
        self, executable: LoadedExecutable, arguments: list[Buffer], count: int, threads: int
    ) -> float:
        """Seconds for `count` executions with one output in each of some threads."""
        addresses = (ctypes.c_void_p * len(arguments))(*(each.address for each in arguments))
        return self._seconds(
            "raw_threads",
            ctypes.c_void_p(executable.address),
            addresses,
            ctypes.c_size_t(len(arguments)),
            ctypes.c_size_t(1),
            ctypes.c_long(count),
            ctypes.c_size_t(threads),
        )

    def put(self, array: numpy.ndarray, semantics: HostBufferSemantics, count: int) -> float:
        """Seconds for `count` buffers made of a float32 array and destroyed."""
        host, _dims = self._host(array, semantics)
        return self._seconds("raw_put", ctypes.byref(host), ctypes.c_long(count))

    def get(self, buffer: Buffer, count: int) -> float:
        """Seconds for waiting for a buffer, taking its memory's address and letting it go."""
        return self._seconds("raw_get", ctypes.c_void_p(buffer.address), ctypes.c_long(count))

    def ask(self, name: str, buffer: Buffer, count: int, *more: object) -> float:
        """Seconds for `count` turns of the loop `raw_NAME` over one buffer."""
        pointer = ctypes.c_void_p(buffer.address)
        return self._seconds(f"raw_{name}", pointer, *more, ctypes.c_long(count))

    def copy(self, buffer: Buffer, count: int) -> float:
        """Seconds for `count` copies to the buffer's device, destroyed."""
        return self.ask("copy", buffer, count, ctypes.c_void_p(buffer.device.address))

    def copy_to_host(self, buffer: Buffer, array: numpy.ndarray, count: int) -> float:
        """Seconds for `count` raw copies into an array, awaited."""
        where = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        return self.ask("copy_to_host", buffer, count, *where)

    def delete(self, array: numpy.ndarray, count: int) -> float:
        """Seconds for `count` buffers made of a float32 array, deleted and destroyed."""
        host, _dims = self._host(array, HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL)
        return self._seconds("raw_delete", ctypes.byref(host), ctypes.c_long(count))

    def round_trip(self, array: numpy.ndarray, executable: LoadedExecutable, count: int) -> float:
        """Seconds for putting an array twice, running a program of both, and copying the result."""
        host, _dims = self._host(array, HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL)
        result = numpy.empty_like(array)
        return self._seconds(
            "raw_round_trip",
            ctypes.byref(host),
            ctypes.c_void_p(executable.address),
            ctypes.c_void_p(result.ctypes.data),
            ctypes.c_size_t(result.nbytes),
            ctypes.c_long(count),
        )

    def counted(self, turns: Callable[[], object]) -> None:
        """Run something inside of `raw_collected`, by which callgrind knows what to count."""
        self._library["raw_counted"](ctypes.CFUNCTYPE(None)(turns))

    def _host(
        self, array: numpy.ndarray, semantics: HostBufferSemantics
    ) -> tuple[_Host, ctypes.Array[ctypes.c_int64]]:
        """The dimensions are given too because the struct only points to them."""
        dims = (ctypes.c_int64 * array.ndim)(*array.shape)
        device = self._client.devices[0]
        host = _Host(
            client=self._client.address,
            device=device.address,
            data=array.ctypes.data,
            type=F32,
            dims=ctypes.addressof(dims),
            num_dims=array.ndim,
            semantics=semantics,
        )
        return host, dims

    def _seconds(self, name: str, *arguments: object) -> float:
        function = self._library[name]
        function.restype = ctypes.c_double
        return float(function(self._api, *arguments))


def _compiled() -> ctypes.CDLL:
    sys.path.append(str(HERE.parent / "tools"))
    import capi

    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    with TemporaryDirectory() as folder:
        Path(folder, "pjrt_api.h").write_text(capi.header(capi.read()), "utf-8")
        library = Path(folder, "raw_loop.so")
        flags = [
            "-O2",
            "-std=gnu11",
            "-shared",
            "-fPIC",
            "-pthread",
            f"-I{folder}",
            "-o",
            str(library),
        ]
        subprocess.run([*compiler, *flags, str(HERE / "raw_loop.c")], check=True)
        return ctypes.CDLL(str(library))
