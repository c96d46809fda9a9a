"""Programs of several partitions: Shardy's passes, and how hosts learn how arrays are split.

Runs in the interpreter's process. Hosts read the splitting from the HLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import hlo

#: These passes make the program of one partition, with the values that partitions exchange.
PASSES = (
    "sdy-propagation-pipeline",
    "func.func(sdy-insert-explicit-reshards{enable-full-version=true})",
    "func.func(sdy-reshard-to-collectives)",
    "sdy-convert-global-to-local",
)


def require_manual(module: ir.Module, main: ir.Operation) -> None:
    """Refuse a program that is not split by hand throughout: Shardy's passes split it wrongly.

    A reversal, a gather or an argmax along a split dimension would give each part's own result.
    """
    axes = {
        axis.name
        for mesh in _meshes(module).values()
        for axis in map(sdy.MeshAxisAttr, mesh.axes)
        if axis.size > 1
    }
    for each in main.regions[0].blocks[0].operations:
        if each.operation.name not in ("sdy.manual_computation", "func.return"):
            raise NotImplementedError(
                "several devices run programs that are split by hand, as jax.pmap and "
                f"jax.shard_map do; here {each.operation.name} is left to the compiler"
            )
        if "manual_axes" in each.attributes:
            manual = {str(axis) for axis in sdy.ManualAxesAttr(each.attributes["manual_axes"])}
            if rest := axes - {axis.strip('"') for axis in manual}:
                raise NotImplementedError(f"the axes {sorted(rest)} are left to the compiler")


def sharding_fields(module: ir.Module, main: ir.Operation) -> bytes:
    """Write the sharding fields that end an HloModuleProto; none if the program is not split."""
    meshes = _meshes(module)
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    parameters = _shardings(main, "arg_attrs", len(kind.inputs), meshes)
    outputs = _shardings(main, "res_attrs", len(kind.results), meshes)
    if not meshes or None in parameters or None in outputs:
        return b""
    whole = b"".join(wire.length_delimited(hlo.SHARDING_TUPLE, each or b"") for each in outputs)
    output = outputs[0] if len(outputs) == 1 else wire.varint(hlo.SHARDING_TYPE, hlo.TUPLE) + whole
    return wire.length_delimited(hlo.MODULE_OUTPUT_SHARDING, output or b"") + b"".join(
        wire.length_delimited(hlo.MODULE_PARAMETER_SHARDINGS, each or b"") for each in parameters
    )


def _meshes(module: ir.Module) -> dict[str, Any]:
    return {
        ir.StringAttr(each.attributes["sym_name"]).value: sdy.MeshAttr(each.attributes["mesh"])
        for each in module.body.operations
        if each.operation.name == "sdy.mesh"
    }


def _shardings(
    main: ir.Operation, which: str, count: int, meshes: dict[str, Any]
) -> list[bytes | None]:
    each: Sequence[Any] = list(main.attributes[which]) if which in main.attributes else [{}] * count
    return [
        _op_sharding(attributes["sdy.sharding"], meshes)
        if "sdy.sharding" in attributes
        else wire.varint(hlo.SHARDING_TYPE, hlo.REPLICATED)
        for attributes in each
    ]


def _op_sharding(attribute: ir.Attribute, meshes: dict[str, Any]) -> bytes | None:
    """Write an OpSharding: tiles by dimension, copies last; None if an axis is used in part."""
    import numpy

    sharding = sdy.TensorShardingAttr(attribute)
    reference = sharding.mesh_or_ref
    named = isinstance(reference, ir.FlatSymbolRefAttr)
    mesh = meshes[reference.value] if named else sdy.MeshAttr(reference)
    sizes = {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)}
    tiles, used = list[int](), list[str]()
    for dimension in map(sdy.DimensionShardingAttr, sharding.dimension_shardings):
        axes = [sdy.AxisRefAttr(axis) for axis in dimension.axes]
        if any(axis.sub_axis_info for axis in axes):
            return None
        used += [axis.name for axis in axes]
        tiles.append(int(numpy.prod([sizes[axis.name] for axis in axes], dtype=int)))
    if not used:
        return wire.varint(hlo.SHARDING_TYPE, hlo.REPLICATED)
    names = list(sizes)
    rest = [name for name in names if name not in used]
    copies = int(numpy.prod([sizes[name] for name in rest], dtype=int))
    ids = numpy.array(list(mesh.device_ids) or range(int(numpy.prod(list(sizes.values())))))
    order = ids.reshape(list(sizes.values())).transpose([names.index(n) for n in used + rest])
    last = wire.varint(hlo.SHARDING_COPIES_LAST, True) if copies > 1 else b""
    dimensions = [*tiles, copies] if copies > 1 else tiles
    return b"".join(
        [
            wire.varint(hlo.SHARDING_TYPE, hlo.TILED),
            wire.pack(hlo.SHARDING_TILES, dimensions),
            wire.pack(hlo.SHARDING_DEVICES, order.reshape(-1).tolist()),
            last,
        ]
    )
