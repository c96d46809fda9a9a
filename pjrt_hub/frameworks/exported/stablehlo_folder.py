"""What `torch_xla.stablehlo` saves: a folder with a program, its description and weights.

The form is that of torch_xla 2.8 and 2.9: functions/NAME.meta and NAME.bytecode, and arrays in
data/ and constants/ as .npy without the suffix. Must not import torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pjrt_hub.errors import FileFormatError
from pjrt_hub.frameworks.exported import tree
from pjrt_hub.frameworks.exported.aval import Aval
from pjrt_hub.frameworks.exported.function import ExportedFunction, PortableProgram, Weight
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program.bytecode import MAGIC

_MAX_META_NBYTES = 100_000_000
_KINDS = {"builtins.tuple": tree.TUPLE, "builtins.list": tree.LIST, "builtins.dict": tree.DICT}


def is_folder(path: Path) -> bool:
    """Return whether a folder looks like one that torch_xla saved."""
    return (path / "functions").is_dir()


def read(path: Path, name: str | None = None) -> ExportedFunction:
    """Read the description and the program; weights are left where they are.

    `name` chooses one of the functions; by default it is the only one, or "forward".
    """
    try:
        return _function(path, _choose_function(path, name))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as exc:
        if isinstance(exc, FileFormatError):
            raise
        raise _format_error(path, f"{type(exc).__name__}: {exc}") from None
    except OSError as exc:
        raise _format_error(path, f"{exc.filename}: {exc.strerror}") from None


def _format_error(path: Path, why: str) -> FileFormatError:
    return FileFormatError(
        f"{path} is not a StableHLO folder of torch_xla: {why}",
        path=path,
        hint="write it with torch_xla.stablehlo.exported_program_to_stablehlo(program).save(path)",
    )


def _choose_function(path: Path, name: str | None) -> str:
    names = sorted(each.stem for each in (path / "functions").glob("*.meta"))
    if name is None:
        name = names[0] if len(names) == 1 else "forward"
    if not names:
        raise ValueError("it holds no functions")
    if name not in names:
        raise ValueError(f"of the functions {names} none is named {name!r}")
    return name


def _function(path: Path, name: str) -> ExportedFunction:
    meta_path = path / "functions" / f"{name}.meta"
    if meta_path.stat().st_size > _MAX_META_NBYTES:
        raise ValueError(f"{meta_path} is larger than {_MAX_META_NBYTES} bytes")
    meta = json.loads(meta_path.read_bytes())
    code = (path / "functions" / f"{name}.bytecode").read_bytes()
    if not code.startswith(MAGIC):
        raise ValueError(f"functions/{name}.bytecode is not bytecode of MLIR")
    in_tree, out_tree = (read_tree(meta[f"{each}_pytree_spec"]) for each in ("input", "output"))
    if not in_tree.is_arguments:
        raise ValueError(f"its arguments have the form {in_tree}, not (positional, by name)")
    known: dict[int, Aval] = {}
    arguments: list[int | Weight] = []
    for location, signature in zip(meta["input_locations"], meta["input_signature"], strict=True):
        aval = _aval(signature, f"s{len(arguments)}")
        position = _position(location)
        match location["type_"]:
            case "input_arg":
                known[position] = aval
                arguments.append(position)
            case "parameter":
                arguments.append(_weight(path / "data", location["name"], aval))
            case "constant":
                arguments.append(_weight(path / "constants", str(position), aval))
            case other:
                raise ValueError(f"an argument comes from {other!r}")
    for location, signature in meta["unused_inputs"]:
        known[_position(location)] = _aval(signature, "unused")
    if sorted(known) != list(range(in_tree.count)):
        raise ValueError(f"it takes {in_tree.count} values, and describes {sorted(known)}")
    outputs = tuple(_aval(each, "result") for each in meta["output_signature"])
    if out_tree.count != len(outputs):
        raise ValueError(f"it gives {out_tree.count} values, and describes {len(outputs)}")
    return ExportedFunction(
        origin=str(path),
        exporter="torch_xla.stablehlo",
        function_name=name,
        program=PortableProgram(code, "mlir", str(path)),
        in_tree=in_tree,
        inputs=tuple(known[index] for index in range(in_tree.count)),
        out_tree=out_tree,
        outputs=outputs,
        arguments=tuple(arguments),
        uses_global_constants=any(not each.is_static for each in known.values()),
    )


def _position(location: dict[str, Any]) -> int:
    position = location["position"]
    if not isinstance(position, int) or isinstance(position, bool):
        raise ValueError(f"{position!r} is not a position")
    return position


def _aval(signature: dict[str, Any], symbol: str) -> Aval:
    dynamic = signature["dynamic_dims"]
    shape = signature["shape"]
    if not all(isinstance(size, int) and size >= -1 for size in shape):
        raise ValueError(f"{shape!r} is not a shape")
    return Aval(
        dtypes.of_numpy(str(signature["dtype"])).name,
        tuple(
            f"{symbol}_{number}" if number in dynamic or size < 0 else size
            for number, size in enumerate(shape)
        ),
    )


def _weight(folder: Path, name: str, aval: Aval) -> Weight:
    if not name or Path(name).name != name or name in (".", ".."):
        raise ValueError(f"{name!r} is not a name of a file in {folder.name}/")
    return Weight(folder / name, name, aval)


def read_tree(text: str) -> tree.Tree:
    """Read PyTorch's pytrees as JSON: a version, then nodes with a type, a context and children."""
    version, root = json.loads(text)
    if version != 1:
        raise ValueError(f"its pytrees are of the form {version}, not 1")
    return _node(root)


def _node(node: dict[str, Any]) -> tree.Tree:
    children = tuple(map(_node, node["children_spec"]))
    name = node["type"]
    if name is None:
        if children:
            raise ValueError("a leaf has children")
        return tree.Tree(tree.LEAF)
    kind = _KINDS.get(str(name), tree.CUSTOM)
    data = node["context"]
    if kind != tree.DICT:
        is_ordered = name == "collections.OrderedDict"
        return tree.Tree(
            kind,
            children,
            name=str(name) if kind == tree.CUSTOM else "",
            data=str(data).encode() if is_ordered else b"",
        )
    keys = json.loads(data)
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(children):
        raise ValueError(f"a dict has {len(children)} values and the keys {keys}")
    return tree.Tree(kind, children, tuple(keys))
