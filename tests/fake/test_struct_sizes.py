"""Plugins that know other sizes of argument structs than we send, at least these or exactly these.

Ours are the newest, filled with zeros. What a plugin refuses is an error that names the function.
"""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

PRELUDE = """
class Policy(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char_p), ("more", ctypes.c_long), ("exactly", ctypes.c_int)]

plugin = Plugin(load(path))
policy = Policy.in_dll(ctypes.CDLL(path), "stub_policy")
more, exactly = map(int, sys.argv[2:4])


def life():
    with plugin.client() as client:
        a = client.buffer_from_host(ONE_TO_FOUR)
        b = client.compile(func("identity"))(a)
        assert np.asarray(b).tolist() == [1, 2, 3, 4]
        assert not b.is_deleted


def alone(function):
    # One function has that policy, as where its struct grew between two versions.
    policy.function, policy.more, policy.exactly = function.encode(), more, exactly
"""

#: What a life calls and cannot do without.
NEEDED = [
    "PJRT_Client_Create",
    "PJRT_Client_PlatformName",
    "PJRT_Client_Devices",
    "PJRT_Client_AddressableDevices",
    "PJRT_Client_BufferFromHostBuffer",
    "PJRT_Client_Compile",
    "PJRT_LoadedExecutable_GetExecutable",
    "PJRT_LoadedExecutable_Execute",
    "PJRT_Buffer_ReadyEvent",
    "PJRT_Event_IsReady",
    "PJRT_Buffer_IsDeleted",
]


@pytest.fixture
def each(stub, check):
    """Runs a text for each function of which the plugin knows a struct of so many more bytes."""

    def run(text: str, more: int, exactly: bool) -> None:
        loop = "\nfor function in sys.argv[4:]:\n    alone(function)\n"
        script = PRELUDE + loop + indent(dedent(text), "    ")
        check(stub(), script, str(more), str(int(exactly)), *NEEDED)

    return run


@pytest.mark.parametrize(
    ("more", "exactly"), [(0, False), (0, True), (-8, False)], ids=["least", "same", "older"]
)
def test_a_plugin_that_knows_no_more_than_we_do(each, more, exactly) -> None:
    each("life()", more, exactly)


@pytest.mark.parametrize(
    ("more", "exactly"), [(-8, True), (8, False), (8, True)], ids=["older", "newer", "exact"]
)
def test_a_plugin_that_wants_another_size(each, more, exactly) -> None:
    each(
        """
        error = raises(errors.InvalidArgumentError, life)
        assert error.function == function, error
        assert "unexpected struct size" in str(error), error
        policy.function = None
        life()
        """,
        more,
        exactly,
    )
