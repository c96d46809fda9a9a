"""pjrt-hub: finds, explains, checks, fetches and runs PJRT plugins.

Importing it costs nothing: each public name is imported on first use.
"""

# The layers, from the bottom; an arrow down is an import that is allowed (docs/architecture.md).
#
#   cli                                   the commands
#   connect, opening, contact, diagnosis  client() load() plugins(): where both towers meet
#   surroundings, elevation               environment, registry, cache; whether the caller is heard
#   discovery        bridges              which plugin and why  |  numpy, safetensors, ...
#   store            runtime              verified binaries     |  clients, buffers, executables
#   contract         _capi                manifests, binaries   |  the C API and the call path
#   errors, abi, host, log, native_log, terminal   import nothing of ours

from __future__ import annotations

#: As type checkers read it; `typing` would be the most of the import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from pjrt_hub import errors, registries
    from pjrt_hub.abi import ApiVersion, Verdict
    from pjrt_hub.bridges.exported.exported import Exported
    from pjrt_hub.bundling import export_bundle, import_bundle
    from pjrt_hub.connect import client, fetch, load, plugins, targets, topology
    from pjrt_hub.contract.target import Target
    from pjrt_hub.diagnosis import diagnose
    from pjrt_hub.discovery.finding import Finding
    from pjrt_hub.exported import load_exported
    from pjrt_hub.locking import lock
    from pjrt_hub.native_log import capture_native_logs
    from pjrt_hub.repairing import repair
    from pjrt_hub.runtime.buffer import Buffer, HostBufferSemantics
    from pjrt_hub.runtime.client import Client
    from pjrt_hub.runtime.compile_options import CompileOptions
    from pjrt_hub.runtime.device import Device, Memory
    from pjrt_hub.runtime.device_description import DeviceDescription
    from pjrt_hub.runtime.event import Event
    from pjrt_hub.runtime.executable import Executable
    from pjrt_hub.runtime.execute_context import ExecuteContext
    from pjrt_hub.runtime.execute_options import ExecuteOptions
    from pjrt_hub.runtime.host_array import empty_aligned
    from pjrt_hub.runtime.kv_store import DirectoryStore, Distributed, InMemoryStore
    from pjrt_hub.runtime.loaded_executable import LoadedExecutable
    from pjrt_hub.runtime.plugin import Plugin
    from pjrt_hub.runtime.program import Program
    from pjrt_hub.runtime.topology import Topology
    from pjrt_hub.surroundings import cache, pins

#: Public name -> the module that holds it.
_HOMES = {
    "ApiVersion": "abi",
    "Buffer": "runtime.buffer",
    "Client": "runtime.client",
    "CompileOptions": "runtime.compile_options",
    "Device": "runtime.device",
    "DeviceDescription": "runtime.device_description",
    "DirectoryStore": "runtime.kv_store",
    "Distributed": "runtime.kv_store",
    "Event": "runtime.event",
    "Executable": "runtime.executable",
    "ExecuteContext": "runtime.execute_context",
    "ExecuteOptions": "runtime.execute_options",
    "Exported": "bridges.exported.exported",
    "Finding": "discovery.finding",
    "HostBufferSemantics": "runtime.buffer",
    "InMemoryStore": "runtime.kv_store",
    "LoadedExecutable": "runtime.loaded_executable",
    "Memory": "runtime.device",
    "Plugin": "runtime.plugin",
    "Program": "runtime.program",
    "Target": "contract.target",
    "Topology": "runtime.topology",
    "Verdict": "abi",
    "cache": "surroundings",
    "capture_native_logs": "native_log",
    "client": "connect",
    "diagnose": "diagnosis",
    "empty_aligned": "runtime.host_array",
    "errors": "",
    "export_bundle": "bundling",
    "fetch": "connect",
    "import_bundle": "bundling",
    "load": "connect",
    "load_exported": "exported",
    "lock": "locking",
    "pins": "surroundings",
    "plugins": "connect",
    "registries": "",
    "repair": "repairing",
    "targets": "connect",
    "topology": "connect",
}

__all__ = [
    "ApiVersion",
    "Buffer",
    "Client",
    "CompileOptions",
    "Device",
    "DeviceDescription",
    "DirectoryStore",
    "Distributed",
    "Event",
    "Executable",
    "ExecuteContext",
    "ExecuteOptions",
    "Exported",
    "Finding",
    "HostBufferSemantics",
    "InMemoryStore",
    "LoadedExecutable",
    "Memory",
    "Plugin",
    "Program",
    "Target",
    "Topology",
    "Verdict",
    "__version__",
    "cache",
    "capture_native_logs",
    "client",
    "diagnose",
    "empty_aligned",
    "errors",
    "export_bundle",
    "fetch",
    "import_bundle",
    "load",
    "load_exported",
    "lock",
    "pins",
    "plugins",
    "registries",
    "repair",
    "targets",
    "topology",
]

__version__ = "0.1.0"


if not TYPE_CHECKING:  # else a checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = import_module(f"{__name__}.{home or name}")
        if home:
            value = getattr(value, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
