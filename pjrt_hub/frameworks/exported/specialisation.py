"""Programs that jaxlib, if it is installed, makes fit a plugin.

Owns what jaxlib is needed for, the errors if it is missing, and remembering results;
`jaxlib_process` does the work in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pjrt_hub.base import safe_path
from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks.exported import jaxlib_process, obstacle
from pjrt_hub.frameworks.exported.function import ExportedFunction, PortableProgram, TemplateProgram
from pjrt_hub.frameworks.exported.jaxlib_process import OK, REFUSED, UNREAD
from pjrt_hub.running.compilation import compile_cache
from pjrt_hub.running.sandbox import last_words

if TYPE_CHECKING:
    from pjrt_hub.running.client.topology import Topology
    from pjrt_hub.running.compilation.policy import CompileCache
    from pjrt_hub.running.program.program import Program

_SECONDS = 300
#: This is part of the key in the cache; it changes when the result would change.
_FORM = b"specialised 1"


def needs(function: ExportedFunction, attributes: Mapping[str, Any]) -> list[str]:
    """Return why a program must be changed before a plugin can compile it; usually empty."""
    reasons = []
    if function.is_symbolic and not isinstance(function.program, TemplateProgram):
        names = sorted({n for a in function.inputs for n in a.names})
        reasons.append(f"the symbolic dimensions {', '.join(names)} must become numbers")
    if newer := obstacle.newer_operations(function, attributes):
        reasons.append(
            f"{', '.join(newer)} must be written for StableHLO "
            f"{obstacle.version_text(obstacle.newest_stablehlo(attributes))}"
        )
    return reasons


def program(
    function: ExportedFunction,
    attributes: Mapping[str, Any],
    sizes: Mapping[str, int],
    reasons: list[str],
    cache: CompileCache | None = None,
) -> Program:
    """Make the program for sizes, of a function for one platform.

    The plugin's `attributes` say what StableHLO it reads; `reasons` are what `needs` returned;
    `cache` remembers results, so that jaxlib is needed once. If jaxlib is not installed, or cannot
    do it, it raises NotRunnableError.
    """
    request = _request(function, attributes, sizes)
    key = _key(function, request)
    code = compile_cache.read(cache, key) if cache is not None else None
    if code is None:
        code = _run_jaxlib(function, request, reasons)
        if cache is not None:
            compile_cache.write(cache, key, code)
    return PortableProgram(code, "mlir", function.origin)


def for_topology(
    function: ExportedFunction, topology: Topology, sizes: Mapping[str, int]
) -> Program:
    """Make the program that `Topology.compile` takes; its arguments are the leaves in order.

    NotRunnableError means that it cannot run there, or that jaxlib is needed and not installed;
    ValueError means that a size is missing.
    """
    platform, attributes = topology.platform_name, topology.api.attributes
    obstacle.refuse_platform(function, platform, len(topology.device_descriptions))
    function = function.for_platform(obstacle.platform_index(function, platform) or 0)
    reasons = needs(function, attributes)
    if reasons:
        return program(function, attributes, sizes, reasons)
    return function.program_at(sizes)


def has_jaxlib() -> bool:
    """Return whether jaxlib is installed; do not import it."""
    from importlib.util import find_spec

    return find_spec("jaxlib") is not None


def _request(
    function: ExportedFunction, attributes: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, object]:
    types = {}
    for number, index in enumerate(function.arguments):
        if isinstance(index, int) and not function.inputs[index].is_static:
            types[str(number)] = function.inputs[index].at(sizes).mlir
    return {
        "types": types,
        "refine": function.uses_global_constants,
        "single_device": function.nr_devices == 1,
        "version": obstacle.version_text(obstacle.newest_stablehlo(attributes) or (1, 0, 0)),
    }


def _key(function: ExportedFunction, request: dict[str, object]) -> str:
    import hashlib

    digest = hashlib.sha256(_FORM + json.dumps(request, sort_keys=True).encode() + b"\0")
    digest.update(function.program.code)
    return digest.hexdigest()


def _run_jaxlib(
    function: ExportedFunction, request: dict[str, object], reasons: list[str]
) -> bytes:
    import subprocess

    why = f"{function.origin} cannot be compiled as it is: {'; '.join(reasons)}"
    version = function.jax_version
    if not has_jaxlib():
        raise NotRunnableError(
            f"{why}. That is MLIR's work, which jaxlib does and which is not installed",
            reasons=reasons,
            hint=f"install jaxlib (jax itself is not needed){version and f', best {version}'}; or "
            "export it again with numbers for dimensions, by a JAX as old as the plugin",
        )
    script = jaxlib_process.__file__
    ours = ("-m", jaxlib_process.__name__) if safe_path.is_frozen() else (script,)
    line = json.dumps(request).encode() + b"\n"
    try:
        done = subprocess.run(
            safe_path.python(*ours),
            input=line + function.program.code,
            capture_output=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        raise NotRunnableError(f"{why}. The process for that failed: {exc}") from exc
    if done.stdout.startswith(OK):
        return done.stdout.removeprefix(OK)
    said = done.stdout.removeprefix(REFUSED).removeprefix(UNREAD).decode("utf-8", "replace").strip()
    said = said or last_words.condense(done.stderr)
    ended = "" if done.stdout else f" (its process ended with status {done.returncode})"
    reader = (
        version and f"; {version} wrote it and reads it" if done.stdout.startswith(UNREAD) else ""
    )
    raise NotRunnableError(
        f"{why}. jaxlib could not do that{ended}: {said}",
        reasons=reasons,
        hint=f"a newer jaxlib may{reader}; or export it again, for what it is to run on",
    )
