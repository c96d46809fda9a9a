"""pjrt_hub.running.array.packing: elements smaller than a byte, the first in the lowest bits."""

import ml_dtypes
import numpy as np
import pytest

from pjrt_hub.running.array import packing

#: Bits of an element -> elements, and their packed bytes as computed by hand.
KNOWN = {
    1: ([1, 0, 0, 0, 0, 0, 0, 1, 1], [0x81, 0x01]),
    2: ([1, 2, 3, 0, 1], [0b00_11_10_01, 0b01]),
    4: ([0x1, 0xF, 0x7], [0xF1, 0x07]),
    6: ([0b000001, 0b000010, 0b000100, 0b111111, 0b100000], [0x81, 0x40, 0xFC, 0x20]),
}


@pytest.mark.parametrize(("bits", "known"), KNOWN.items())
def test_the_first_element_has_the_lowest_bits(bits, known):
    elements, data = known
    array = np.array(elements, np.uint8)
    assert packing.pack(array, bits).tolist() == data
    assert packing.nbytes(len(elements), bits) == len(data)
    packed = np.array(data, np.uint8)
    assert packing.unpack(packed, array.shape, bits, array.dtype).tolist() == elements


@pytest.mark.parametrize("bits", KNOWN)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3), (5, 7), (4, 6, 8)])
def test_what_is_packed_is_unpacked(bits, shape):
    array = np.random.default_rng(0).integers(0, 2**bits, shape, np.uint8)
    packed = packing.pack(array, bits)
    assert packed.size == -(-array.size * bits // 8)
    again = packing.unpack(packed, shape, bits, array.dtype)
    assert (again.shape, again.tolist()) == (shape, array.tolist())


def test_the_order_of_the_elements_is_row_major_and_only_low_bits_count():
    array = np.array([[-1, 1], [2, -8]], ml_dtypes.int4)
    assert packing.pack(array.T, 4).tolist() == [0x2F, 0x81]
    assert packing.unpack(packing.pack(array, 4), (2, 2), 4, array.dtype).tolist() == array.tolist()
