"""The short name of `pjrt_hub.frameworks.jax`: JAX on any plugin that pjrt-hub finds."""

from pjrt_hub.frameworks.jax import diagnose as diagnose
from pjrt_hub.frameworks.jax import initialize as initialize
from pjrt_hub.frameworks.jax import register as register
