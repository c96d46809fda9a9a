"""Calls of programs with wrong arguments, or with arguments that have side effects."""

from __future__ import annotations

from children import NAME

from misuse.case import NUMBERS, PROGRAMS, SPACE, Index, Lying, acting, raises, row_that
from pjrt_hub import BoundCall, Event, ExecuteOptions, LoadedExecutable
from pjrt_hub.errors import AlreadyExistsError, ClosedError, InvalidArgumentError, PjrtError
from pjrt_hub.running.extensions import layouts

CASES = [
    # Wrong numbers of arguments, and wrong ways to pass them
    (lambda c: c.add(), TypeError, "takes 2 arguments, 0 given"),
    (lambda c: c.add(c.f), TypeError, "takes 2 arguments, 1 given"),
    (lambda c: c.add(c.f, c.f, c.f), TypeError, "takes 2 arguments, 3 given"),
    (lambda c: c.add(*[c.f] * 1000), TypeError, "takes 2 arguments, 1000 given"),
    (lambda c: c.none(c.f), TypeError, "takes 0 arguments, 1 given"),
    (lambda c: c.add(c.f, b=c.f), TypeError, "by position"),
    (lambda c: c.add(a=c.f, b=c.f), TypeError, "by position"),
    (lambda c: c.add([c.f, c.f]), TypeError, "takes 2 arguments, 1 given"),
    (lambda c: c.add([c.f], [c.f]), TypeError, "argument 0 .* not list"),
    # Arguments that are not buffers
    (lambda c: c.add(c.f, None), TypeError, "argument 1 of 2 .* not NoneType"),
    (lambda c: c.scalar(NUMBERS[:1]), ValueError, r"shape \(1,\)"),
    (lambda c: c.scalar(1.5), TypeError, "argument 0 of 1 .* not float"),
    (lambda c: c.add(type(c.f), c.f), TypeError, "argument 0 of 2 .* not type"),
    (lambda c: c.add(c.f.ready, c.f), TypeError, "argument 0 of 2 .* not Event"),
    (lambda c: c.add(c.f.address, c.f), TypeError, "argument 0 of 2 .* not int"),
    # Wrong element types
    (lambda c: c.add(c.typed("i32"), c.f), TypeError, r"f32\[8\], .* elements of i32"),
    (lambda c: c.add(c.typed("bf16"), c.f), TypeError, "elements of bf16"),
    (lambda c: c.add(c.typed("c8"), c.f), TypeError, "of complex<f32>"),
    (lambda c: c.add(c.typed("int4"), c.f), TypeError, "elements of i4"),
    # Wrong shapes
    (lambda c: c.add(c.shaped(2, 4), c.f), ValueError, r"f32\[8\], .*shape \(2, 4\)"),
    (lambda c: c.add(c.f, c.shaped(8, 1)), ValueError, r"shape \(8, 1\)"),
    (lambda c: c.add(c.shaped(9), c.f), ValueError, r"shape \(9,\)"),
    (lambda c: c.add(c.shaped(), c.f), ValueError, r"shape \(\)"),
    (lambda c: c.scalar(c.f), ValueError, r"must be f32\[\], .* shape \(8,\)"),
    (lambda c: c.pair(c.shaped(3, 2)), ValueError, r"shape \(3, 2\)"),
    # Buffers of other devices
    (lambda c: c.add(c.f, c.far), ValueError, f"on {NAME}:1, .* on {NAME}:0"),
    # Deleted, donated and closed objects
    (lambda c: c.add(c.deleted, c.f), ClosedError, "argument 0 .* deleted"),
    (lambda c: c.add(c.f, c.donated), ClosedError, "argument 1 .* donated"),
    (lambda c: c.add(c.stale, c.f), ClosedError, "argument 0 .* deleted"),
    (lambda c: c.shut(c.f, c.f), ClosedError, "executable is closed"),
    (lambda c: c.stale_add(c.f, c.f), ClosedError, "client is closed"),
    (lambda c: c.stale_add(), ClosedError, "client is closed"),
    (lambda c: LoadedExecutable()(c.f), ClosedError, "never loaded"),
    (lambda c: Event().wait(), ClosedError, "never made"),
    (lambda c: BoundCall()(), ClosedError, "never bound"),
    (lambda c: BoundCall()(options=ExecuteOptions()), ClosedError, "never bound"),
    # Rows of arguments for several devices
    (lambda c: c.add.execute([]), TypeError, "1 devices?, arguments for 0"),
    (lambda c: c.add.execute([[c.f] * 2] * 2), TypeError, "arguments for 2"),
    (lambda c: c.add.execute([[]]), TypeError, "takes 2 arguments, 0 given"),
    (lambda c: c.add.execute([[c.f] * 3]), TypeError, "takes 2 arguments, 3"),
    (
        lambda c: c.add.execute([c.f, c.f]),
        TypeError,
        r"a row of buffers for each of 1 device\(s\), 1 x 2 .*; row 0 is of type Buffer\n\nhint",
    ),
    (
        lambda c: c.add.execute(None),
        TypeError,
        "a row of buffers for each .*; the arguments are of type NoneType",
    ),
    (lambda c: c.add.execute([[c.f, c.far]]), ValueError, f"on {NAME}:1"),
    (lambda c: c.add.execute([[c.f, c.typed("i32")]]), TypeError, "of i32"),
    (lambda c: c.add.execute([[c.deleted, c.f]]), ClosedError, "argument 0"),
    (lambda c: c.add.execute([[c.f, c.donated]]), ClosedError, "argument 1"),
    # Execute options
    (
        lambda c: c.run(c.f, c.f, non_donatable=[2]),
        ValueError,
        "non_donatable names argument 2, of 2",
    ),
    (lambda c: c.run(c.f, c.f, non_donatable=[-1]), ValueError, "names argument -1"),
    (lambda c: c.with_new(lambda b: c.donate(b, b)), InvalidArgumentError, "previously donated"),
    # Functions that programs call, and extensions
    (lambda c: c.calling(raises), PjrtError, "on purpose"),
    (lambda c: c.plugin.ffi.register("five", 5), ValueError, "0x5"),
    (
        lambda c: [c.plugin.ffi.register("misuse_twice", print) for _ in range(2)],
        AlreadyExistsError,
        "misuse_twice",
    ),
    (lambda c: layouts.buffer_layout(c.deleted), ClosedError, "deleted"),
    (lambda c: layouts.default_layout(c.client, "f32", (-1,)), ValueError, "negative"),
    # Arguments that change something while they are read
    (
        lambda c: c.with_new(lambda b: b.copy_raw_to_host(SPACE, Index(0, b.delete))),
        ClosedError,
        "deleted",
    ),
    (
        lambda c: c.with_own(
            lambda o: o.buffer_from_host(NUMBERS).copy_raw_to_host(SPACE, Index(0, o.close))
        ),
        ClosedError,
        "client is closed",
    ),
    (
        lambda c: c.with_own(lambda o: o.create_uninitialized_buffer((Index(8, o.close),))),
        ClosedError,
        "client is closed",
    ),
    (lambda c: c.empty((Index(8, raises),)), ZeroDivisionError, "purpose"),
    (
        lambda c: c.with_own(lambda o: o.buffer_from_host(Lying(o.close))),
        ClosedError,
        "client is closed",
    ),
    (lambda c: c.put(Lying(raises)), ZeroDivisionError, "on purpose"),
    (
        lambda c: c.with_own(lambda o: o.from_dlpack(Lying(o.close))),
        ClosedError,
        "client is closed",
    ),
    (lambda c: c.client.from_dlpack(Lying(raises)), ZeroDivisionError, ""),
    (
        lambda c: (lambda t: t.transfer_data(Index(0, t.close), NUMBERS))(c.transfer()),
        ClosedError,
        "closed",
    ),
    (
        lambda c: c.with_new(lambda b: c.add.execute([row_that(b.delete, b, c.f)])),
        ClosedError,
        "argument 0",
    ),
    (lambda c: c.add.execute([row_that(raises, c.f)]), ZeroDivisionError, ""),
    (
        lambda c: c.with_new(lambda b: c.add(b, Lying(b.delete))),
        ClosedError,
        "argument 0 .* deleted",
    ),
    (
        lambda c: (lambda e: e(c.f, Lying(e.close)))(c.compile("add")),
        ClosedError,
        "executable is cl",
    ),
    (
        lambda c: c.with_own(lambda o: o.compile(PROGRAMS / "add.mlir")(NUMBERS, Lying(o.close))),
        ClosedError,
        "client is closed",
    ),
    (
        lambda c: (lambda e: e(c.f, c.f, simplify=acting(e.close)))(c.compile("add")),
        ClosedError,
        "executable is closed",
    ),
]
