"""ABI versions: whether compiled code fits a runtime (extension AbiVersion).

Both are small protos of the plugin's; they are kept as bytes and asked about when needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pjrt_hub.errors import PjrtError
from pjrt_hub.running.capi.library import Api

if TYPE_CHECKING:
    from pjrt_hub.running.capi.handle import ClientHandle, ExecutableHandle


class AbiVersion:
    """What compiled code was made for, or what a runtime takes.

    Attributes:
        api: the plugin's function table.
        proto: the plugin's own words, serialized: for another process or machine.
    """

    _destroy: str
    _to_proto: str
    _from_proto: str
    _platform_id: str

    def __init__(self, api: Api, proto: bytes) -> None:
        """Takes what `proto` gave, there or elsewhere.

        Raises:
            UnsupportedByPluginError: the plugin has no such extension.
            PjrtError: the bytes are damaged.
        """
        self.api = api
        self.proto = bytes(proto)
        with self._native():
            pass

    @property
    def platform_id(self) -> int:
        """64 bits that stand for the platform."""
        with self._native() as address:
            call = self.api.extension("AbiVersion").call
            return int(call(self._platform_id, abi_version=address))

    @classmethod
    def _take(cls, api: Api, address: int) -> bytes:
        """Serializes a version that is the caller's, and frees it."""
        node = api.extension("AbiVersion")
        try:
            return bytes(node.call(cls._to_proto, abi_version=address))
        finally:
            node.call(cls._destroy, abi_version=address)

    @contextmanager
    def _native(self) -> Iterator[int]:
        call = self.api.extension("AbiVersion").call
        address = call(self._from_proto, serialized_proto=self.proto)
        try:
            yield address
        finally:
            call(self._destroy, abi_version=address)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.proto == getattr(other, "proto", None)

    def __hash__(self) -> int:
        return hash((type(self), self.proto))


class ExecutableAbiVersion(AbiVersion):
    """A `PJRT_ExecutableAbiVersion`: what compiled code was made for."""

    _destroy = "PJRT_ExecutableAbiVersion_Destroy"
    _to_proto = "PJRT_ExecutableAbiVersion_ToProto"
    _from_proto = "PJRT_ExecutableAbiVersion_FromProto"
    _platform_id = "PJRT_ExecutableAbiVersion_PlatformId"

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
            return cls(executable.api, cls._take(executable.api, address))


class RuntimeAbiVersion(AbiVersion):
    """A `PJRT_RuntimeAbiVersion`: what a runtime takes."""

    _destroy = "PJRT_RuntimeAbiVersion_Destroy"
    _to_proto = "PJRT_RuntimeAbiVersion_ToProto"
    _from_proto = "PJRT_RuntimeAbiVersion_FromProto"
    _platform_id = "PJRT_RuntimeAbiVersion_PlatformId"

    @classmethod
    def of(cls, client: ClientHandle) -> RuntimeAbiVersion:
        """Read the version from a client (`PJRT_Client_RuntimeAbiVersion`).

        Args:
            client: of the runtime.

        Raises:
            UnsupportedByPluginError: the plugin has no such extension.
            PjrtError: the plugin does not tell.
        """
        with client.in_call():
            call = client.api.extension("AbiVersion").call
            address = call("PJRT_Client_RuntimeAbiVersion", client=client.address)
            return cls(client.api, cls._take(client.api, address))

    def incompatible_with(self, other: AbiVersion) -> str | None:
        """Return why this runtime cannot run code for the other version, or None if it can.

        The C functions are `PJRT_RuntimeAbiVersion_IsCompatibleWithRuntime` and
        `PJRT_RuntimeAbiVersion_IsCompatibleWithExecutable`.

        Args:
            other: of a plugin of the same kind.
        """
        with self._native() as ours, other._native() as theirs:
            call = self.api.extension("AbiVersion").call
            try:
                if isinstance(other, RuntimeAbiVersion):
                    call(
                        "PJRT_RuntimeAbiVersion_IsCompatibleWithRuntime",
                        abi_version=ours,
                        other_abi_version=theirs,
                    )
                else:
                    call(
                        "PJRT_RuntimeAbiVersion_IsCompatibleWithExecutable",
                        abi_version=ours,
                        executable_abi_version=theirs,
                    )
            except PjrtError as exc:
                return str(exc)
        return None
