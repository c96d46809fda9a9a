"""The headers of the real library, as they are and as an attacker would have them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pjrt_hub.base.host import HostTag
from pjrt_hub.errors import PluginLoadError
from pjrt_hub.finding.contract.binary import unfit
from pjrt_hub.finding.contract.headers import inspect

EDITS = st.lists(
    st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6
)


@pytest.fixture(scope="module")
def header(plugin) -> bytes:
    with plugin.path.open("rb") as file:
        return file.read(1 << 15)


def test_the_real_library(plugin):
    elf = inspect(plugin.path)
    assert elf.exported
    assert elf.glibc == (2, 27)
    assert "libc.so.6" in elf.needed
    has_own = {"0.81": False, "0.106": True, "0.115": False}[str(plugin.api_version)]
    assert ("libstdc++.so.6" in elf.needed) is not has_own  # else it is linked in
    assert unfit(elf, HostTag.current()) == []


@settings(max_examples=100, deadline=None)
@given(EDITS)
def test_hostile_headers_give_one_error(tmp_path_factory, header, edits):
    data = bytearray(header)
    for offset, value in edits:
        data[offset : offset + len(value)] = value
    path = tmp_path_factory.getbasetemp() / "real.so"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(260_000_000)  # sparse: the segments lie inside, their bytes are zero
    try:
        assert inspect(path).path == path
    except PluginLoadError as exc:
        assert exc.path == str(path)  # noqa: PT017
