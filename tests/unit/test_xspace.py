"""Reading XSpaces: what each field means, and that hostile ones are refused."""

from resource import RUSAGE_SELF, getrusage

import pytest
from xspaces import BEGAN, ENVIRONMENT, GPU, HOST, event, line, plane

from pjrt_hub.errors import FileFormatError
from pjrt_hub.kit.tracing import xspace
from pjrt_hub.running.capi.wire import double, length_delimited, varint


def test_a_device_has_lines_of_events():
    [found] = xspace.read(GPU).planes
    assert (found.name, found.names) == ("/device:GPU:0", {1: "fusion", 2: "MemcpyH2D"})
    kernels, copies = found.lines
    assert (kernels.name, copies.name) == ("Stream #1(Compute)", "Stream #2(MemcpyH2D)")
    assert kernels.starts_ns.tolist() == [1000 + n * 10_000 for n in range(40)]
    assert kernels.durations_ps.tolist() == [3 * 10**6] * 40
    assert kernels.titles.tolist() == [1] * 40
    assert [column.tolist() for column in copies[1:]] == [[6000], [20 * 10**6], [2]]


def test_a_file_is_read_as_its_bytes_are(tmp_path):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(HOST + ENVIRONMENT)
    whole, again = xspace.read(path), xspace.read(path.read_bytes())
    for profile in (whole, again):
        host, environment = profile.planes
        assert (host.name, environment.name) == ("/host:CPU", "Task Environment")
        # A session of JAX says when it began, and counts from there.
        assert host.lines[0].starts_ns.tolist() == [BEGAN + n for n in (1000, 2000, 3000)]


def test_operations_of_a_host_are_told_by_their_stats():
    assert xspace.read(HOST).planes[0].operations == {2, 3}
    assert xspace.read(GPU).planes[0].operations == frozenset()


def test_errors_and_warnings_of_the_profiler_are_kept():
    told = (
        length_delimited(2, b"no CUPTI") + length_delimited(3, b"cut") + length_delimited(4, b"h")
    )
    assert xspace.read(told).messages == ("no CUPTI", "cut")


def test_an_instruction_has_a_name_for_its_text():
    entry = length_delimited(2, b"%add.1 = f32[8] add(%a, %b)") + length_delimited(4, b"add.1")
    other = length_delimited(2, b"HLO:main") + length_delimited(4, b"main")
    known = [varint(1, n) + length_delimited(2, body) for n, body in ((1, entry), (2, other))]
    found = xspace.read(plane("/device:TPU:0", [], *(length_delimited(4, each) for each in known)))
    assert found.planes[0].names == {1: "add.1", 2: "HLO:main"}


@pytest.mark.parametrize("count", [3, 1000])
def test_events_of_any_form_are_read(count):
    """They may be long, have their fields in any order, or have fields of the future."""
    long = length_delimited(4, bytes(300)), length_delimited(4, bytes(20_000))
    odd = (
        length_delimited(4, varint(3, 7000) + long[0] + varint(2, 5000) + varint(1, 3)),
        length_delimited(4, long[1] + varint(1, 3) + varint(2, 6000) + varint(3, 8000)),
        length_delimited(4, double(9, 1.5) + varint(2, 7000) + varint(1, 3)),
    )
    # The varints of a host that writes more bytes than it must are read, too.
    wide = b"\x22\x09" + b"\x08\x83\x80\x00" + b"\x10\xa8\xc6\x80\x00"
    events = [*odd, wide, *[event((1, n, n)) for n in range(count)], length_delimited(4, b"")]
    found = xspace.read(plane("/device:GPU:0", [line("all", 9, events)])).planes[0].lines[0]
    assert found.starts_ns[:4].tolist() == [14, 15, 16, 18]
    assert found.durations_ps[:4].tolist() == [7000, 8000, 0, 0]
    assert found.titles.tolist() == [3] * 4 + [1] * count + [0]
    assert found.durations_ps[4:-1].tolist() == list(range(count))


def of_events(*events):
    return plane("p", [line("l", 0, events)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<!DOCTYPE html>", "wire type"),
        (varint(1, 1), "field 1, which is another message's"),
        (length_delimited(9, b""), "field 9, which is another message's"),
        (GPU[:-3], "ends after the message"),
        (of_events(b"\x22\x05\x08"), "ends after its line"),
        (of_events(event((1, 1 << 63, 1))), "impossible time"),
        (of_events(*[event((1, 5, 1 << 62))] * 50), "impossible time"),
        (plane("p", [line("l", 1 << 63, [])]), "a time is impossible"),
        (of_events(*[length_delimited(4, b"\x08")] * 50), "does not end inside its event"),
        (of_events(*[length_delimited(4, b"\x08" + b"\xff" * 12)] * 50), "not end inside"),
        (of_events(*[length_delimited(4, b"\x22\x07")] * 50), "a field ends after its event"),
        (of_events(*[length_delimited(4, b"\x22" + b"\xff" * 9 + b"\1")] * 50), "ends after its"),
        (of_events(length_delimited(4, b"\x0b")), "wire type 3"),
        (length_delimited(1, length_delimited(3, b"") * 100_001), "too many lines or names"),
        (length_delimited(1, b"") * 100_001, "too many planes, lines or texts"),
        (length_delimited(2, b"") * 100_001, "too many planes, lines or texts"),
    ],
)
def test_what_is_no_xspace_is_refused(data, said):
    with pytest.raises(FileFormatError, match=said) as caught:
        xspace.read(data)
    assert "the profile is not an XSpace: " in str(caught.value)


def test_a_larger_file_than_any_message_is_not_opened(tmp_path):
    path = tmp_path / "large.xplane.pb"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(FileFormatError, match="it has 2147483648 bytes"):
        xspace.read(path)


@pytest.mark.slow
def test_a_hundred_megabytes_take_less_than_five_hundred(tmp_path):
    """All of them are short events of one line, which is the worst case."""
    path, before = tmp_path / "large.xplane.pb", getrusage(RUSAGE_SELF).ru_maxrss
    some = b"".join(event((n % 50 + 1, n * 10**8, 10**6)) for n in range(1000))
    times = 100_000_000 // len(some)
    head = line("Stream #1", 0, [])[2:]  # The size of a line is written anew.
    body = length_delimited(2, b"/device:GPU:0")
    nbytes = len(head) + times * len(some)
    body += varint(0, nbytes).replace(b"\0", b"\x1a", 1) + head
    with path.open("wb") as file:
        file.write(varint(0, len(body) + times * len(some)).replace(b"\0", b"\x0a", 1) + body)
        for _ in range(times):
            file.write(some)
    [found] = xspace.read(path).planes[0].lines
    assert found.titles.size == 1000 * times > 6_000_000
    assert found.starts_ns[:3].tolist() == [0, 100_000, 200_000]
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 480_000  # in KiB
