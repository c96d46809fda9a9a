"""Everything that pjrt-hub uses of TorchTPU and that is not public.

Differences between releases of TorchTPU are handled here and nowhere else.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.door.process import environment
from pjrt_hub.errors import FrameworkError
from pjrt_hub.frameworks.request import release

#: The device's type in PyTorch. TorchTPU renames PyTorch's private backend to it, which can be done
#: once in a process, and refuses other names.
DEVICE = "tpu"
#: The releases of TorchTPU that were tested, with the PJRT API that they were built with. They tell
#: it only in an error, when ENABLE_PJRT_COMPATIBILITY=0 makes them refuse every other version.
BUILT_WITH = {(0, 2): ApiVersion(0, 116)}
#: What TorchTPU writes for TPUs alone -> what a program with it is refused by.
FOR_TPUS = {
    "tpu_custom_call": "the program calls tpu_custom_call, a kernel of TPUs (Pallas), which this "
    "plugin does not have\n\nhint: use torch's own operation; for attention, "
    "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
    "chlo.scan": "the program has the operation chlo.scan, which TorchTPU writes for TPUs alone"
    "\n\nhint: compute this operation on the CPU: x.cpu()",
}
_LOG = logging.getLogger("pjrt_hub.torch")


def api_version() -> ApiVersion | None:
    """Return the PJRT API that this TorchTPU was built with, or None if nobody measured it."""
    return BUILT_WITH.get(release("torch_tpu"))


def require() -> None:
    """Raise FrameworkError if TorchTPU cannot be imported; warn if this release was not tested."""
    try:
        import torch
        import torch_tpu._loader  # noqa: F401
    except ImportError as exc:
        raise FrameworkError(
            f"TorchTPU cannot be imported: {exc}",
            hint="`pip install 'pjrt-hub[torch]'` installs it with a torch that fits; it needs "
            "Python 3.12 or newer",
        ) from exc
    if release("torch_tpu") not in BUILT_WITH:
        tested = ", ".join(f"{major}.{minor}" for major, minor in BUILT_WITH)
        _LOG.warning(
            "TorchTPU %d.%d was not tested with pjrt-hub, which was on %s, and torch is %s",
            *release("torch_tpu"),
            tested,
            torch.__version__,
        )


def has_begun() -> bool:
    """Return whether TorchTPU has called its library, after which it uses no other."""
    from torch_tpu._internal.device import _device_ops_backend

    return bool(_device_ops_backend._is_initialized())


def start(take_over: Callable[[str], None], is_tpu: bool) -> None:
    """Make TorchTPU's device known to PyTorch; first `take_over` gets the path of its library.

    `import torch` imports TorchTPU, which opens libtpu at once, or what TPU_LIBRARY_PATH names, and
    calls it when the device is first used.
    """
    from torch_tpu import _loader

    take_over(environment()["TPU_LIBRARY_PATH"])
    if not is_tpu:
        together = _loader.tpu_distributed.create_process_group
        _loader.tpu_distributed.create_process_group = partial(_connect, together)
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        _loader._init_device(DEVICE)
    for line in told.getvalue().splitlines():
        _LOG.debug("TorchTPU: %s", line)


def _connect(together: Callable[..., Any], store: Any, rank: int, size: int, *more: Any) -> Any:
    """Make a process group of one process; TorchTPU would fail with several, then abort."""
    if size == 1:
        return together(store, rank, size, *more)
    raise FrameworkError(
        f"torch.distributed has {size} processes: TorchTPU connects those of TPUs alone",
        hint="start one, `torchrun --nproc-per-node=1`, with TORCH_TPU_TOPOLOGY=1,1,1 and "
        "TORCH_TPU_SLICEBUILDER_ADDRESSES=localhost:8471",
    )


def has_device() -> bool:
    """Return whether TorchTPU's device is known to PyTorch."""
    from torch_tpu import _loader

    return bool(_loader._DEVICE_INITIALIZED)


def lower(graph: Any, arguments: Sequence[Any]) -> Any:
    """Translate a graph of torch.export to StableHLO for the device: TorchTPU's `ExportedMlir`.

    Each argument is a `(shape, dtype)` of a tensor, or another value, as the graph takes it.
    """
    from torch_tpu._internal.compile import tpu_torch_compile
    from torch_tpu._internal.export import export

    args = [
        tpu_torch_compile.placeholder(list(each[0]), each[1], False).to(DEVICE)
        if isinstance(each, tuple)
        else each
        for each in arguments
    ]
    return export.fx_to_mlir(graph.to(DEVICE), args=args)
