"""The short name of `pjrt_hub.running.extensions`: a module for each extension of the C API."""

from pjrt_hub.running.extensions import abi_version as abi_version
from pjrt_hub.running.extensions import custom_calls as custom_calls
from pjrt_hub.running.extensions import custom_partitioner as custom_partitioner
from pjrt_hub.running.extensions import executable_metadata as executable_metadata
from pjrt_hub.running.extensions import execute_context as execute_context
from pjrt_hub.running.extensions import layouts as layouts
from pjrt_hub.running.extensions import memory_descriptions as memory_descriptions
from pjrt_hub.running.extensions import multi_slice as multi_slice
from pjrt_hub.running.extensions import phase_compile as phase_compile
from pjrt_hub.running.extensions import profiler as profiler
from pjrt_hub.running.extensions import shardings as shardings
from pjrt_hub.running.extensions import tpu_executable as tpu_executable
from pjrt_hub.running.extensions import tpu_topology as tpu_topology
from pjrt_hub.running.extensions import xla_transform as xla_transform
