"""The short name of `pjrt_hub.frameworks.torch_xla`: torch_xla on any plugin."""

from pjrt_hub.frameworks.torch_xla import __getattr__ as __getattr__
from pjrt_hub.frameworks.torch_xla import register as register
