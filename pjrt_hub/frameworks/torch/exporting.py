"""From a module of torch to a file that runs without torch: `pjrt_hub.torch.export`."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.export.passes import move_to_device_pass
from torch.utils import _pytree as pytree

from pjrt_hub.errors import NotRunnableError
from pjrt_hub.frameworks import safetensors
from pjrt_hub.frameworks.exported import obstacle, torch_file, tree
from pjrt_hub.frameworks.exported.aval import Aval
from pjrt_hub.frameworks.exported.function import ExportedFunction, PortableProgram, Weight
from pjrt_hub.frameworks.exported.stablehlo_folder import read_tree
from pjrt_hub.frameworks.torch import framework, registration, template
from pjrt_hub.running.array import dtypes

#: Symbols of torch.export -> their names in the file.
_Names = Mapping[str, str]

#: The stamp of a portable program, which stands in its first bytes.
_STAMP = re.compile(rb"StableHLO_v[\d.]+\0")
_HEAD_NBYTES = 100
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
#: What a module does beside giving results -> how a message says it.
_EFFECTS = {
    OutputKind.BUFFER_MUTATION: "changes its buffer",
    OutputKind.PARAMETER_MUTATION: "changes its parameter",
    OutputKind.USER_INPUT_MUTATION: "changes its argument",
}


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    path: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Path:
    """See `pjrt_hub.torch.export`."""
    target = Path(path)
    if target.suffix == ".safetensors":
        raise ValueError(f"{target} is the name for the weights; call the file {target.stem}.pjrt")
    if not framework.has_device():
        registration.register(None)
    args, given = _apart(args, dict(kwargs or {}))
    exported = torch.export.export(module, args, given, dynamic_shapes=dynamic_shapes)
    _refuse_effects(exported)
    names = _names(exported, module, args, given, dynamic_shapes)
    weights = target.with_suffix(".safetensors")
    function = _describe(exported, type(module).__name__, names, weights)
    if values := _state(exported):
        safetensors.save_file(values, weights)
    # Tensors that the module makes would else be on the host.
    moved = move_to_device_pass(exported, framework.DEVICE)
    torch_file.write(_translate(moved, function, names), target)
    return target


def _apart(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with a copy in place of a tensor that was there before.

    torch.export takes two arguments that are the same tensor for one, whose value is the last.
    """
    seen = set[int]()

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.clone()

    apart: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(copy, (args, kwargs))
    return apart


def _refuse_effects(exported: ExportedProgram) -> None:
    for spec in exported.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            what = _EFFECTS.get(spec.kind, f"has the effect {spec.kind.name}")
            raise NotRunnableError(
                f"the module cannot be exported: it {what} {spec.target or ''}".rstrip(),
                hint="call module.eval() first, or return what changes as a result",
            )


def _describe(
    exported: ExportedProgram, name: str, names: _Names, weights: Path
) -> ExportedFunction:
    """Return what the module takes and gives, without its program."""
    state = _state(exported)
    inputs: list[Aval] = []
    leaves = []
    arguments: list[int | Weight] = []
    for node, spec in _placeholders(exported):
        if spec.kind in _STATE:
            array = state[spec.target]
            aval = Aval(dtypes.of_numpy(array.dtype).name, array.shape)
            arguments.append(Weight(weights, spec.target, aval))
        elif spec.kind is not InputKind.USER_INPUT:
            raise NotRunnableError(f"the module cannot be exported: it takes a {spec.kind.name}")
        else:
            leaves.append(spec.arg)
            if not isinstance(spec.arg, ConstantArgument):
                arguments.append(len(inputs))
                inputs.append(_aval(node.meta["val"], names))
    results = [spec.arg for spec in exported.graph_signature.output_specs]
    nodes = {node.name: node for node in exported.graph.nodes}
    return ExportedFunction(
        origin=name,
        exporter="torch.export",
        function_name=name,
        program=PortableProgram(b"", "mlir"),
        in_tree=_tree(exported.call_spec.in_spec, leaves),
        inputs=tuple(inputs),
        out_tree=_tree(exported.call_spec.out_spec, results),
        outputs=tuple(
            _aval(nodes[each.name].meta["val"], names)
            for each in results
            if not isinstance(each, ConstantArgument)
        ),
        arguments=tuple(arguments),
        ranges={
            names.get(str(symbol).lower(), str(symbol).lower()): (int(each.lower), _bound(each))
            for symbol, each in exported.range_constraints.items()
        },
    )


def _translate(
    exported: ExportedProgram, function: ExportedFunction, names: _Names
) -> ExportedFunction:
    """Return the function with its program, which has no locations of files in it."""
    graph = exported.graph_module
    _free_layouts(graph)
    if not function.is_symbolic:
        code: bytes = _lower(exported, function, {}).serialize_portable_artifact()
        return replace(function, program=_stamp(PortableProgram(code, "mlir")))
    points = template.points(function.ranges)
    texts = [_lower(exported, function, each).serialize_text() for each in points]
    sizes = (
        size
        for node in graph.graph.nodes
        for each in pytree.tree_leaves(node.meta.get("val"))
        for size in (each.shape if isinstance(each, torch.Tensor) else [each])
        if isinstance(size, torch.SymInt)
    )
    known = dict.fromkeys(str(_size(each, names)) for each in sizes)
    return replace(function, program=template.generalise(texts, points, known))


