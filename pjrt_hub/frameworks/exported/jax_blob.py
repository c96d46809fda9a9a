"""What `jax.export` serializes: a flatbuffer of the type `Exported`.

The field numbers are those of JAX's serialization.fbs, the meanings those of its serialization.py;
both as of JAX 0.12, with the fields of older releases. Must not import JAX.
"""

from __future__ import annotations

from mmap import mmap

from pjrt_hub.errors import FileFormatError, NotRunnableError
from pjrt_hub.frameworks.exported import tree
from pjrt_hub.frameworks.exported.aval import Aval, names
from pjrt_hub.frameworks.exported.contents import Contents
from pjrt_hub.frameworks.exported.flatbuffer import FlatTable
from pjrt_hub.frameworks.exported.function import Constant, ExportedFunction, PortableProgram
from pjrt_hub.running.array import dtypes
from pjrt_hub.running.program import bytecode_constants
from pjrt_hub.running.program.bytecode import MAGIC
from pjrt_hub.running.program.program import Program

#: JAX wrote the first version until July 2026, although the schema grew. Since then, JAX writes the
#: second one.
_OLDEST_VERSION, _NEWEST_VERSION = 2, 12
#: In these calling conventions, a program takes the platform's number, tokens, and those arguments
#: that are kept.
CALLING_CONVENTIONS = (9, 10)

_KINDS = (tree.LEAF, tree.NONE, tree.TUPLE, tree.LIST, tree.DICT, tree.CUSTOM)
_DTYPES = (
    *("i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64"),
    *("complex<f32>", "complex<f64>", "bf16", "i4", "ui4", "f8E4M3B11FNUZ", "f8E4M3FN"),
    *("f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f0", "f8E4M3", "f8E3M4", "f8E8M0FNU", "f4E2M1FN"),
    *("key<fry>", "key<rbg>", "key<unsafe_rbg>"),
)
_LONGEST_DIMENSION = 1000
#: The number of the field that holds the program.
_PROGRAM = 13


def read(contents: Contents, origin: str, *, hoists: bool = True) -> ExportedFunction:
    """Read what `jax.export` serialized.

    With `hoists`, a program's large constants become arguments. A damaged or another file raises
    FileFormatError; a calling convention that pjrt-hub does not know, NotRunnableError.
    """
    version, data = _NEWEST_VERSION, contents.data()
    try:
        root = FlatTable.root(data)
        version = root.number(0, "H")
        if version < _OLDEST_VERSION:
            raise ValueError(f"its serialization version is {version}, below {_OLDEST_VERSION}")
        function = _function(root, origin, contents if hoists else None)
    except (ValueError, RecursionError) as exc:
        if isinstance(exc, FileFormatError):
            raise
        newer = f" (version {version} of it, newer than {_NEWEST_VERSION})"
        raise FileFormatError(
            f"{origin} is not what jax.export serializes"
            f"{newer if version > _NEWEST_VERSION else ''}: {exc}",
            path=origin,
            hint=_hint(data),
        ) from None
    if version > _NEWEST_VERSION:
        import logging

        text = f"{origin} has the serialization version {version}; pjrt-hub knows {_NEWEST_VERSION}"
        logging.getLogger("pjrt_hub.exported").warning(text)
    return function


def _hint(data: bytes | mmap) -> str:
    try:
        Program.of(bytes(data))
    except FileFormatError:
        return "write it with jax.export.export(jax.jit(f))(...).serialize()"
    return "it is a program by itself, which client.compile(program) and `pjrt-hub run` take"


