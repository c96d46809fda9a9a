# The public names, a line each: what users, type checkers, the docs and the tests read. What a line
# imports is imported on first use.

from pjrt_hub import errors as errors
from pjrt_hub import jax as jax
from pjrt_hub import kit as kit
from pjrt_hub import safetensors as safetensors
from pjrt_hub import torch_xla as torch_xla
from pjrt_hub.base.abi import ApiVersion as ApiVersion
from pjrt_hub.base.abi import Verdict as Verdict
from pjrt_hub.base.native_log import capture_native_logs as capture_native_logs
from pjrt_hub.door import registries as registries
from pjrt_hub.door.bundle import export_bundle as export_bundle
from pjrt_hub.door.bundle import import_bundle as import_bundle
from pjrt_hub.door.client import client as client
from pjrt_hub.door.client import fetch as fetch
from pjrt_hub.door.client import load as load
from pjrt_hub.door.client import plugins as plugins
from pjrt_hub.door.client import targets as targets
from pjrt_hub.door.client import topology as topology
from pjrt_hub.door.doctor import diagnose as diagnose
from pjrt_hub.door.lock import lock as lock
from pjrt_hub.door.process import cache as cache
from pjrt_hub.door.process import pins as pins
from pjrt_hub.door.repair import repair as repair
from pjrt_hub.finding.contract.target import Target as Target
from pjrt_hub.finding.discovery.finding import Finding as Finding
from pjrt_hub.frameworks.exported.exported import Exported as Exported
from pjrt_hub.frameworks.exported.load import load_exported as load_exported
from pjrt_hub.running.array.host_array import empty_aligned as empty_aligned
from pjrt_hub.running.buffer.buffer import Buffer as Buffer
from pjrt_hub.running.buffer.buffer import HostBufferSemantics as HostBufferSemantics
from pjrt_hub.running.client.client import Client as Client
from pjrt_hub.running.client.plugin import Plugin as Plugin
from pjrt_hub.running.client.topology import Topology as Topology
from pjrt_hub.running.device.device import Device as Device
from pjrt_hub.running.device.device import Memory as Memory
from pjrt_hub.running.device.device_description import DeviceDescription as DeviceDescription
from pjrt_hub.running.device.event import Event as Event
from pjrt_hub.running.distributed.kv_store import DirectoryStore as DirectoryStore
from pjrt_hub.running.distributed.kv_store import Distributed as Distributed
from pjrt_hub.running.distributed.kv_store import InMemoryStore as InMemoryStore
from pjrt_hub.running.executable.executable import Executable as Executable
from pjrt_hub.running.executable.execute_options import ExecuteOptions as ExecuteOptions
from pjrt_hub.running.executable.loaded_executable import LoadedExecutable as LoadedExecutable
from pjrt_hub.running.extensions.execute_context import ExecuteContext as ExecuteContext
from pjrt_hub.running.program.compile_options import CompileOptions as CompileOptions
from pjrt_hub.running.program.program import Program as Program

__version__: str
