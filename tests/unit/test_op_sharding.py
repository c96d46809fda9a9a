"""The part of an array that each device has, according to OpSharding messages made here."""

import pytest

from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import hlo, op_sharding


def tiled(*tiles, devices=(), iota=(), order=(), copies=()):
    """An OpSharding that splits an array into tiles."""
    fields = {hlo.SHARDING_TILES: tiles, hlo.SHARDING_DEVICES: devices, hlo.SHARDING_IOTA: iota}
    fields |= {hlo.SHARDING_IOTA_ORDER: order, hlo.SHARDING_COPIES: copies}
    packed = (wire.pack(number, list(numbers)) for number, numbers in fields.items())
    return wire.varint(hlo.SHARDING_TYPE, hlo.TILED) + b"".join(packed)


@pytest.mark.parametrize(
    ("message", "starts"),
    [
        (b"", [(0, 0)] * 4),
        (tiled(4, 1, devices=[0, 1, 2, 3]), [(0, 0), (2, 0), (4, 0), (6, 0)]),
        (tiled(4, 1, devices=[3, 1, 0, 2]), [(4, 0), (2, 0), (6, 0), (0, 0)]),
        (tiled(2, 2, iota=[4]), [(0, 0), (0, 2), (4, 0), (4, 2)]),
        (tiled(2, 2, iota=[2, 2], order=[1, 0]), [(0, 0), (4, 0), (0, 2), (4, 2)]),
        (tiled(2, 1, 2, iota=[4]), [(0, 0), (0, 0), (4, 0), (4, 0)]),
        (tiled(1, 2, 2, iota=[2, 2], order=[1, 0], copies=[0]), [(0, 0), (0, 2)] * 2),
    ],
)
def test_the_part_of_each_device(message, starts):
    found = op_sharding.parts(message, (8, 4), 4)
    assert [tuple(each.start for each in part) for part in found] == starts


@pytest.mark.parametrize(
    "message",
    [
        wire.varint(hlo.SHARDING_TYPE, 4),  # type 4 is MANUAL
        tiled(4, 1, devices=[0, 1, 2]),
        tiled(4, 1, devices=[0, 1, 2, 2]),
        tiled(2, 1, 2, iota=[4], copies=[4]),
        tiled(4, iota=[4]),
    ],
)
def test_what_cannot_be_followed(message):
    with pytest.raises(ValueError, match=r"one has the type|on the devices|cannot reshape"):
        op_sharding.parts(message, (8, 4), 4)


def test_those_of_a_program():
    whole, rows = wire.varint(hlo.SHARDING_TYPE, hlo.REPLICATED), tiled(2, 1, iota=[2])
    both = b"".join(wire.length_delimited(hlo.SHARDING_TUPLE, each) for each in (rows, b""))
    module = b"".join(
        wire.length_delimited(hlo.MODULE_PARAMETER_SHARDINGS, each) for each in (whole, rows)
    )
    outputs = wire.varint(hlo.SHARDING_TYPE, hlo.TUPLE) + both
    module += wire.length_delimited(hlo.MODULE_OUTPUT_SHARDING, outputs)
    expected = [whole, rows], [rows, b""]
    assert op_sharding.of_program(module, "hlo") == expected
    around = wire.length_delimited(hlo.WITH_CONFIG_MODULE, module)
    assert op_sharding.of_program(around, "hlo_with_config") == expected
    assert op_sharding.of_program(b"", "hlo") == ([], [])