def _function(root: FlatTable, origin: str, hoisted_from: Contents | None) -> ExportedFunction:
    code = root.view(_PROGRAM)
    if code[: len(MAGIC)] != MAGIC:
        raise ValueError("it holds no program in MLIR's bytecode")
    convention = root.number(14, "H")
    if convention not in CALLING_CONVENTIONS:
        raise NotRunnableError(
            f"{origin} has the calling convention {convention} of jax.export; pjrt-hub knows "
            f"{CALLING_CONVENTIONS[0]} to {CALLING_CONVENTIONS[-1]}",
            hint="export it again with JAX 0.4.31 or newer"
            if convention < CALLING_CONVENTIONS[0]
            else "install a newer pjrt-hub, or export it with jax.config."
            f"update('jax_export_calling_convention_version', {CALLING_CONVENTIONS[-1]})",
        )
    in_tree, out_tree = _require_tree(root, 2), _require_tree(root, 4)
    if not in_tree.is_arguments:
        raise ValueError(f"its arguments have the form {in_tree}, not (positional, by name)")
    unique = [_aval(each) for each in root.tables(19)]
    inputs, outputs = _avals(root, unique, 22, 3), _avals(root, unique, 23, 5)
    for which, form, avals in (("takes", in_tree, inputs), ("gives", out_tree, outputs)):
        if form.count != len(avals):
            raise ValueError(f"what it {which} has {form.count} leaves and {len(avals)} types")
    kept = root.numbers(15, "H")
    if any(index >= len(inputs) for index in kept) or list(kept) != sorted(set(kept)):
        raise ValueError(f"of {len(inputs)} inputs it cannot keep {list(kept)}")
    platforms = root.texts(9)
    if not platforms or not all(platforms):
        raise ValueError("it names no platform")
    nr_devices = root.number(18, "I") or root.number(6, "h") or 1
    constants: tuple[Constant, ...] = ()
    found = bytecode_constants.hoist(code) if hoisted_from and nr_devices == 1 else None
    if hoisted_from and found:
        first = root.place(_PROGRAM)
        constants = tuple(
            Constant(
                hoisted_from,
                first + each.start,
                Aval(dtypes.of_type(each.element).name, each.shape),
            )
            for each in found[1]
        )
    return ExportedFunction(
        origin=origin,
        exporter="jax.export",
        function_name=root.text(1),
        program=PortableProgram(found[0] if found else bytes(code), "mlir", origin),
        in_tree=in_tree,
        inputs=inputs,
        out_tree=out_tree,
        outputs=outputs,
        arguments=(*kept, *constants),
        platforms=platforms,
        calling_convention_version=convention,
        ordered_effects=_effects(root, 10),
        unordered_effects=_effects(root, 11),
        disabled_checks=tuple(
            each.text(1) if each.number(0, "b") else "platform" for each in root.tables(12)
        ),
        nr_devices=nr_devices,
        uses_global_constants=bool(root.number(16, "B")),
        jax_version=root.text(26),
    )


def _require_tree(root: FlatTable, field: int) -> tree.Tree:
    found = root.table(field)
    if found is None:
        raise ValueError("it does not say what it takes and gives")
    return _tree(found)


def _tree(table: FlatTable) -> tree.Tree:
    number = table.number(0, "b")
    if not 0 <= number < len(_KINDS):
        raise ValueError(f"a container has the unknown kind {number}")
    kind = _KINDS[number]
    children = tuple(_tree(child) for child in table.tables(1))
    keys = table.texts(2)
    if kind in (tree.LEAF, tree.NONE) and children:
        raise ValueError("a leaf has children")
    if kind == tree.DICT and len(set(keys)) != len(children):
        raise ValueError(f"a dict has {len(children)} values and the keys {list(keys)}")
    return tree.Tree(
        kind,
        children,
        keys if kind == tree.DICT else (),
        table.text(3) if kind == tree.CUSTOM else "",
        table.bytes(4) if kind == tree.CUSTOM else b"",
    )


def _avals(root: FlatTable, unique: list[Aval], indices: int, old: int) -> tuple[Aval, ...]:
    """Read types: since April 2026 JAX writes numbers of unique types, before that it wrote all."""
    numbers = root.numbers(indices, "I")
    if not numbers:
        return tuple(_aval(each) for each in root.tables(old))
    if max(numbers) >= len(unique):
        raise ValueError(f"it has {len(unique)} types, and refers to number {max(numbers)}")
    return tuple(unique[number] for number in numbers)


def _aval(table: FlatTable) -> Aval:
    if table.number(0, "b"):
        raise ValueError("an input or output is not an array")
    dtype = table.number(2, "b")
    if not 0 <= dtype < len(_DTYPES):
        raise ValueError(f"an element type has the unknown number {dtype}")
    return Aval(dtypes.TypeName(_DTYPES[dtype]), tuple(map(_dimension, table.texts(1))))


def _dimension(text: str) -> int | str:
    if len(text) > _LONGEST_DIMENSION or not text.strip():
        raise ValueError(f"{text[:40]!r} is not a dimension")
    if text.isascii() and text.isdigit():
        return int(text)
    names(text)  # This refuses a text that is no expression, before the function is called.
    return text


def _effects(root: FlatTable, field: int) -> tuple[str, ...]:
    return tuple(each.text(0) for each in root.tables(field))
