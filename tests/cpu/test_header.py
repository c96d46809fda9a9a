"""Our declaration against the real C header that the XLA CPU plugin ships, version 0.81.

What our 0.117 says of that header's structs, without everything that is newer, must be what the C
compiler makes of the header.
"""

import re
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from pjrt_hub.running.capi import _pjrt, table

pytestmark = pytest.mark.cpu("its header")

ffi = _pjrt.ffi

MINOR = 81
IMPLIED = {"struct_size", "extension_start"}


@pytest.fixture(scope="module")
def header() -> Path:
    """The header inside the installed `xla-cpu-pjrt`."""
    try:
        files = metadata.files("xla-cpu-pjrt") or []
    except metadata.PackageNotFoundError:
        pytest.skip("xla-cpu-pjrt is not installed")
    (found,) = (file for file in files if file.name == "pjrt_c_api.h")
    return Path(str(found.locate()))


def test_header_agrees(header: Path, tmp_path: Path) -> None:
    declared = declaration_of(header.read_text())
    prints = "\n".join(f'  printf("%lld\\n", (long long)({text}));' for text in declared)
    source = tmp_path / "layout.c"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\n'
        f"int main(void) {{\n{prints}\n  return 0;\n}}\n"
    )
    program = tmp_path / "layout"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    subprocess.run([*compiler, "-std=c11", "-o", program, source], check=True, timeout=120)
    output = subprocess.run([program], check=True, timeout=10, capture_output=True, text=True)

    measured = dict(zip(declared, map(int, output.stdout.split()), strict=True))
    assert measured == declared
    assert len(measured) > 1400


def test_nothing_of_the_header_is_missing(header: Path) -> None:
    text = header.read_text()
    declared = declaration_of(text)
    assert len(sized_structs(text)) > 120
    for struct, last in sized_structs(text).items():
        assert {f"{struct}_STRUCT_SIZE", f"offsetof({struct}, {last})"} <= declared.keys()
    slots = re.findall(r"_PJRT_API_STRUCT_FIELD\((PJRT_\w+)\)", text)
    assert slots == [name for name, row in table.FUNCTIONS.items() if row.since <= MINOR]
    assert len(slots) == 118


def sized_structs(header: str) -> dict[str, str]:
    """The structs for which the header defines a `_STRUCT_SIZE`, each with its last field."""
    found = dict(re.findall(r"PJRT_DEFINE_STRUCT_TRAITS\((PJRT_\w+),\s*(\w+)\)", header))
    return {str(struct): str(last) for struct, last in found.items()}


def declaration_of(header: str) -> dict[str, int]:
    """What we say of everything that the header names: a C expression and its value."""
    words = set(re.findall(r"\w+", header))
    sized = sized_structs(header)
    said = {"PJRT_API_MAJOR": 0, "PJRT_API_MINOR": MINOR}
    for struct in table.FIELDS:
        if struct in sized:
            said[f"{struct}_STRUCT_SIZE"] = max(ends_of(struct, said))
        elif struct in words:
            ends_of(struct, said)
    for entries in table.ENUMS.values():
        said |= {name: value for name, value in entries.items() if name in words}
    return said


def ends_of(struct: str, said: dict[str, int]) -> list[int]:
    """Say each field that is old enough, and return where those fields end."""
    names = [name for name, _ in ffi.typeof(struct).fields if name in IMPLIED]
    names += [field.name for field in table.FIELDS[struct] if field.since <= MINOR]
    sample = ffi.new(f"{struct}*")
    ends = []
    for name in dict.fromkeys(names):
        offset = ffi.offsetof(struct, name)
        size = ffi.sizeof(ffi.typeof(ffi.addressof(sample, name)).item)
        said[f"offsetof({struct}, {name})"] = offset
        said[f"sizeof((({struct}*)0)->{name})"] = size
        ends.append(offset + size)
    return ends
