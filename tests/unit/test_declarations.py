"""The declarations of the PJRT C API, compared with the measured layout of version 0.117.

`data/pjrt_api_layout.json` holds a C compiler's layout of the real headers. Offsets and sizes
come from the compiled module, so that our own layout rule is tested and not trusted.
"""

import importlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pjrt_hub.running.capi import _pjrt, call, table

ffi, lib = _pjrt.ffi, _pjrt.lib
ROOT = Path(__file__).resolve().parents[2]
LAYOUT: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "pjrt_api_layout.json").read_text()
)
HEADS = {"struct_size", "extension_start", "base"}

#: Functions that we declare directly, while the headers only have names of their types.
EXTENSION_CALLS = {
    "PJRT_ExecutableMetadata_GetExecutableMetadata",
    "PJRT_ExecutableMetadata_DestroySerializedMetadata",
    "PJRT_HostMemoryAllocator_Allocate",
    "PJRT_Register_Xla_Transform_Fn",
    "PJRT_Clear_Xla_Transform_Fn",
}


@pytest.fixture(scope="module")
def capi() -> Iterator[ModuleType]:
    """The generator of the declarations, which is not a part of the package."""
    sys.path.append(str(ROOT / "tools"))
    yield importlib.import_module("capi")
    sys.path.remove(str(ROOT / "tools"))


def test_the_table_that_was_built_is_what_the_declarations_say(capi):
    built = Path(table.__file__).with_name("table.json")
    assert capi.table(capi.read()) == built.read_text()


def test_header_compiles_alone_and_carries_every_size(capi, tmp_path):
    header = capi.header(capi.read())
    sizes = dict(re.findall(r"#define (\w+)_STRUCT_SIZE (\d+)", header))
    assert {name: int(size) for name, size in sizes.items()} == table.STRUCT_SIZE

    (tmp_path / "pjrt_api.h").write_text(header)
    source = tmp_path / "alone.c"
    source.write_text('#include "pjrt_api.h"\nconst int minor = PJRT_API_MINOR;\n')
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    subprocess.run([*compiler, *flags, str(source)], check=True, timeout=60)


def test_slots():
    found = {
        name: [row.slot, ffi.offsetof("PJRT_Api", name), row.since, row.args, row.returns]
        for name, row in table.FUNCTIONS.items()
    }
    assert found == LAYOUT["functions"]
    assert len(found) == 138
    assert [row.slot for row in table.FUNCTIONS.values()] == list(range(138))
    assert (lib.PJRT_API_MAJOR, lib.PJRT_API_MINOR) == (0, 117)


def test_structs():
    fields = 0
    assert table.STRUCT_SIZE.keys() == table.FIELDS.keys() == LAYOUT["structs"].keys()
    for name, (struct_size, size, expected) in LAYOUT["structs"].items():
        compiled = dict(compiled_fields(name))
        assert compiled == {field: (offset, width) for field, offset, width, _ in expected}, name
        assert table.STRUCT_SIZE[name] == struct_size == max(map(sum, compiled.values())), name
        assert ffi.sizeof(name) == size, name
        fields += len(compiled)
    assert (len(LAYOUT["structs"]), fields) == (394, 2269)


def test_fields_of_the_table():
    for name, (_, _, expected) in LAYOUT["structs"].items():
        own = [(field.name, field.since) for field in table.FIELDS[name]]
        heads = [field for field, *_ in expected[: len(expected) - len(own)]]
        assert set(heads) <= HEADS, name
        assert own == [(field, since) for field, _, _, since in expected[len(heads) :]], name


def test_counts_name_fields_that_hold_them():
    # These counts of an execution are not in the same struct.
    elsewhere = {("PJRT_ExecuteOptions", "num_devices")}
    elsewhere |= {("PJRT_LoadedExecutable_Execute_Args", "num_outputs")}
    counted = 0
    for name, fields in table.FIELDS.items():
        names = {field.name for field in fields}
        for field in fields:
            for count in filter(None, re.split(r",|sum ", field.count)):
                counted += 1
                assert count.isdigit() or count in names or (name, count) in elsewhere, field
    assert counted > 250


