"""Small XSpaces, made on the spot."""

from collections.abc import Iterable, Mapping, Sequence

from pjrt_hub.running.capi.wire import length_delimited, varint

#: An event: its name's number, when it begins and how long it takes, both in picoseconds.
Event = tuple[int, int, int]


def event(event: Event, *stats: bytes) -> bytes:
    """An event of a line."""
    numbers = b"".join(varint(number + 1, value) for number, value in enumerate(event))
    return length_delimited(4, numbers + b"".join(stats))


def stat(kind: int, value: int) -> bytes:
    """A stat of an event, with a number as its value."""
    return length_delimited(4, varint(1, kind) + varint(4, value))


def line(name: str, zero_ns: int, events: Iterable[bytes]) -> bytes:
    """A line of a plane."""
    head = varint(1, 7) + length_delimited(2, name.encode()) + varint(3, zero_ns)
    return length_delimited(3, head + b"".join(events))


def names(field: int, known: Mapping[int, str]) -> bytes:
    """The names of events, field 4 of a plane, or of stats, field 5."""
    return b"".join(
        length_delimited(
            field,
            varint(1, number)
            + length_delimited(2, varint(1, number) + length_delimited(2, name.encode())),
        )
        for number, name in known.items()
    )


def plane(name: str, lines: Sequence[bytes], *rest: bytes) -> bytes:
    """A plane of the space."""
    return length_delimited(1, length_delimited(2, name.encode()) + b"".join([*lines, *rest]))


#: A GPU with two streams: 40 kernels of 3 us, one each 10 us, and a copy from 5 to 25 us.
KERNELS = line("Stream #1(Compute)", 1000, [event((1, n * 10**7, 3 * 10**6)) for n in range(40)])
COPIES = line("Stream #2(MemcpyH2D)", 6000, [event((2, 0, 20 * 10**6))])
GPU = plane("/device:GPU:0", [KERNELS, COPIES], names(4, {1: "fusion", 2: "MemcpyH2D"}))
#: A host whose second name is that of an operation, inside which another runs.
HOST = plane(
    "/host:CPU",
    [
        line(
            "thread",
            1000,
            [
                event((1, 0, 10**9)),
                event((2, 10**6, 9 * 10**6), stat(5, 1)),
                event((3, 2 * 10**6, 4 * 10**6), stat(4, 0), stat(5, 1)),
            ],
        )
    ],
    names(4, {1: "wait", 2: "while", 3: "add"}),
    names(5, {4: "run_id", 5: "hlo_op"}),
)
#: What a session of JAX adds: its times begin with this moment.
BEGAN = 1_700_000_000_000_000_000
ENVIRONMENT = plane(
    "Task Environment",
    [],
    names(5, {1: "profile_start_time"}),
    length_delimited(6, varint(1, 1) + varint(3, BEGAN)),
)
