"""ABI versions: what compiled code was made for (extension AbiVersion).

A version is a small proto of the plugin's, which is kept as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pjrt_hub.running.capi.handle import ExecutableHandle
from pjrt_hub.running.capi.library import Api


class ExecutableAbiVersion:
    """A `PJRT_ExecutableAbiVersion`: what compiled code was made for.

    Attributes:
        api: the plugin's function table.
        proto: the plugin's own description, serialized, for another process or machine.
    """

    def __init__(self, api: Api, proto: bytes) -> None:
        """Make a version from the bytes of `proto` (`PJRT_ExecutableAbiVersion_FromProto`).

        Raises:
            UnsupportedByPluginError: the plugin has no such extension.
            PjrtError: the bytes are damaged.
        """
        self.api = api
        self.proto = bytes(proto)
        with self._native():
            pass

    @classmethod
    def of(cls, executable: ExecutableHandle) -> ExecutableAbiVersion:
        """Read the version from a compiled program (`PJRT_Executable_GetAbiVersion`).

        Args:
            executable: compiled, loaded or not.

        Raises:
            UnsupportedByPluginError: the plugin has no such extension.
            PjrtError: the plugin does not tell.
        """
        with executable.view() as view:
            call = executable.api.extension("AbiVersion").call
            address = call("PJRT_Executable_GetAbiVersion", executable=view)
            try:
                proto = call("PJRT_ExecutableAbiVersion_ToProto", abi_version=address)
            finally:
                call("PJRT_ExecutableAbiVersion_Destroy", abi_version=address)
            return cls(executable.api, proto)

    @property
    def platform_id(self) -> int:
        """A 64-bit id of the platform (`PJRT_ExecutableAbiVersion_PlatformId`)."""
        with self._native() as address:
            call = self.api.extension("AbiVersion").call
            return int(call("PJRT_ExecutableAbiVersion_PlatformId", abi_version=address))

    @contextmanager
    def _native(self) -> Iterator[int]:
        call = self.api.extension("AbiVersion").call
        address = call("PJRT_ExecutableAbiVersion_FromProto", serialized_proto=self.proto)
        try:
            yield address
        finally:
            call("PJRT_ExecutableAbiVersion_Destroy", abi_version=address)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutableAbiVersion) and self.proto == other.proto

    def __hash__(self) -> int:
        return hash(self.proto)
