"""PyTorch on any plugin that pjrt-hub finds, by TorchTPU: `register`, and `export` to a file.

Importing it imports nothing of torch and nothing heavy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from torch.nn import Module

__all__ = ["export", "initialize", "register"]


def register(
    platform: str | os.PathLike[str] | None = None, options: Mapping[str, Any] | None = None
) -> str:
    """Make a plugin PyTorch's device, by TorchTPU; fetch, verify and load it at once.

    TorchTPU makes its client with the first tensor on the device. A process has one plugin.

    Args:
        platform: what `pjrt_hub.client` takes: "cuda", a plugin, an alias, "distribution:plugin";
            or the path of a library. None lets pjrt-hub choose.
        options: create options of the plugin's client, checked before they reach it.

    Returns:
        The device's type in PyTorch: "tpu", whatever the plugin is. The name is TorchTPU's, which
        allows no other.

    Raises:
        FrameworkError: torch or TorchTPU is missing or too old, or TorchTPU has begun already.
        PluginError: no plugin fits, it cannot be loaded, or a client of it cannot be made.
        StoreError: the plugin cannot be fetched.
        TypeError, ValueError: an option is of another type, or the plugin does not have it.
    """
    from pjrt_hub.frameworks.torch import framework

    framework.require()
    from pjrt_hub.frameworks.torch.registration import register

    return register(platform, options)


def export(
    module: Module,
    args: tuple[Any, ...],
    path: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
) -> Path:
    """Write a module to a file that `load_exported` and `pjrt-hub run` execute without torch.

    The module is exported by `torch.export` and translated by TorchTPU, on the registered plugin,
    or on the one that pjrt-hub chooses. The file holds the program, for the oldest StableHLO that
    it needs; parameters and buffers stand beside it in a safetensors file of the same name.

    Args:
        module: what is exported, as it is: call `module.eval()` first to run it.
        args: example arguments: tensors, nested in tuples, lists and dicts; other values are part
            of the program.
        path: the file's path, "model.pjrt".
        dynamic_shapes: as for `torch.export.export`: which sizes may change. Each is compiled when
            it is first used.
        kwargs: example arguments by name.

    Returns:
        The file's path.

    Raises:
        FrameworkError: torch or TorchTPU is missing or too old.
        NotRunnableError: the module draws random numbers or changes its own buffers or arguments,
            or its program depends on sizes in a way that no file can hold.
        PluginError: no plugin fits, or it cannot be loaded.
    """
    from pjrt_hub.frameworks.torch import framework

    framework.require()
    from pjrt_hub.frameworks.torch.exporting import export

    return export(module, args, path, dynamic_shapes, kwargs)


def initialize() -> None:
    """Register what the variable `PJRT_HUB_TORCH` asks for; `import torch` calls it at its end."""
    from pjrt_hub.door.process import environment

    if text := environment().get("PJRT_HUB_TORCH"):
        from pjrt_hub.frameworks.torch import framework

        framework.require()
        from pjrt_hub.frameworks.torch.registration import register_request

        register_request(text)
