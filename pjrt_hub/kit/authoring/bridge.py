"""The bridge from the compiled part to a `Backend`: answers for C in tuples, lists and bytes.

`native/` reads the tuples. No exception may get lost: `failure` turns each into a status.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pjrt_hub.errors import DataLossError, InternalError, PjrtError
from pjrt_hub.finding.contract.option import parse
from pjrt_hub.kit.authoring import _plugin
from pjrt_hub.kit.authoring.backend import (
    Attribute,
    Backend,
    Device,
    Executable,
    Program,
    asks_what_is_kept,
)
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.capi import library, status
from pjrt_hub.running.client.plugin import Plugin
from pjrt_hub.running.compilation.policy import Policy
from pjrt_hub.running.program import compile_options, hlo, option
from pjrt_hub.running.program.signature import Slot

if TYPE_CHECKING:
    import numpy

#: An array's type is a PJRT_Buffer_Type and the dimensions.
ArrayType = tuple[int, tuple[int, ...]]

_MAGIC = b"PJRTPY1\n"
# The head has the magic, a digest of the rest, and the length of the first part of the rest.
_HEAD = struct.Struct("<8s32sQ")
_PROCESS_INDEX = 0

_built: dict[str, Backend] = {}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The object that stands for an executable in C."""

    executable: Executable
    program: Program
    asks_what_is_kept: bool  # Whether `executable.execute` takes `non_donatable`.