def test_a_deleter_comes_with_what_it_deletes():
    alone = {
        name
        for name, fields in table.FIELDS.items()
        if not call._owner(name)
        and any(field.direction == "out" and "(*)" in field.ctype for field in fields)
    }
    assert alone == {
        "PJRT_Buffer_CopyRawToHostFuture_Args",  # the host calls it when the value is ready
        "PJRT_Buffer_DonateWithControlDependency_Args",
        "PJRT_HostMemoryAllocator_Allocate_Args",  # it also takes the memory as an argument
    }
    both = ("serialized_executable_deleter", "serialized_executable")
    assert call._owner("PJRT_Executable_Serialize_Args") == both


def test_enums(capi):
    declared = capi.read().enum_since
    for name, entries in LAYOUT["enums"].items():
        assert table.ENUMS[name] == {entry: value for entry, (value, _) in entries.items()}
        assert all(getattr(lib, entry) == value for entry, (value, _) in entries.items())
        since = {entry: minor for entry, (_, minor) in entries.items() if minor}
        assert declared[name] == since
    assert table.ENUMS.keys() == LAYOUT["enums"].keys()
    assert sum(map(len, table.ENUMS.values())) == 175


def test_extensions():
    found = {
        key: [
            *(extension.type, extension.struct),
            {name: [row.offset, row.args] for name, row in extension.functions.items()},
        ]
        for key, extension in table.EXTENSIONS.items()
    }
    assert found == LAYOUT["extensions"]
    for extension in table.EXTENSIONS.values():
        for name, row in extension.functions.items():
            assert row.offset == ffi.offsetof(extension.struct, name)


def test_callbacks():
    for name, (returns, parameters) in LAYOUT["callbacks"].items():
        if name not in EXTENSION_CALLS:
            expected = ffi.typeof(f"{returns}(*)({', '.join(parameters)})")
            assert ffi.typeof(name) is expected, name


def compiled_fields(struct: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each field's offset and size in the compiled module, with members of unions as fields."""

    def flat(ctype: Any, start: int) -> Iterator[tuple[str, tuple[int, int]]]:
        for name, field in ctype.fields:
            if name:
                yield name, (start + field.offset, ffi.sizeof(field.type))
            else:
                yield from flat(field.type, start + field.offset)

    return flat(ffi.typeof(struct), 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  in int x\n", r"wrong\.pjrt:\d: .*needs a block"),
        ("enum E\n  A\n", r"wrong\.pjrt:\d: .*not enough values"),
        ("struct S\n  in x\n", r"wrong\.pjrt:\d: .*a field is DIRECTION TYPE NAME"),
        ("struct S wide\n  in int x\n", r"wrong\.pjrt:\d: .*wide"),
        ("PJRT_X ?\n", r"wrong\.pjrt:\d: .*neither a keyword nor a function"),
        ("struct S\n  in int x\nstruct S\n  in int x\n", r"wrong\.pjrt:\d: .*declared twice"),
        ("struct S bare\n  in PJRT_Nothing* x\n", r"S\.x: no type PJRT_Nothing"),
    ],
)
def test_malformed_declarations_name_file_and_line(capi, tmp_path, text, reason):
    for path in capi.DECLARATIONS.glob("*.pjrt"):
        shutil.copy(path, tmp_path)
    (tmp_path / "wrong.pjrt").write_text(text)
    with pytest.raises(capi.DeclarationError, match=reason):
        capi.read(tmp_path)


def test_what_is_not_called_has_a_reason_on_a_current_page():
    check = [sys.executable, str(ROOT / "tools" / "coverage.py"), "--check"]
    assert subprocess.run(check, timeout=60).returncode == 0
    page = (ROOT / "docs" / "coverage.md").read_text()
    assert [line for line in page.splitlines() if "not reached yet" in line] == []
