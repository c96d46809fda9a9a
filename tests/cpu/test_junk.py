"""Values that are no file, program or plugin: the error of each call names them."""

from pathlib import Path
from traceback import format_exception

import numpy as np
import pytest
from texts import identity

import pjrt_hub
from pjrt_hub import Program
from pjrt_hub.errors import PjrtHubError
from pjrt_hub.frameworks import safetensors

CALLS = {
    "load": lambda _, junk: pjrt_hub.load(junk),
    "Program": lambda _, junk: Program(junk, "mlir"),
    "Program.of": lambda _, junk: Program.of(junk),
    "compile": lambda client, junk: client.compile(junk),
    "topology.compile": lambda client, junk: client.topology.compile(junk),
    "client.load": lambda client, junk: client.load(junk),
    "execute": lambda client, junk: client.compile(identity("f32")).execute(junk),
    "load_exported": lambda client, junk: pjrt_hub.load_exported(junk, client=client),
    "safetensors.load_file": lambda client, junk: safetensors.load_file(junk, client),
    "safetensors.open_file": lambda _, junk: safetensors.open_file(junk),
    "buffer_from_file": lambda client, junk: client.buffer_from_file(junk, (1,), np.float32),
}
#: Name -> a wrong value, and what the message says of it: a folder or missing file by its path.
JUNK = {
    "None": (None, "NoneType"),
    "int": (3, "int"),
    "object": (object(), "object"),
    "list": ([], "list"),
    "bytes": (b"junk", r"bytes|junk|6a 75|\[Errno 2\]|byte \d+"),
    "no bytes": (b"", r"bytes|empty|b''"),
    "no text": ("", r"empty|''|plugin"),
    "folder": (Path, "{folder}"),
    "missing": (Path, "{folder}/missing"),
}
#: Calls in which a value is no junk: any plugin, or code that is only refused at compilation.
MEANT = {("load", "None"), ("load", "no text")}
MEANT |= {("execute", each) for each in JUNK.keys() - {"None", "int", "object"}}
MEANT |= {("Program", each) for each in ("bytes", "no bytes", "no text", "folder", "missing")}


@pytest.mark.parametrize(
    ("call", "junk"), [(call, junk) for call in CALLS for junk in JUNK if (call, junk) not in MEANT]
)
def test_junk_is_named(client, tmp_path, call, junk):
    given, words = JUNK[junk]
    if given is Path:
        words = words.format(folder=tmp_path)
        given = Path(words)
        forms = [given, str(given)]
    else:
        forms = [given]
    for form in forms:
        with pytest.raises((TypeError, ValueError, PjrtHubError, OSError), match=words) as caught:
            CALLS[call](client, form)
        assert "".join(format_exception(caught.value)).count("Traceback") == 1


def test_weights_are_given_by_their_path(client, tmp_path):
    path = safetensors.save_file({"a": np.ones(3, np.float32)}, tmp_path / "a.safetensors")
    assert safetensors.load_file(str(path), client)["a"].tolist() == [1, 1, 1]
    for contents in (path.read_bytes(), b"", bytes(path)):
        with pytest.raises(TypeError, match=f"{len(contents)} bytes were given; .* by its path"):
            safetensors.load_file(contents, client)


def test_a_number_is_no_file(client, tmp_path):
    """Python's `open` would take the number for a file descriptor."""
    (tmp_path / "x").write_bytes(bytes(4))
    with open(tmp_path / "x") as file, pytest.raises(TypeError, match="not int"):
        client.buffer_from_file(file.fileno(), (1,), np.float32)
