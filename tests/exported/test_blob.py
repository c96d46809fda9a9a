"""The reader of jax.export's flatbuffer, tested with real and changed blobs and hostile bytes."""

import random
import struct
from itertools import pairwise

import pytest

import pjrt_hub
from pjrt_hub.errors import FileFormatError, NotRunnableError
from pjrt_hub.frameworks.exported import reading
from pjrt_hub.frameworks.exported.flatbuffer import FlatTable
from pjrt_hub.running.program import bytecode
from pjrt_hub.running.program.entry import signature

from .conftest import ARTIFACTS

BLOBS = sorted(ARTIFACTS.glob("*.jaxexport"))


def patched(data, field, format, value):
    """Return a copy of a blob in which one number is changed."""
    [root] = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    [offset] = struct.unpack_from("<H", data, vtable + 4 + 2 * field)
    assert offset
    changed = bytearray(data)
    struct.pack_into("<" + format, changed, root + offset, value)
    return bytes(changed)


@pytest.mark.parametrize("path", BLOBS, ids=lambda path: path.stem)
def test_the_program_says_what_the_description_does(path):
    """Its parameters follow the platform's number, where it takes one."""
    function = reading.read(path)
    entry = signature(function.program, 1)
    assert entry is not None
    inputs = [function.inputs[number] for number in function.arguments]
    taken = entry.parameters[len(entry.parameters) - len(inputs) :]
    assert [value.code for value in taken] == [each.element.code for each in inputs]
    static = [each.dimensions if each.is_static else None for each in inputs]
    assert [value.shape for value in taken] == static
    given = [value.code for value in entry.outputs]
    assert given == [each.element.code for each in function.outputs]


@pytest.fixture
def add(path):
    return path("add").read_bytes()


def test_bytes_are_as_good_as_a_file(add, client):
    function = pjrt_hub.load_exported(add, client=client)
    assert function.function_name == "add"
    assert function.function.origin == "the exported function"


@pytest.mark.parametrize(
    ("version", "hint"), [(8, "with JAX 0.4.31 or newer"), (11, "install a newer pjrt-hub")]
)
def test_another_calling_convention(add, version, hint):
    message = f"the calling convention {version} of jax.export"
    with pytest.raises(NotRunnableError, match=message) as caught:
        reading.read(patched(add, 14, "H", version))
    assert hint in caught.value.hint


def test_another_serialization(add, path, caplog):
    """An older one is refused, and a newer one is tried."""
    with pytest.raises(FileFormatError, match="its serialization version is 1, below 2"):
        reading.read(patched(add, 0, "H", 1))
    assert reading.read(path("nested-0.12.0.1").read_bytes()).jax_version == "0.12.0.1"
    assert not caplog.records
    newer = patched(add, 0, "H", 13)
    assert reading.read(newer).function_name == "add"
    assert "has the serialization version 13; pjrt-hub knows 12" in caplog.text
    with pytest.raises(FileFormatError, match=r"\(version 13 of it, newer than 12\): "):
        reading.read(newer[:-100])


NO_BLOB = r"is not what jax\.export serializes"


@pytest.mark.parametrize("text", [b"(", b"1(", b" ", b"\xff"])
def test_a_dimension_that_is_none(path, text):
    data = path("symbolic").read_bytes()
    told = len(text).to_bytes(4, "little") + text
    changed = data.replace(b"\1\0\0\0b\0\0\0", told.ljust(8, b"\0"))
    assert changed != data
    with pytest.raises(FileFormatError, match=NO_BLOB):
        reading.read(changed)


OTHER = (b"", bytes(7), bytes(64), b"\xff" * 64, b"PK\3\4" + bytes(60), b"func.func @main()\n" * 9)


@pytest.mark.parametrize("data", OTHER)
def test_other_bytes(data):
    with pytest.raises(FileFormatError, match=NO_BLOB):
        reading.read(data)


@pytest.mark.parametrize("blob", BLOBS, ids=lambda blob: blob.stem)
def test_every_beginning_is_refused(blob):
    data = blob.read_bytes()
    whole = reading.read(data)
    for end in range(0, len(data) - 8, 61):
        try:
            found = reading.read(data[:end])
        except FileFormatError:
            continue
        assert found.function_name == whole.function_name  # only padding was cut


def test_tables_that_contain_themselves_end():
    """A vector refers a hundred times to its own table: to read it all takes 100 to the depth."""
    vtable = struct.pack("<HHHH", 8, 8, 0, 4)
    table = struct.pack("<iI", 8, 4)  # its vtable starts 8 bytes earlier, its vector 4 bytes later
    here = 4 + len(vtable)
    first = here + 8 + 4
    vector = struct.pack("<I", 100) + b"".join(
        struct.pack("<I", (here - (first + 4 * n)) % 2**32) for n in range(100)
    )
    root = FlatTable.root(struct.pack("<I", here) + vtable + table + vector)
    with pytest.raises(ValueError, match="outside of the buffer"):
        root.tables(1)


def test_tables_that_are_shared_end():
    """Each table refers 50 times to the next: without a limit, 50 to the power of 6 are read."""
    fan, depth = 50, 6
    data, places = bytearray(4), []
    for _ in range(depth):  # the root comes first, so that references go forward
        places.append(len(data))
        data += struct.pack("<HHHH", 6, 8, 4, 0) + struct.pack("<iI", 8, 4)
        data += struct.pack("<I", fan) + bytes(4 * fan)
    for place, below in pairwise(places):
        for at in range(place + 20, place + 20 + 4 * fan, 4):
            struct.pack_into("<I", data, at, below + 8 - at)
    struct.pack_into("<I", data, 0, places[0] + 8)

    def visit(table, depth):
        if depth < 5:
            for child in table.tables(0):
                visit(child, depth + 1)

    with pytest.raises(ValueError, match="refer to each other without end"):
        visit(FlatTable.root(bytes(data)), 0)


def test_custom_calls_are_read_from_bytecode(path):
    found = [reading.read(path(name)).custom_calls for name in ("add", "cholesky", "symbolic")]
    assert found == [(), ("cusolver_potrf_ffi", "lapack_spotrf_ffi"), ("shape_assertion",)]


def test_bytecode_that_cannot_be_read(path):
    code = reading.read(path("cholesky")).program.code
    assert bytecode.uses(b"func.func") is None
    assert bytecode.uses(code[:40]) is None
    rng = random.Random(0)
    for _ in range(300):
        noisy = bytearray(code)
        noisy[rng.randrange(4, len(noisy))] = rng.randrange(256)
        found = bytecode.uses(bytes(noisy))
        assert found is None or isinstance(found.custom_calls, tuple)
