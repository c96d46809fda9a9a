"""The short name of `pjrt_hub.frameworks.safetensors`: reading and writing files of tensors."""

from pjrt_hub.frameworks.safetensors import load_file as load_file
from pjrt_hub.frameworks.safetensors import open_file as open_file
from pjrt_hub.frameworks.safetensors import save_file as save_file
