"""Shardings: how a compiled program splits its arrays (extension Shardings).

Gives serialized OpSharding messages, which XLA's own tools read. A plugin without the extension
raises UnsupportedByPluginError.
"""

from __future__ import annotations

from pjrt_hub.running.capi.handle import ExecutableHandle


def parameter_shardings(executable: ExecutableHandle) -> tuple[bytes, ...]:
    """Return an OpSharding for each parameter, or none if the program is not partitioned.

    The C function is `PJRT_Shardings_PJRT_Executable_ParameterShardings`.

    Args:
        executable: compiled, loaded or not.
    """
    return _ask(executable, "PJRT_Shardings_PJRT_Executable_ParameterShardings")


def output_shardings(executable: ExecutableHandle) -> tuple[bytes, ...]:
    """Return an OpSharding for each output, or none if the program is not partitioned.

    The C function is `PJRT_Shardings_PJRT_Executable_OutputShardings`.

    Args:
        executable: compiled, loaded or not.
    """
    return _ask(executable, "PJRT_Shardings_PJRT_Executable_OutputShardings")


def _ask(executable: ExecutableHandle, name: str) -> tuple[bytes, ...]:
    with executable.view() as view:
        return tuple(executable.api.extension("Shardings").call(name, executable=view))