class Bridge:
    """The answers of one backend to C."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def failure(self, exc: BaseException, name: str) -> status.Failure:
        """Turn an exception into a status code and text."""
        if type(exc).__module__ == PjrtError.__module__ and isinstance(exc, PjrtError):
            return exc.code, exc.message.encode("utf-8", "replace")  # The backend chose this text.
        return status.failure(exc, name, depth=1)

    def client(self, options: dict[str, Attribute]) -> tuple[Any, tuple[Any, ...]]:
        """Make a client; return its state, a list of device ids, and what `topology` returns."""
        devices = self._devices(options)
        return [each.id for each in devices], self._topology(devices)

    def topology(self, name: str, options: dict[str, Attribute]) -> tuple[Any, ...]:
        """Describe a topology as `topology_of` in platform.c reads it."""
        if name:
            raise ValueError(f"{self.backend.platform_name} has no topology {name!r}")
        return self._topology(self._devices(options))

    def topology_of(self, serialized: bytes) -> tuple[Any, ...]:
        """Describe a serialized topology, as `topology` does."""
        try:
            platform, devices = json.loads(serialized)
            found = [Device(*each) for each in devices]
        except (ValueError, TypeError):
            raise DataLossError("the bytes are not a topology") from None
        if platform != self.backend.platform_name:
            raise ValueError(f"the topology is of {platform}, not {self.backend.platform_name}")
        return self._topology(found)

    def _devices(self, options: dict[str, Attribute]) -> list[Device]:
        known = self.backend.options
        if unknown := [name for name in options if name not in known]:
            text = f"{self.backend.platform_name} has no option {', '.join(unknown)}"
            raise ValueError(text + f"; it has {', '.join(known)}" * bool(known))
        # JAX passes the options in its environment variable as text, without types.
        read = {
            name: parse(value) if isinstance(value, str) else value
            for name, value in options.items()
        }
        return list(self.backend.devices(read))

    def _topology(self, devices: Sequence[Device]) -> tuple[Any, ...]:
        if len({each.id for each in devices}) < len(devices):
            raise ValueError("two devices have the same id")
        name = self.backend.platform_name
        rows = [[d.id, d.kind, dict(d.attributes), d.process_index] for d in devices]
        serialized = json.dumps([name, rows]).encode()
        fingerprint = int.from_bytes(hashlib.sha256(serialized).digest()[:8], "little")
        local = 0
        described = []
        for device in devices:
            text = f"{name}:{device.id}"
            hardware_id = local if device.process_index == _PROCESS_INDEX else -1
            local += hardware_id >= 0
            row = (device.id, device.process_index, hardware_id, device.kind, text)
            described.append((*row, dict(device.attributes)))
        version = self.backend.platform_version
        return name, version, _PROCESS_INDEX, serialized, fingerprint, described

    def compile(
        self, device_ids: list[int] | None, code: bytes, form: str, options: bytes
    ) -> tuple[Any, ...]:
        """Compile for a client's or a topology's devices; `executable_of` in C reads the answer."""
        if form not in self.backend.formats:
            known = ", ".join(self.backend.formats)
            raise ValueError(f"{self.backend.platform_name} reads {known}, no format {form!r}")
        program = _program(code, form, options, device_ids)
        executable = self.backend.compile(program)
        if not isinstance(executable, Executable):
            raise TypeError(f"compile gave {executable!r}, which is not an Executable")
        signature = executable.signature
        identity = [self.backend.platform_name, self.backend.platform_version, program.format]
        parts = (json.dumps(identity).encode(), options, program.code)
        fingerprint = hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in parts))
        assignment = b""
        if program.device_ids:
            ids, width = program.device_ids, program.num_partitions
            rows = [list(ids[i : i + width]) for i in range(0, len(ids), width)]
            assignment = option.DeviceAssignment().message(rows)
        return (
            Loaded(executable, program, asks_what_is_kept(executable)),
            executable.name,
            fingerprint.hexdigest().encode(),
            options,
            assignment,
            program.num_replicas,
            program.num_partitions,
            [_array_type(each) for each in signature.parameters],
            [_array_type(each) for each in signature.outputs],
            list(signature.donated),
            list(program.device_ids),
            {name: float(value) for name, value in executable.cost.items()},
            executable.code_size,
        )

    def optimized(self, loaded: Loaded) -> tuple[bytes, str]:
        """See `Executable.optimized`."""
        code, form = loaded.executable.optimized()
        if form != "hlo":
            return code, form
        program = loaded.program
        counts = (program.num_replicas, program.num_partitions)
        return hlo.with_config(code, *counts), "hlo_with_config"

    def serialize(self, loaded: Loaded) -> bytes:
        """Write the program and its options, which `deserialize` compiles again."""
        platform = (self.backend.platform_name, self.backend.platform_version)
        told = [*platform, loaded.program.format, loaded.program.options.hex()]
        first = json.dumps(told).encode()
        body = first + loaded.program.code
        return _HEAD.pack(_MAGIC, hashlib.sha256(body).digest(), len(first)) + body

    def deserialize(
        self, device_ids: list[int] | None, serialized: bytes, overridden: bytes
    ) -> tuple[Any, ...]:
        """Compile a serialized executable, with its own options or the `overridden` ones."""
        if len(serialized) < _HEAD.size:
            raise DataLossError("the bytes are not an executable")
        magic, digest, size = _HEAD.unpack_from(serialized)
        body = serialized[_HEAD.size :]
        if magic != _MAGIC or hashlib.sha256(body).digest() != digest:
            raise DataLossError("the bytes are not an executable of this kind, or damaged")
        name, version, form, options = json.loads(body[:size])
        if (name, version) != (self.backend.platform_name, self.backend.platform_version):
            raise ValueError(f"the executable is of {name} {version}")
        return self.compile(device_ids, body[size:], form, overridden or bytes.fromhex(options))

    def execute(
        self, loaded: Loaded, rows: list[list[Any]], launch_id: int, non_donatable: tuple[int, ...]
    ) -> list[Any]:
        """Run a program; return its outputs, device after device, in the form that C takes."""
        signature = loaded.executable.signature
        arguments = rows
        if not self.backend.own_memory:
            types = [_array_type(each) for each in signature.parameters]
            arguments = [
                [_array(each, kind) for each, kind in zip(row, types, strict=True)] for row in rows
            ]
        told = {"non_donatable": non_donatable} if loaded.asks_what_is_kept else {}
        results = loaded.executable.execute(arguments, **told)
        counts = [len(row) for row in results]
        if counts != [len(signature.outputs)] * len(rows):
            raise InternalError(
                f"{loaded.executable.name} gave {counts} outputs, it promised "
                f"{len(signature.outputs)} on each of {len(rows)} device(s)"
            )
        if self.backend.own_memory:
            return [each for row in results for each in row]
        return [
            _bytes(each, slot, loaded.executable.name)
            for row in results
            for each, slot in zip(row, signature.outputs, strict=True)
        ]

    def put(self, storage: Any, kind: ArrayType, device_id: int) -> Any:
        """See `Backend.put`."""
        return self.backend.put(_array(storage, kind), device_id)

    def get(self, handle: Any, kind: ArrayType) -> Any:
        """See `Backend.get`."""
        return _bytes(self.backend.get(handle), Slot(*kind, None), "get")

    def copy(self, handle: Any, kind: ArrayType, device_id: int) -> Any:
        """See `Backend.copy`."""
        return self.backend.copy(handle, device_id)


@atexit.register
def _end() -> None:
    """Tell running calls that Python is ending; objects destroyed later need no Python."""
    _plugin.end(math.inf)


def table(backend: Backend) -> int:
    """Return the address of the backend's `PJRT_Api`, which lasts as long as the process."""
    known: int | None = backend.__dict__.get("_table")
    if known is None:
        bridge = Bridge(backend)
        attributes = dict(backend.attributes)
        known = _plugin.table(bridge, attributes, backend.asynchronous, backend.own_memory)
        backend.__dict__["_table"] = known
    return known


