"""Topologies: the devices of a machine, described whether or not they are there.

Owns compiling ahead of time; must not know any vendor's names for machines.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from pjrt_hub.base.fork import cached_property
from pjrt_hub.base.frames import hide_below
from pjrt_hub.base.listing import Listing
from pjrt_hub.errors import NotFoundError, PjrtError
from pjrt_hub.running.array import display, dtypes
from pjrt_hub.running.capi.call import interruptible
from pjrt_hub.running.capi.handle import free, free_with
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.compilation import compilation
from pjrt_hub.running.compilation.policy import CompilingClient, Policy
from pjrt_hub.running.device.device import DeviceDescription
from pjrt_hub.running.distributed import pickled
from pjrt_hub.running.executable.executable import Executable
from pjrt_hub.running.extensions.tpu_topology import TpuTopology
from pjrt_hub.running.program import entry, partitioning
from pjrt_hub.running.program.compile_options import CompileOptions
from pjrt_hub.running.program.program import Program

_MAX_ELEMENTS = 1 << 48


class Topology:
    """A machine to compile for, which need not be present (`PJRT_TopologyDescription`).

    A topology that a client gave ends with that client; any other is freed with the last
    reference to it.

    Attributes:
        api: the plugin's function table.
        client: the client that it belongs to, or None.
    """

    __module__ = "pjrt_hub"

    def __init__(
        self,
        api: Api,
        address: int,
        client: CompilingClient | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.api = api
        self.client = client
        self._policy = client._policy if client else policy or Policy()
        self.address = address
        if client is None:  # A client frees its own topology, and freeing it twice would abort.
            free_with(self, api.call, "PJRT_TopologyDescription_Destroy", topology=address)

    @cached_property
    def platform_name(self) -> str:
        """The platform of the devices, "tpu" (`PJRT_TopologyDescription_PlatformName`)."""
        return self._ask("PJRT_TopologyDescription_PlatformName").decode()

    @cached_property
    def platform_version(self) -> str:
        """The plugin's description of its version (`PJRT_TopologyDescription_PlatformVersion`)."""
        return self._ask("PJRT_TopologyDescription_PlatformVersion").decode()

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The vendor's attributes of the topology (`PJRT_TopologyDescription_Attributes`)."""
        return self._ask("PJRT_TopologyDescription_Attributes")

    @cached_property
    def device_descriptions(self) -> Listing[DeviceDescription]:
        """Its devices (`PJRT_TopologyDescription_GetDeviceDescriptions`)."""
        addresses = self._ask("PJRT_TopologyDescription_GetDeviceDescriptions")
        return Listing(DeviceDescription(self, address) for address in addresses)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits, equal for equal topologies (`PJRT_TopologyDescription_Fingerprint`, 0.101)."""
        return self._ask("PJRT_TopologyDescription_Fingerprint")

    @cached_property
    def memory_space_kind_ids(self) -> tuple[int, ...]:
        """Ids of its kinds of memory (`PJRT_TopologyDescription_GetMemorySpaceKindIds`, 0.110)."""
        return tuple(self._ask("PJRT_TopologyDescription_GetMemorySpaceKindIds"))

    @property
    def tpu(self) -> TpuTopology:
        """The chips, cores and hosts, as libtpu reports them.

        Raises:
            UnsupportedByPluginError: the plugin is not libtpu.
        """
        return TpuTopology(self)

    def make_canonical_shape(
        self, memory_space_kind_id: int, dims: Sequence[int], dtype: Any
    ) -> bytes:
        """Return the layout of an array in a kind of memory, with its tiles.

        The C function is `PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace`.

        Args:
            memory_space_kind_id: one of `memory_space_kind_ids`.
            dims: the array's sizes, at least 0.
            dtype: as for `Client.buffer_from_host`.

        Returns:
            XLA's ShapeProto, serialized.

        Raises:
            UnsupportedByPluginError: the plugin is older than 0.110 or than the dtype.
            TypeError: a size that is not an int, or no such dtype.
            ValueError: no such kind of memory, or an impossible size.
        """
        if memory_space_kind_id not in self.memory_space_kind_ids:
            raise ValueError(
                f"there is no kind of memory {memory_space_kind_id!r}, only "
                f"{', '.join(map(str, self.memory_space_kind_ids))}"
            )
        element = dtypes.of_numpy(dtype)
        dtypes.require(element, self.api.version)
        sizes = [operator.index(size) for size in dims]
        if min(sizes, default=0) < 0 or math.prod(map(max, sizes, repeat(1))) > _MAX_ELEMENTS:
            raise ValueError(f"an array of {sizes} is impossible")  # The plugin would abort.
        return self._call(
            "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace",
            topology=self.address,
            memory_space_kind_id=memory_space_kind_id,
            dims=sizes,
            element_type=element.code,
        )

    def serialize(self) -> bytes:
        """Return bytes for `Plugin.deserialize_topology` (`PJRT_TopologyDescription_Serialize`)."""
        return self._ask("PJRT_TopologyDescription_Serialize")

    @hide_below
    def compile(
        self,
        program: Program | str | bytes | os.PathLike[str],
        options: CompileOptions | None = None,
    ) -> Executable:
        """Compile a program for these devices (`PJRT_Compile`); Ctrl-C ends the wait.

        Args:
            program: as for `Client.compile`.
            options: see `CompileOptions`.

        Raises:
            FileFormatError: the program has no known format.
            IncompatiblePluginError: its StableHLO is newer than the plugin's.
            PjrtError: the plugin cannot compile it.
            ValueError: the program needs more devices than there are.
        """
        source = Program.of(program)
        source.require_readable(self.api)
        chosen = partitioning.options_for(
            source,
            options,
            len(self.device_descriptions),
            "the topology",
            lambda needed: f"describe a machine of {needed} devices, or several slices of one",
        )
        address, sent = compilation.attempt(source, chosen, self._policy, self._compile, _hint)
        executable = Executable(self, address, entry.signature(source, chosen.num_partitions))
        executable._given_options = sent
        return executable

    def _compile(self, source: Program, options: CompileOptions) -> int:
        message = options.serialize()
        address: int = interruptible(
            lambda: self._call(
                "PJRT_Compile",
                topology=self.address,
                program={"code": source.code, "format": source.format},
                compile_options=message,
                client=self.client.address if self.client else 0,
            ),
            lambda late: free(self._call, "PJRT_Executable_Destroy", executable=late),
        )
        return address

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle `serialize()`, unpickled as a topology of the same plugin, without a client."""
        words = (self.serialize(), self._policy.reload, self.platform_name, self.api.sha256)
        return pickled.to_topology, words

    def _reduce_executable(self, blob: bytes) -> tuple[Any, ...]:
        return pickled.to_executable, (blob, self._policy.reload, None)

    def _ask(self, function: str) -> Any:
        return self._call(function, topology=self.address)

    def _call(self, function: str, /, **inputs: Any) -> Any:
        """Call a C function with the fields of its argument struct, and give its output."""
        call = self.client._call if self.client else self.api.call
        return call(function, **inputs)

    def _in_call(self) -> contextlib.AbstractContextManager[None]:
        """Keep the client that it belongs to, if any, from being freed in a `with` block."""
        return self.client._in_call() if self.client else contextlib.nullcontext()

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        if self.client is not None and self.client.closed:
            return {}
        facts = {"Topology": self.platform_name, "version": self.platform_version}
        devices = "\n".join(f"{each.id} {each.kind}" for each in self.device_descriptions)
        return {**facts, "devices": devices, **self.attributes}

    def __repr__(self) -> str:
        if self.client and self.client.closed:
            return "<Topology closed>"
        return f"<Topology {self.platform_name} of {len(self.device_descriptions)} devices>"


def _hint(error: PjrtError) -> str:
    if isinstance(error, NotFoundError):  # No compiler is registered for the platform.
        return "the plugin may compile only on what is there: client.compile(program).serialize()"
    if "autotune" in error.message:
        return (
            "there is no device to time kernels on: compile with "
            'CompileOptions(flags={"xla_gpu_autotune_level": 0})'
        )
    return ""
