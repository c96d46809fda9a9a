"""Misuse of a real plugin, which would run f32 code on an s32 buffer and answer OK.

Each case is refused by an exception that names it, in this process, and changes nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

from pjrt_hub import Event, ExecuteOptions, LoadedExecutable
from pjrt_hub.errors import ClosedError

NUMBERS = np.arange(8, dtype=np.float32)


class Case:
    """What the cases misuse: two devices, another client, and things that are gone."""

    def __init__(self, plugin, program):
        self.client = plugin.client({"cpu_device_count": 2})
        self.other = plugin.client()
        self.add = self.client.compile(program("add"))
        self.pair = self.client.compile(program("two_outputs"))
        self.none = self.client.compile(program("no_args"))
        self.scalar = self.client.compile(program("scalar"))
        self.f = self.put(NUMBERS)
        self.deleted = self.put(NUMBERS)
        self.deleted.delete()
        self.donated = self.put(NUMBERS)
        self.client.compile(program("donate"))(self.donated, self.f)
        self.foreign = self.other.buffer_from_host(NUMBERS)
        self.far = self.put(NUMBERS, device=self.client.devices[1])
        self.late = plugin.client()
        self.stale = self.late.buffer_from_host(NUMBERS)
        self.stale_add = self.late.compile(program("add"))
        self.late.close()
        self.shut = self.client.compile(program("add"))
        self.shut.close()

    def put(self, array, **where):
        return self.client.buffer_from_host(array, **where)

    def typed(self, dtype):
        """Eight numbers of another dtype; of four bytes each it has the same byte count."""
        return self.put(NUMBERS, dtype=dtype)

    def shaped(self, *shape):
        """Zeros of another shape."""
        return self.put(np.zeros(shape, np.float32))


@pytest.fixture(scope="module")
def case(plugin, program):
    made = Case(plugin, program)
    yield made
    made.client.close()
    made.other.close()


CASES = {
    # How many arguments, and given how
    "none of two": (lambda c: c.add(), TypeError, "takes 2 arguments, 0 given"),
    "one of two": (lambda c: c.add(c.f), TypeError, "takes 2 arguments, 1 given"),
    "three of two": (lambda c: c.add(c.f, c.f, c.f), TypeError, "takes 2 arguments, 3 given"),
    "a thousand": (lambda c: c.add(*[c.f] * 1000), TypeError, "takes 2 arguments, 1000 given"),
    "one of none": (lambda c: c.none(c.f), TypeError, "takes 0 arguments, 1 given"),
    "by keyword": (lambda c: c.add(c.f, b=c.f), TypeError, "by position"),
    "only by keyword": (lambda c: c.add(a=c.f, b=c.f), TypeError, "by position"),
    "a list of them": (lambda c: c.add([c.f, c.f]), TypeError, "takes 2 arguments, 1 given"),
    "two lists": (lambda c: c.add([c.f], [c.f]), TypeError, "argument 0 .* not list"),
    # What is no buffer
    "None": (lambda c: c.add(c.f, None), TypeError, "argument 1 of 2 .* not NoneType"),
    "an array": (lambda c: c.add(NUMBERS, c.f), TypeError, "argument 0 of 2 .* not ndarray"),
    "a number": (lambda c: c.scalar(1.5), TypeError, "argument 0 of 1 .* not float"),
    "a string": (lambda c: c.add(c.f, "f"), TypeError, "argument 1 of 2 .* not str"),
    "a type": (lambda c: c.add(type(c.f), c.f), TypeError, "argument 0 of 2 .* not type"),
    "an event": (lambda c: c.add(c.f.ready, c.f), TypeError, "argument 0 of 2 .* not Event"),
    "itself": (lambda c: c.add(c.add, c.f), TypeError, "argument 0 .* not LoadedExecutable"),
    "a client": (lambda c: c.add(c.client, c.f), TypeError, "argument 0 of 2 .* not Client"),
    "an address": (lambda c: c.add(c.f._address, c.f), TypeError, "argument 0 of 2 .* not int"),
    # Element types
    "s32 as f32": (lambda c: c.add(c.typed("i32"), c.f), TypeError, "8xf32, .* elements of i32"),
    "u32 as f32": (lambda c: c.add(c.f, c.typed("ui32")), TypeError, "elements of ui32"),
    "f64 as f32": (lambda c: c.add(c.typed("f64"), c.f), TypeError, "elements of f64"),
    "f16 as f32": (lambda c: c.add(c.typed("f16"), c.f), TypeError, "elements of f16"),
    "bf16 as f32": (lambda c: c.add(c.typed("bf16"), c.f), TypeError, "elements of bf16"),
    "bool as f32": (lambda c: c.add(c.typed(bool), c.f), TypeError, "elements of i1"),
    "complex as f32": (lambda c: c.add(c.typed("c8"), c.f), TypeError, "of complex<f32>"),
    "i4 as f32": (lambda c: c.add(c.typed("i4"), c.f), TypeError, "elements of i4"),
    # Shapes
    "2x4 as 8": (lambda c: c.add(c.shaped(2, 4), c.f), ValueError, r"8xf32, .*shape \(2, 4\)"),
    "8x1 as 8": (lambda c: c.add(c.f, c.shaped(8, 1)), ValueError, r"shape \(8, 1\)"),
    "7 as 8": (lambda c: c.add(c.shaped(7), c.f), ValueError, r"shape \(7,\)"),
    "9 as 8": (lambda c: c.add(c.shaped(9), c.f), ValueError, r"shape \(9,\)"),
    "0 as 8": (lambda c: c.add(c.shaped(0), c.f), ValueError, r"shape \(0,\)"),
    "a scalar as 8": (lambda c: c.add(c.shaped(), c.f), ValueError, r"shape \(\)"),
    "8 as a scalar": (lambda c: c.scalar(c.f), ValueError, r"must be f32, .* shape \(8,\)"),
    "1 as a scalar": (lambda c: c.scalar(c.shaped(1)), ValueError, r"shape \(1,\)"),
    "3x2 as 2x3": (lambda c: c.pair(c.shaped(3, 2)), ValueError, r"shape \(3, 2\)"),
    # Places
    "another client": (lambda c: c.add(c.f, c.foreign), ValueError, "of another client"),
    "another device": (lambda c: c.add(c.f, c.far), ValueError, "on cpu:1, .* on cpu:0"),
    # Lives
    "deleted": (lambda c: c.add(c.deleted, c.f), ClosedError, "argument 0 .* deleted"),
    "donated": (lambda c: c.add(c.f, c.donated), ClosedError, "argument 1 .* donated"),
    "of a closed client": (lambda c: c.add(c.stale, c.f), ClosedError, "argument 0 .* deleted"),
    "closed executable": (lambda c: c.shut(c.f, c.f), ClosedError, "executable is closed"),
    "closed client": (lambda c: c.stale_add(c.f, c.f), ClosedError, "client is closed"),
    "closed, any count": (lambda c: c.stale_add(), ClosedError, "client is closed"),
    "never loaded": (lambda c: LoadedExecutable()(c.f), ClosedError, "never loaded"),
    "never an event": (lambda c: Event().wait(), ClosedError, "never made"),
    # Rows
    "no row": (lambda c: c.add.execute([]), TypeError, "1 devices?, arguments for 0"),
    "two rows": (lambda c: c.add.execute([[c.f] * 2] * 2), TypeError, "arguments for 2"),
    "an empty row": (lambda c: c.add.execute([[]]), TypeError, "takes 2 arguments, 0 given"),
    "a long row": (lambda c: c.add.execute([[c.f] * 3]), TypeError, "takes 2 arguments, 3"),
    "a flat row": (lambda c: c.add.execute([c.f, c.f]), TypeError, "iterable"),
    "no rows at all": (lambda c: c.add.execute(None), TypeError, "iterable"),
    "a wrong row": (lambda c: c.add.execute([[c.f, c.far]]), ValueError, "on cpu:1"),
    "a dtype in a row": (lambda c: c.add.execute([[c.f, c.typed("i32")]]), TypeError, "of i32"),
    "deleted in a row": (lambda c: c.add.execute([[c.deleted, c.f]]), ClosedError, "argument 0"),
    "donated in a row": (lambda c: c.add.execute([[c.f, c.donated]]), ClosedError, "argument 1"),
    "launch by text": (
        lambda c: c.add.execute([[c.f] * 2], ExecuteOptions(launch_id="1")),
        TypeError,
        "str",
    ),
    "a launch too far": (
        lambda c: c.add.execute([[c.f] * 2], ExecuteOptions(launch_id=2**40)),
        OverflowError,
        "32 bits",
    ),
    "keeping by text": (
        lambda c: c.add.execute([[c.f] * 2], ExecuteOptions(non_donatable=["a"])),
        TypeError,
        "str",
    ),
}


def test_there_are_enough():
    assert len(CASES) >= 55


@pytest.mark.parametrize("name", CASES)
def test_misuse_is_refused(case, name):
    misuse, error, message = CASES[name]
    with pytest.raises(error, match=message):
        misuse(case)
    assert case.add(case.f, case.f).tolist() == (2 * NUMBERS).tolist()


def test_misuse_leaves_nothing_behind(case):
    before = case.client._num_children
    for misuse, error, _ in CASES.values():
        with pytest.raises(error):
            misuse(case)
    assert case.client._num_children == before
