"""The short name of `pjrt_hub.frameworks.torch`: PyTorch on any plugin, by TorchTPU."""

from pjrt_hub.frameworks.torch import export as export
from pjrt_hub.frameworks.torch import initialize as initialize
from pjrt_hub.frameworks.torch import register as register