def table_of(name: str) -> int:
    """Return the same address for "module:Class", a backend of a library that `building` made."""
    from pjrt_hub.kit.authoring import building

    if name not in _built:
        _built[name] = building.backend_class(name)()
    return table(_built[name])


def capsule(backend: Backend) -> object:
    """Make the capsule for JAX: `xla_bridge.register_plugin(name, c_api=capsule(backend))`.

    Args:
        backend: lives as long as the process from then on.
    """
    return _plugin.capsule(table(backend))


def plugin(backend: Backend) -> Plugin:
    """Open a backend as a plugin of this process, as if it were loaded from a library.

    Args:
        backend: lives as long as the process from then on.
    """
    try:
        source = inspect.getfile(type(backend))
    except (OSError, TypeError):  # The class was defined at a prompt.
        source = _plugin.__file__
    return Plugin(library.adopt(table(backend), source), Policy(backend.platform_name))


def _program(code: bytes, form: str, options: bytes, there: Sequence[int] | None) -> Program:
    """Read a request to compile: how many copies of the program run, and where.

    No other option is read: hosts fill the options that they leave open with numbers of their own.
    """
    asked = compile_options.raw(options)
    replicas, partitions = asked.get("num_replicas", 1), asked.get("num_partitions", 1)
    if not (isinstance(replicas, int) and isinstance(partitions, int) and replicas and partitions):
        raise ValueError(f"{replicas} replica(s) of {partitions} partition(s) are not a program")
    if asked.get("compile_portable_executable"):
        return Program(code, form, options, replicas, partitions, ())
    needed = replicas * partitions
    assigned = asked.get("device_ids", b"")
    if isinstance(assigned, int):
        raise ValueError("a number stands where a message belongs")
    given = option.DeviceAssignment().parse(bytes(assigned))
    ids = tuple(each for row in given for each in row)
    if ids and len(ids) != needed:
        raise ValueError(f"{len(ids)} devices are assigned to {needed} parts")
    if not ids:
        there = range(needed) if there is None else there
        if needed > len(there):
            raise ValueError(f"the program is for {needed} devices, there are {len(there)}")
        ids = tuple(there[:needed])
    return Program(code, form, options, replicas, partitions, ids)


def _array_type(slot: Slot) -> ArrayType:
    if slot.shape is None:
        raise ValueError(f"the backend's signature holds {slot}, which says no shape")
    return slot.code, slot.shape


def _array(storage: Any, kind: ArrayType) -> numpy.ndarray[Any, Any]:
    import numpy

    dtype, shape = kind
    return numpy.ndarray(shape, dtypes.numpy_dtype(dtype), storage)


def _bytes(result: Any, slot: Slot, name: str) -> Any:
    """Return an array's bytes in row-major order, or refuse a type or shape not promised."""
    import numpy

    array = numpy.asarray(result)
    if array.shape != slot.shape or array.dtype != slot.dtype:
        raise InternalError(f"{name} gave an array of {array.dtype.name} {array.shape}, not {slot}")
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
