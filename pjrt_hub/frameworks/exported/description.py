"""What an exported function says about itself, and whether a plugin can run it.

Owns the facts as plain data, for people and for JSON; must not run anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pjrt_hub.errors import IncompatiblePluginError
from pjrt_hub.frameworks.exported import obstacle, specialisation
from pjrt_hub.frameworks.exported.function import ExportedFunction, Weight

if TYPE_CHECKING:
    from pjrt_hub.frameworks.exported.aval import Aval
    from pjrt_hub.running.client.client import Client


class RunVerdict(NamedTuple):
    """Whether a client can run a function."""

    ok: bool  # Whether no obstacle is known.
    reasons: tuple[str, ...]  # Why the function cannot run.
    doubts: tuple[str, ...]  # What only the compiler can tell, and what jaxlib will have to do.


def describe(function: ExportedFunction) -> dict[str, Any]:
    """Return the documented JSON of `pjrt-hub inspect`, but for the verdict."""
    weights = [each for each in function.arguments if isinstance(each, Weight)]
    used = {each for each in function.arguments if isinstance(each, int)}
    inputs = zip(function.input_paths, function.inputs, strict=True)
    return {
        "origin": function.origin,
        "exporter": function.exporter,
        "function_name": function.function_name,
        "jax_version": function.jax_version or None,
        "calling_convention_version": function.calling_convention_version,
        "platforms": list(function.platforms),
        "nr_devices": function.nr_devices,
        "stablehlo_version": function.stablehlo_version or None,
        "dialects": list(function.uses.dialects) if function.uses else None,
        "custom_calls": list(function.custom_calls) if function.uses else None,
        "ordered_effects": list(function.ordered_effects),
        "unordered_effects": list(function.unordered_effects),
        "disabled_checks": list(function.disabled_checks),
        "in_tree": str(function.in_tree),
        "out_tree": str(function.out_tree),
        "inputs": [
            {"path": path, **_type(aval), "used": index in used}
            for index, (path, aval) in enumerate(inputs)
        ],
        "outputs": [
            {"path": path, **_type(aval)}
            for path, aval in zip(function.output_paths, function.outputs, strict=True)
        ],
        "weights": [{"name": each.name, **_type(each.aval)} for each in weights],
    }


def verdict(function: ExportedFunction, client: Client) -> RunVerdict:
    """Return whether a client can run a function, as far as that is known without compiling."""
    reasons = []
    try:
        obstacle.require_readable(function, client)
    except IncompatiblePluginError as exc:
        reasons.append(exc.message)
    platform = obstacle.platform_for(function, client)
    reasons += obstacle.find_obstacles(function, platform, len(client.devices))
    doubts = obstacle.doubts(function, client)
    needs = specialisation.needs(function, client.plugin.attributes)
    if needs and specialisation.has_jaxlib():
        doubts.insert(0, f"{'; '.join(needs)}: jaxlib, which is here, has to do that")
    elif needs:
        reasons.append(f"{'; '.join(needs)}: that takes jaxlib, which is not installed")
    return RunVerdict(not reasons, tuple(reasons), tuple(doubts))


def _type(aval: Aval) -> dict[str, Any]:
    return {"dtype": aval.dtype.name, "element_type": aval.element_type, "shape": list(aval.shape)}
