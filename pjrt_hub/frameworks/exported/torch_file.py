"""What `pjrt_hub.torch.export` writes: a safetensors file with a program and its description.

The program is the tensor "program". The description is JSON in the metadata. Weights lie in a
safetensors file beside it, by the names of torch's `state_dict`. Must not import torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks import safetensors
from pjrt_hub.frameworks.exported import tree
from pjrt_hub.frameworks.exported.aval import Aval, names
from pjrt_hub.frameworks.exported.function import (
    ExportedFunction,
    PortableProgram,
    TemplateProgram,
    Weight,
)
from pjrt_hub.running.array import dtypes

#: The key of the description in the metadata, and the version of its form.
KEY, VERSION = "pjrt_hub.export", 1
#: How much of a file tells its form.
HEAD_NBYTES = 9


def is_file(head: bytes) -> bool:
    """Return whether a file begins like one of safetensors: a size, then a JSON object."""
    return head[8:9] == b"{"


def read(path: Path) -> ExportedFunction:
    """Read a file's program and description; weights are left where they are."""
    try:
        metadata = safetensors.read_metadata(path)
        description = json.loads(metadata.get(KEY, "null"))
        if description is None:
            raise ValueError("it holds tensors, and no exported function")
        if description["version"] != VERSION:
            raise ValueError(f"its form is {description['version']}, pjrt-hub knows {VERSION}")
        return _function(path, description)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as exc:
        if isinstance(exc, FileFormatError):
            raise
        raise FileFormatError(
            f"{path} is not what pjrt_hub.torch.export writes: {exc}",
            path=path,
            hint="write it again: pjrt_hub.torch.export(module, args, path)",
        ) from None


def write(function: ExportedFunction, path: Path) -> None:
    """Write a function's program and description; its weights lie beside it already."""
    import numpy as np

    held = [each for each in function.arguments if isinstance(each, Weight)]
    description = {
        "version": VERSION,
        "exporter": function.exporter,
        "function_name": function.function_name,
        "in_tree": _as_json(function.in_tree),
        "inputs": [[each.element_type, each.shape] for each in function.inputs],
        "out_tree": _as_json(function.out_tree),
        "outputs": [[each.element_type, each.shape] for each in function.outputs],
        "is_template": isinstance(function.program, TemplateProgram),
        "ranges": function.ranges,
        "weights": held[0].path.name if held else "",
        "arguments": [
            [each.name, each.aval.element_type, each.aval.shape]
            if isinstance(each, Weight)
            else each
            for each in function.arguments
        ],
    }
    code = np.frombuffer(function.program.code, np.uint8)
    safetensors.save_file({"program": code}, path, metadata={KEY: json.dumps(description)})


def _function(path: Path, description: Mapping[str, Any]) -> ExportedFunction:
    in_tree, out_tree = _tree(description["in_tree"]), _tree(description["out_tree"])
    if not in_tree.is_arguments:
        raise ValueError(f"its arguments have the form {in_tree}, not (positional, by name)")
    inputs = tuple(_aval(*each) for each in description["inputs"])
    outputs = tuple(_aval(*each) for each in description["outputs"])
    for which, form, avals in (("takes", in_tree, inputs), ("gives", out_tree, outputs)):
        if form.count != len(avals):
            raise ValueError(f"what it {which} has {form.count} leaves and {len(avals)} types")
    name = str(description["weights"])
    if Path(name).name != name:
        raise ValueError(f"{name!r} is not the name of a file beside it")
    code = safetensors.open_file(path)["program"].tobytes()
    kind = TemplateProgram if description["is_template"] else PortableProgram
    return ExportedFunction(
        origin=str(path),
        exporter=str(description["exporter"]),
        function_name=str(description["function_name"]),
        program=kind(code, "mlir", str(path)),
        in_tree=in_tree,
        inputs=inputs,
        out_tree=out_tree,
        outputs=outputs,
        ranges={str(each): _range(*bounds) for each, bounds in description["ranges"].items()},
        arguments=tuple(
            _argument(each, path.parent / name, len(inputs)) for each in description["arguments"]
        ),
    )


def _argument(written: Any, weights: Path, count: int) -> int | Weight:
    if isinstance(written, int) and not isinstance(written, bool) and 0 <= written < count:
        return written
    name, element_type, shape = written
    return Weight(weights, str(name), _aval(element_type, shape))


def _range(least: int, most: int | None) -> tuple[int, int | None]:
    if type(least) is not int or type(most) not in (int, type(None)):
        raise ValueError(f"{least!r} to {most!r} is no range of sizes")
    return least, most


def _aval(element_type: str, shape: Sequence[int | str]) -> Aval:
    for size in shape:
        if isinstance(size, str):
            names(size)  # This refuses a text that is no expression, before the function is called.
        elif type(size) is not int or size < 0:
            raise ValueError(f"{size!r} is not a dimension")
    return Aval(dtypes.of_type(element_type).name, tuple(shape))


def _as_json(form: tree.Tree) -> dict[str, Any]:
    written: dict[str, Any] = {"kind": form.kind}
    if form.children:
        written["children"] = [_as_json(each) for each in form.children]
    if form.keys:
        written["keys"] = form.keys
    if form.name:
        written["name"] = form.name
    if form.data:
        written["data"] = form.data.decode()
    return written


def _tree(written: Mapping[str, Any]) -> tree.Tree:
    kind = written["kind"]
    if kind not in tree.KINDS:
        raise ValueError(f"a container has the unknown kind {kind!r}")
    children = tuple(map(_tree, written.get("children", ())))
    keys = tuple(map(str, written.get("keys", ())))
    if kind in (tree.LEAF, tree.CONSTANT) and children:
        raise ValueError("a leaf has children")
    if kind == tree.DICT and len(set(keys)) != len(children):
        raise ValueError(f"a dict has {len(children)} values and the keys {list(keys)}")
    data = str(written.get("data", "")).encode()
    return tree.Tree(kind, children, keys, str(written.get("name", "")), data)
