"""TPU executables: what libtpu reads out of compiled code (extension TpuExecutable).

The answers are libtpu's own protos, as bytes; the code is given as an `Executable` of this process.
Other plugins, and an older libtpu, raise UnsupportedByPluginError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pjrt_hub.running.capi import irregular
from pjrt_hub.running.capi.handle import ExecutableHandle
from pjrt_hub.running.capi.library import Api


def target_arguments(executable: ExecutableHandle) -> bytes:
    """Return the proto of a program's target chip (`PJRT_TpuExecutable_GetTargetArguments`).

    Args:
        executable: of libtpu, loaded or not.
    """
    return _read(executable, "PJRT_TpuExecutable_GetTargetArguments")


def hlo_module_with_config(executable: ExecutableHandle) -> bytes:
    """Return the HloModuleProtoWithConfig (`PJRT_TpuExecutable_GetHloModuleWithConfig`).

    Args:
        executable: of libtpu, loaded or not.
    """
    return _read(executable, "PJRT_TpuExecutable_GetHloModuleWithConfig")


def compiled_memory_stats(executable: ExecutableHandle) -> bytes:
    """Return a program's memory use, buffer by buffer: a CompiledMemoryStatsProto.

    The C function is `PJRT_TpuExecutable_GetCompiledMemoryStats`; the sums are
    `executable.memory_stats`.

    Args:
        executable: of libtpu, loaded or not.
    """
    return _read(executable, "PJRT_TpuExecutable_GetCompiledMemoryStats")


def run_hlo_cost_analysis(
    executable: ExecutableHandle, hlo_modules: Sequence[bytes] | None = None
) -> Mapping[str, Any]:
    """Estimate flops, bytes and seconds on a chip (`PJRT_TpuExecutable_RunHloCostAnalysis`).

    Args:
        executable: the estimate is for its chip.
        hlo_modules: from `hlo_module_with_config`; by default that of this executable.

    Raises:
        ValueError: there is no module.
        UnimplementedError: there are several modules, and this libtpu takes one.
        InvalidArgumentError: a module is damaged.
    """
    modules = [hlo_module_with_config(executable)] if hlo_modules is None else list(hlo_modules)
    if not modules:
        raise ValueError("there is no module to analyse")
    return executable.api.extension("TpuExecutable").call(
        "PJRT_TpuExecutable_RunHloCostAnalysis",
        target_arguments=target_arguments(executable),
        hlo_module=[bytes(module) for module in modules],
    )


def compilation_environments(api: Api, given: bytes = b"") -> bytes:
    """Fill in libtpu's defaults (`PJRT_TpuExecutable_SetTpuCompilationEnv`).

    Args:
        api: libtpu's function table.
        given: a CompilationEnvironmentsProto; the result is one, too.

    Raises:
        PjrtError: the bytes are damaged.
    """
    return api.extension("TpuExecutable").call(
        "PJRT_TpuExecutable_SetTpuCompilationEnv", serialized_compilation_environments=bytes(given)
    )


def compilation_environment_field(api: Api, environments: bytes, name: str) -> str:
    """Return one of libtpu's flags, "xla_tpu_..." (`...GetTpuCompilationEnvFieldAsString`).

    Args:
        api: libtpu's function table.
        environments: from `compilation_environments`.
        name: of the flag.

    Raises:
        InvalidArgumentError: there is no such flag.
    """
    value = api.extension("TpuExecutable").call(
        "PJRT_TpuExecutable_GetTpuCompilationEnvFieldAsString",
        serialized_compilation_environments=bytes(environments),
        field_name=name,
    )
    return value.decode()


def is_predetermined_error(api: Api, status: bytes) -> bool:
    """Check whether an error would always recur (`PJRT_TpuExecutable_IsTpuPredeterminedError`).

    Args:
        api: libtpu's function table.
        status: a StatusProto, serialized.

    Raises:
        InvalidArgumentError: the bytes are damaged.
    """
    call = api.extension("TpuExecutable").call
    return bool(call("PJRT_TpuExecutable_IsTpuPredeterminedError", serialized_status=bytes(status)))


def _read(executable: ExecutableHandle, name: str) -> bytes:
    node = executable.api.extension("TpuExecutable")
    node.require(name)  # Serializing takes long, so this check comes first.
    with executable.view() as view:
        code = irregular.serialize_executable(executable.api, view)
        return bytes(node.call(name, serialized_executable=code))
