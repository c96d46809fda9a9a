"""Calls: how programs are run wrongly, and what acts while they are asked to."""

from __future__ import annotations

from children import NAME

import pjrt_hub
from misuse.case import NUMBERS, Index, Lying, acting, raises, row_that
from pjrt_hub import Event, ExecuteOptions, LoadedExecutable
from pjrt_hub.errors import AlreadyExistsError, ClosedError, InvalidArgumentError, PjrtError
from pjrt_hub.running.extensions import layouts

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
    "an array of another dtype": (
        lambda c: c.add(NUMBERS.astype(int), c.f),
        TypeError,
        "argument 0 of 2 .* the array has elements of int64",
    ),
    "an array that is too short": (lambda c: c.add(NUMBERS[1:], c.f), ValueError, r"shape \(7,\)"),
    "an array of objects": (lambda c: c.add(NUMBERS.astype(object), c.f), TypeError, "of object"),
    "an array of one": (lambda c: c.scalar(NUMBERS[:1]), ValueError, r"shape \(1,\)"),
    "a number": (lambda c: c.scalar(1.5), TypeError, "argument 0 of 1 .* not float"),
    "a string": (lambda c: c.add(c.f, "f"), TypeError, "argument 1 of 2 .* not str"),
    "a type": (lambda c: c.add(type(c.f), c.f), TypeError, "argument 0 of 2 .* not type"),
    "an event": (lambda c: c.add(c.f.ready, c.f), TypeError, "argument 0 of 2 .* not Event"),
    "itself": (lambda c: c.add(c.add, c.f), TypeError, "argument 0 .* not LoadedExecutable"),
    "a client": (lambda c: c.add(c.client, c.f), TypeError, "argument 0 of 2 .* not Client"),
    "an address": (lambda c: c.add(c.f.address, c.f), TypeError, "argument 0 of 2 .* not int"),
    # Element types
    "s32 as f32": (
        lambda c: c.add(c.typed("i32"), c.f),
        TypeError,
        r"f32\[8\], .* elements of i32",
    ),
    "u32 as f32": (lambda c: c.add(c.f, c.typed("ui32")), TypeError, "elements of ui32"),
    "f64 as f32": (lambda c: c.add(c.typed("f64"), c.f), TypeError, "elements of f64"),
    "f16 as f32": (lambda c: c.add(c.typed("f16"), c.f), TypeError, "elements of f16"),
    "bf16 as f32": (lambda c: c.add(c.typed("bf16"), c.f), TypeError, "elements of bf16"),
    "bool as f32": (lambda c: c.add(c.typed(bool), c.f), TypeError, "elements of i1"),
    "complex as f32": (lambda c: c.add(c.typed("c8"), c.f), TypeError, "of complex<f32>"),
    "i4 as f32": (lambda c: c.add(c.typed("int4"), c.f), TypeError, "elements of i4"),
    # Shapes
    "2x4 as 8": (lambda c: c.add(c.shaped(2, 4), c.f), ValueError, r"f32\[8\], .*shape \(2, 4\)"),
    "8x1 as 8": (lambda c: c.add(c.f, c.shaped(8, 1)), ValueError, r"shape \(8, 1\)"),
    "7 as 8": (lambda c: c.add(c.shaped(7), c.f), ValueError, r"shape \(7,\)"),
    "9 as 8": (lambda c: c.add(c.shaped(9), c.f), ValueError, r"shape \(9,\)"),
    "0 as 8": (lambda c: c.add(c.shaped(0), c.f), ValueError, r"shape \(0,\)"),
    "a scalar as 8": (lambda c: c.add(c.shaped(), c.f), ValueError, r"shape \(\)"),
    "8 as a scalar": (lambda c: c.scalar(c.f), ValueError, r"must be f32\[\], .* shape \(8,\)"),
    "1 as a scalar": (lambda c: c.scalar(c.shaped(1)), ValueError, r"shape \(1,\)"),
    "3x2 as 2x3": (lambda c: c.pair(c.shaped(3, 2)), ValueError, r"shape \(3, 2\)"),
    # Places
    "another client": (lambda c: c.add(c.f, c.foreign), ValueError, "of another client"),
    "another device": (lambda c: c.add(c.f, c.far), ValueError, f"on {NAME}:1, .* on {NAME}:0"),
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
    "a flat row": (
        lambda c: c.add.execute([c.f, c.f]),
        TypeError,
        r"a row of buffers for each of 1 device\(s\), 1 x 2 .*; row 0 is of type Buffer\n\nhint",
    ),
    "no rows at all": (
        lambda c: c.add.execute(None),
        TypeError,
        "a row of buffers for each .*; the arguments are of type NoneType",
    ),
    "a wrong row": (lambda c: c.add.execute([[c.f, c.far]]), ValueError, f"on {NAME}:1"),
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
    # Execute options
    "options of another kind": (
        lambda c: c.add.execute([[c.f] * 2], {"launch_id": 1}),
        TypeError,
        "not ExecuteOptions",
    ),
    "keeping what is not there": (
        lambda c: c.add.execute([[c.f] * 2], ExecuteOptions(non_donatable=[2])),
        ValueError,
        "argument 2, of 2",
    ),
    "a context that is none": (lambda c: ExecuteOptions(context=c.client), TypeError, "context is"),
    "a closed context": (
        lambda c: c.add.execute(
            [[c.f] * 2],
            ExecuteOptions(
                context=(lambda x: (x.close(), x.close(), x)[2])(pjrt_hub.ExecuteContext(c.client))
            ),
        ),
        ClosedError,
        "context is closed",
    ),
    "a location with an end": (lambda c: ExecuteOptions(call_location="a\0"), ValueError, "NUL"),
    "on another's device": (
        lambda c: c.add.execute_sharded([c.f] * 2, c.foreign.device),
        ValueError,
        "none of the program's devices",
    ),
    "as if it were portable": (
        lambda c: c.add.execute_portable([c.f] * 2, c.f.device),
        TypeError,
        "not portable",
    ),
    "donated twice at once": (
        lambda c: (lambda b: c.donate(b, b))(c.put(NUMBERS)),
        InvalidArgumentError,
        "previously donated",
    ),
    # Functions that programs call, and extensions
    "a function that raises": (lambda c: c.calling(raises), PjrtError, "on purpose"),
    "a function that is none": (lambda c: c.plugin.ffi.register("five", 5), ValueError, "0x5"),
    "a function twice": (
        lambda c: [c.plugin.ffi.register("misuse_twice", print) for _ in range(2)],
        AlreadyExistsError,
        "misuse_twice",
    ),
    "the layout of what is deleted": (
        lambda c: layouts.buffer_layout(c.deleted),
        ClosedError,
        "deleted",
    ),
    "the layout of a negative shape": (
        lambda c: layouts.default_layout(c.client, "f32", (-1,)),
        ValueError,
        "negative",
    ),
    # What acts while it is asked
    "an offset that deletes": (
        lambda c: (lambda b: b.copy_raw_to_host(bytearray(4), Index(0, b.delete)))(c.put(NUMBERS)),
        ClosedError,
        "deleted",
    ),
    "an offset that closes": (
        lambda c: (
            lambda o: o.buffer_from_host(NUMBERS).copy_raw_to_host(bytearray(4), Index(0, o.close))
        )(c.own()),
        ClosedError,
        "client is closed",
    ),
    "a dimension that closes": (
        lambda c: (lambda o: o.create_uninitialized_buffer((Index(8, o.close),)))(c.own()),
        ClosedError,
        "client is closed",
    ),
    "a dimension that raises": (
        lambda c: c.empty((Index(8, raises),)),
        ZeroDivisionError,
        "purpose",
    ),
    "an array that closes": (
        lambda c: (lambda o: o.buffer_from_host(Lying(o.close)))(c.own()),
        ClosedError,
        "client is closed",
    ),
    "an array that raises": (lambda c: c.put(Lying(raises)), ZeroDivisionError, "on purpose"),
    "a tensor that closes": (
        lambda c: (lambda o: o.from_dlpack(Lying(o.close)))(c.own()),
        ClosedError,
        "client is closed",
    ),
    "a tensor that raises": (lambda c: c.client.from_dlpack(Lying(raises)), ZeroDivisionError, ""),
    "an index that closes its transfer": (
        lambda c: (lambda t: t.transfer_data(Index(0, t.close), NUMBERS))(c.transfer()),
        ClosedError,
        "closed",
    ),
    "a row that deletes": (
        lambda c: (lambda b: c.add.execute([row_that(b.delete, b, c.f)]))(c.put(NUMBERS)),
        ClosedError,
        "argument 0",
    ),
    "a row that raises": (lambda c: c.add.execute([row_that(raises, c.f)]), ZeroDivisionError, ""),
    "a keyword that closes": (
        lambda c: (lambda e: e(c.f, c.f, simplify=acting(e.close)))(c.compile("add")),
        ClosedError,
        "executable is closed",
    ),
}