def _lower(exported: ExportedProgram, function: ExportedFunction, sizes: Mapping[str, int]) -> Any:
    shapes = iter(function.arguments)
    arguments: list[Any] = []
    for node, spec in _placeholders(exported):
        if isinstance(spec.arg, ConstantArgument):
            arguments.append(spec.arg.value)
            continue
        each = next(shapes)
        aval = function.inputs[each] if isinstance(each, int) else each.aval
        arguments.append((aval.at(sizes).sizes, node.meta["val"].dtype))
    lowered = framework.lower(exported.graph_module, arguments)
    if lowered.updates_default_generator_state:
        raise NotRunnableError(
            "the module cannot be exported: it draws random numbers",
            hint="call module.eval() first, or pass the random numbers as an argument",
        )
    return lowered


def _free_layouts(graph: torch.fx.GraphModule) -> None:
    """Let the graph hold for tensors that lie in memory otherwise than on the host.

    Each result becomes a tensor of its own: TorchTPU gives equal ones, and views, only once.
    """
    [output] = graph.graph.find_nodes(op="output")
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default

    def copied(node: torch.fx.Node) -> torch.fx.Node:
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return node
        with graph.graph.inserting_before(output):
            form = {"memory_format": torch.contiguous_format}
            return graph.graph.call_function(torch.ops.aten.clone.default, (node,), form)

    output.args = torch.fx.node.map_arg(output.args, copied)
    graph.recompile()


def _stamp(program: PortableProgram) -> PortableProgram:
    """Stamp a program with the oldest StableHLO that has its operations.

    Plugins refuse a newer stamp than their own. The stamp keeps its length, since what follows is
    aligned: zeros before the last number fill it.
    """
    major, minor, patch = obstacle.oldest_stablehlo(program)

    def put(found: re.Match[bytes]) -> bytes:
        start = f"StableHLO_v{major}.{minor}."
        return f"{start}{patch:0{len(found[0]) - len(start) - 1}}\0".encode()

    head = _STAMP.sub(put, program.code[:_HEAD_NBYTES], count=1)
    return PortableProgram(head + program.code[_HEAD_NBYTES:], "mlir")


def _placeholders(exported: ExportedProgram) -> Iterator[tuple[torch.fx.Node, Any]]:
    nodes = exported.graph.find_nodes(op="placeholder")
    return zip(nodes, exported.graph_signature.input_specs, strict=True)


def _state(exported: ExportedProgram) -> dict[str, np.ndarray[Any, Any]]:
    """Return the parameters, buffers and constants that the graph takes, as arrays by name."""
    everything = {**exported.state_dict, **exported.constants}
    specs = exported.graph_signature.input_specs
    return {spec.target: _array(everything[spec.target]) for spec in specs if spec.kind in _STATE}


def _array(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's values; NumPy has no bfloat16 of torch's, so the bytes are passed."""
    dtype = dtypes.numpy_dtype(_element(value.dtype).code)
    plain = value.detach().cpu().contiguous()
    if value.dtype.is_floating_point and value.dtype.itemsize <= 2:
        plain = plain.view(torch.uint8 if value.dtype.itemsize == 1 else torch.int16)
    array: np.ndarray[Any, Any] = plain.numpy().view(dtype)
    return array


def _element(dtype: torch.dtype) -> dtypes.ElementType:
    return dtypes.of_numpy(str(dtype).removeprefix("torch."))


def _aval(value: torch.Tensor, names: _Names) -> Aval:
    return Aval(_element(value.dtype).name, tuple(_size(each, names) for each in value.shape))


def _size(size: int | torch.SymInt, names: _Names) -> int | str:
    """Return a size as the file writes it: a number, or an expression such as "2*b + 1"."""
    if not isinstance(size, torch.SymInt):
        return size
    return re.sub(r"[a-z_]\w*", lambda found: names.get(found[0], found[0]), str(size).lower())


def _bound(found: Any) -> int | None:
    return int(found.upper) if found.upper < 2**62 else None


def _tree(spec: pytree.TreeSpec, leaves: list[Any]) -> tree.Tree:
    """Return a form of torch's; constants stand at their places."""
    left = iter(leaves)

    def settle(form: tree.Tree) -> tree.Tree:
        if form.kind != tree.LEAF:
            return replace(form, children=tuple(map(settle, form.children)))
        leaf = next(left)
        if not isinstance(leaf, ConstantArgument):
            return form
        return tree.Tree(tree.CONSTANT, data=json.dumps(leaf.value).encode())

    return settle(read_tree(pytree.treespec_dumps(spec)))


def _names(
    exported: ExportedProgram,
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> _Names:
    """Return the symbols that the user's `Dim`s name, each with the name."""
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    user = [n for n, spec in _placeholders(exported) if spec.kind is InputKind.USER_INPUT]
    leaves = pytree.tree_leaves((args, dict(kwargs)))
    traced = {id(leaf): node.meta.get("val") for leaf, node in zip(leaves, user, strict=True)}
    names = {}
    for tensor, number, dim in _dimensions(given, dynamic_shapes):
        symbol = str(traced[id(tensor)].shape[number])
        if symbol.isidentifier() and hasattr(dim, "__name__"):
            names[symbol.lower()] = dim.__name__
    return names


def _dimensions(value: Any, spec: Any) -> Iterator[tuple[torch.Tensor, int, Any]]:
    """Yield the dimensions that `dynamic_shapes` speaks of, which is nested as the arguments."""
    if spec is None:
        return
    if not isinstance(spec, Mapping):
        keys = value if isinstance(value, Mapping) else range(len(spec))
        spec = dict(zip(keys, spec, strict=False))
    for key, each in spec.items():
        if isinstance(value, torch.Tensor):
            yield value, key, each
        else:
            yield from _dimensions(value[key], each)
