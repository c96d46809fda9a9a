"""Faults of servers, proxies and networks, by name: the pinned bytes come, or an error.

A fault is what a server answers to the first requests. Its outcome is `HEALED` if the download
still succeeds, or else a part of the error's message.
"""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest
from fetching import FILE, MEMBERS, PIN, WHEEL, Slept, env
from loopback import Answer, Handler, Loopback, Request, partial
from wheels import LIBRARY

from pjrt_hub.errors import DigestMismatchError, DownloadError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.transport import Patience

NBYTES = len(WHEEL)
HALF = NBYTES // 2
LENGTH = {"Content-Length": str(NBYTES)}
HEALED = ""
#: The tallies of the tests that have begun; the last one takes the summary.
TALLIES: list[Callable[[str], None]] = []
NOW = 1_000_000_000.0
Step = Answer | Handler


@dataclass(frozen=True)
class Fault:
    """A fault, and what must come of it.

    Attributes:
        steps: the answers for the file, one after another, the last one for ever.
        outcome: `HEALED`, or a part of the error's message.
        limits: the fields of the patience that differ from the test's own.
        mirrors: the sources, below the server's address.
    """

    steps: tuple[Step, ...]
    outcome: str = HEALED
    limits: dict[str, object] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ("/files",)


def honest(request: Request) -> Answer:
    if "range" not in request.headers:
        return Answer(WHEEL, headers={"ETag": '"one"'})
    rest = WHEEL[request.start :]
    return Answer(rest, "206 Partial Content", partial(request.start, WHEEL))


def healed(*steps: Step) -> Fault:
    return Fault((*steps, honest))


def refused(outcome: str, *steps: Step, **limits: object) -> Fault:
    return Fault(steps, outcome, limits)


def behind(mirror: str) -> Fault:
    return Fault((honest,), mirrors=(mirror, "/files"))


def plain(body: bytes = WHEEL, status: str = "200 OK", *, bare: bool = False, **headers: str):
    return Answer(body, status, {k.replace("_", "-"): v for k, v in headers.items()}, bare=bare)


def cut(at: int) -> Answer:
    return Answer(WHEEL, headers={"ETag": '"one"'}, cut=at)


def early(at: int, **headers: str) -> Answer:
    return plain(WHEEL[:at], bare=True, ETag='"one"', **headers)


def chunked(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def ranged(headers: Callable[[int], dict[str, str]], body: Callable[[int], bytes]) -> Handler:
    """An answer with status 206 whose head and body depend on where the range begins."""

    def answer(request: Request) -> Answer:
        return Answer(body(request.start), "206 Partial Content", headers(request.start))

    return answer


def rest(start: int) -> bytes:
    return WHEEL[start:]


def says(start: int, end: int, total: int | str) -> dict[str, str]:
    return {"Content-Range": f"bytes {start}-{end}/{total}"}


def whole(start: int) -> dict[str, str]:
    """The header of an honest part that goes to the end of the file."""
    return says(start, NBYTES - 1, NBYTES)


def called_the_whole(request: Request) -> Answer:
    return Answer(rest(request.start), headers=partial(request.start, WHEEL))


def changed_meanwhile(request: Request) -> Answer:
    """The file has changed meanwhile: an honest server sends it whole, under its new tag."""
    matches = request.headers.get("if-range") == '"two"'
    return honest(request) if matches else Answer(WHEEL, headers={"ETag": '"two"'})


def slow_down(text: str) -> Answer:
    return plain(b"", "429 Slow Down", Retry_After=text)


def resumed(headers: Callable[[int], dict[str, str]], body: Callable[[int], bytes]) -> Fault:
    """The first answer ends half way, so the second one should go on from there."""
    return healed(early(HALF), ranged(headers, body))


def stalled(*, sent: int, outcome: str, **limits: object) -> Fault:
    """The server is silent for too long, after `sent` bytes or before the head."""
    answer = Answer(WHEEL[:sent], headers=LENGTH, stall_seconds=30)
    return refused(outcome, answer if sent else Answer(raw=b"", stall_seconds=30), **limits)


def to(location: str, status: str = "302 Found") -> Answer:
    return plain(b"", status, Location=location)


def flipped(at: int) -> bytes:
    return WHEEL[:at] + bytes([WHEEL[at] ^ 1]) + WHEEL[at + 1 :]


PAGE = b"<!DOCTYPE html><title>Sign in</title>"
TOO_LONG = f"it sends more than the pinned {NBYTES:,} bytes"
DIGEST = "is not the pinned file"
FELL_SILENT = "the server fell silent, 2 times"
ONCE = {"ETag": '"one"'}
ZIPPED, BOMB = gzip.compress(WHEEL, 1), zlib.compress(bytes(32 << 20))
MULTIPART = {"Content-Type": "multipart/byteranges; boundary=x"}
HURRIED = {"read_seconds": 0.3, "connect_seconds": 0.1, "tries": 2}
A_YEAR = "it asks to wait 31536000 s, and 60 s is the most"
OVERALL = "it took longer than the 0.5 s of PJRT_HUB_DOWNLOAD_SECONDS"
TWO_LENGTHS = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 20\r\n\r\n"
ENDLESS_HEAD = b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000
CHUNKED = {"Transfer_Encoding": "chunked"}

FAULTS = {
    # Faults of the connection.
    "reset before the body": healed(cut(0)),
    "reset after a byte": healed(cut(1)),
    "reset in the middle": healed(cut(HALF)),
    "reset before the last byte": healed(cut(NBYTES - 1)),
    "reset again and again": refused("5 times in a row", cut(1000)),
    "closed without an answer": healed(Answer(raw=b"")),
    "closed within the head": healed(Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Le")),
    "closed early, with a length": healed(Answer(WHEEL[:HALF], headers={**LENGTH, **ONCE})),
    "closed early, without a length": healed(early(HALF)),
    "closed always early": refused("closed the connection early, 5 times", early(HALF)),
    "silent before the head": stalled(sent=0, outcome=FELL_SILENT, read_seconds=0.2, tries=2),
    "silent within the body": stalled(sent=100, outcome=FELL_SILENT, read_seconds=0.2, tries=2),
    "a head that drips": refused("2 times in a row", Answer(WHEEL, drip_seconds=0.05), **HURRIED),
    "a body that drips": refused(
        "bytes came in 0 s", honest, floor_seconds=0, floor_nbytes=1 << 40
    ),
    "an overall time that is over": stalled(sent=100, outcome=OVERALL, overall_seconds=0.5),
    # Faults of the framing.
    "a length that is too small": refused("it offers 1000 bytes", plain(Content_Length="1000")),
    "a length that is too large": refused("it offers", plain(Content_Length=str(2 * NBYTES))),
    "a length of zero": refused("it offers 0 bytes", plain(b"")),
    "a negative length": refused("5 times", plain(Content_Length="-1")),
    "a length that is not a number": refused("5 times", plain(Content_Length="many")),
    "two lengths": refused("5 times", Answer(raw=TWO_LENGTHS + WHEEL)),
    "a length and chunks": healed(plain(chunked(WHEEL), Content_Length="10", **CHUNKED)),
    "chunks that are cut": healed(plain(chunked(WHEEL)[:HALF], bare=True, **ONCE, **CHUNKED)),
    "chunks without their end": healed(plain(chunked(WHEEL)[:-7], bare=True, **CHUNKED)),
    "a chunk size that is not a number": refused("5 times", plain(b"zz\r\n", bare=True, **CHUNKED)),
    "fewer bytes in chunks": healed(plain(chunked(WHEEL[:HALF]), bare=True, **CHUNKED)),
    "more bytes than the pin": refused(TOO_LONG, plain(WHEEL + b"!", bare=True)),
    "more bytes in chunks": refused(TOO_LONG, plain(chunked(WHEEL + b"!"), bare=True, **CHUNKED)),
    "a body without end": refused(TOO_LONG, plain(WHEEL * 4, bare=True)),
    "no http at all": refused("5 times", Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n")),
    "the body without a head": refused("5 times", Answer(raw=WHEEL)),
    "a head without end": refused("5 times", Answer(raw=ENDLESS_HEAD)),
    "a status of four digits": refused("5 times", plain(status="2000 OK")),
    # Faults of ranges.
    "a range that is ignored": healed(early(HALF), plain()),
    "a range at another place": resumed(
        lambda at: says(at - 7, NBYTES - 1, NBYTES), lambda at: rest(at - 7)
    ),
    "a range at another place, said to be right": resumed(whole, lambda at: WHEEL[: NBYTES - at]),
    "a range of another total": resumed(lambda at: says(at, NBYTES - 1, NBYTES + 1), rest),
    "a range of an unknown total": resumed(lambda at: says(at, NBYTES - 1, "*"), rest),
    "a range that goes beyond the end": resumed(
        lambda at: says(at, NBYTES, NBYTES), lambda at: rest(at) + b"!"
    ),
    "a range that runs backwards": resumed(lambda at: says(at, at - 1, NBYTES), lambda at: b""),
    "a part without its range": resumed(lambda at: {}, rest),
    "a part of another length than its range": resumed(
        lambda at: {**whole(at), "Content-Length": "5"}, rest
    ),
    "parts of several ranges": resumed(lambda at: MULTIPART, rest),
    "a part called the whole": healed(early(HALF), called_the_whole),
    "a part that nobody asked for": healed(Answer(WHEEL, "206 Partial Content", whole(0))),
    "416 to a range": healed(early(HALF), plain(b"", "416 Range Not Satisfiable")),
    "416 to no range": refused("416 to a request without", plain(b"", "416 Range Not Satisfiable")),
    "a tag that changes between parts": healed(early(HALF), changed_meanwhile),
    "bytes that change between parts, under one tag": healed(plain(bytes(HALF), bare=True, **ONCE)),
    # Unexpected statuses.
    "500": healed(plain(b"", "500 Internal Server Error")),
    "502 with a page": healed(plain(PAGE, "502 Bad Gateway")),
    "503 for ever": refused("503 Busy, 5 times in a row", plain(b"", "503 Busy")),
    "504": healed(plain(b"", "504 Gateway Timeout")),
    "408": healed(plain(b"", "408 Request Timeout")),
    "429, wait 7 seconds": healed(slow_down("7")),
    "429, wait till a date": healed(slow_down(formatdate(NOW + 30, usegmt=True))),
    "429, wait till a date that is over": healed(slow_down(formatdate(NOW - 30, usegmt=True))),
    "429, wait a year": healed(slow_down("31536000")),
    "429, wait less than nothing": healed(slow_down("-5")),
    "429, wait junk": healed(slow_down("soon")),
    "429, wait till the year 9999": healed(slow_down("Fri, 31 Dec 9999 23:59:59 GMT")),
    "429 and a year, for ever": refused(A_YEAR, slow_down("31536000")),
    "429 and junk, for ever": refused("its Retry-After 'soon' cannot be read", slow_down("soon")),
    "401": refused("401 Unauthorized: it wants a login", plain(b"", "401 Unauthorized")),
    "403": refused("403 Forbidden", plain(PAGE, "403 Forbidden")),
    "404": refused("404 Not Found", plain(PAGE, "404 Not Found")),
    "410": refused("410 Gone", plain(b"", "410 Gone")),
    "204": refused("204 No Content", Answer(b"", "204 No Content", bare=True)),
    "304": refused("304 Not Modified", Answer(b"", "304 Not Modified", bare=True)),
    # Wrong redirects.
    "a redirect to plain http": refused("plain http to h.invalid", to("http://h.invalid/x")),
    "a redirect to a file": refused("only https is asked", to("file:///etc/hostname")),
    "a redirect to ftp": refused("only https is asked", to("ftp://h.invalid/x")),
    "a redirect to itself": refused("more than 5 redirects", to(FILE)),
    "a redirect without a place": refused("302 Found", plain(b"", "302 Found")),
    "a redirect to nonsense": refused("cannot be read", to("http://[::1")),
    # Bytes that are not the pinned ones.
    "a page of a proxy": refused("perhaps of a proxy", plain(PAGE, Content_Type="text/html")),
    "a page without a length": refused("a page and no archive", plain(PAGE, bare=True)),
    "a page of the right size": refused("a page and no archive", plain(PAGE.ljust(NBYTES))),
    "another file": refused("it offers 1000 bytes", plain(b"x" * 1000)),
    "one flipped bit": refused(DIGEST, plain(flipped(HALF))),
    "a flipped last bit": refused(DIGEST, plain(flipped(NBYTES - 1))),
    "zeros": refused(DIGEST, plain(bytes(NBYTES))),
    "two halves in the wrong order": refused(DIGEST, plain(WHEEL[HALF:] + WHEEL[:HALF])),
    # Encodings that nobody asked for.
    "gzip": refused("encoding 'gzip'", plain(ZIPPED, Content_Encoding="gzip")),
    "gzip that is none": refused("encoding 'gzip'", plain(Content_Encoding="gzip")),
    "gzip that is cut": refused("encoding 'gzip'", plain(ZIPPED[:HALF], Content_Encoding="gzip")),
    "a bomb": refused("encoding 'deflate'", plain(BOMB, Content_Encoding="deflate")),
    "an unknown encoding": refused("encoding 'pied-piper'", plain(Content_Encoding="pied-piper")),
    # Faults of one of several sources.
    "a first mirror with other bytes": behind("/wrong"),
    "a first mirror without the file": behind("/none"),
    "a first mirror that stops half way": behind("/half"),
    "a first mirror with a broken index": behind("/index"),
    "a first mirror with another half": behind("/lies"),
    "a mirror without end in its index": behind("/endless"),
}


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, str]]:
    yield (found := {})
    numbers = Counter(found.values())
    spoken = ", ".join(f"{kind} {numbers[kind]}" for kind in ("healed", "error", "wrong bytes"))
    TALLIES[-1](f"http: {len(found)} scenarios: {spoken}")


@pytest.mark.parametrize("name", FAULTS)
def test_only_the_pinned_bytes_are_accepted(name, tmp_path, monkeypatch, outcomes, tally) -> None:
    TALLIES.append(tally)
    monkeypatch.setattr("pjrt_hub.finding.store.transfer.installers._pip_command", lambda env: None)
    fault = FAULTS[name]
    cache, slept = Cache(tmp_path), Slept()
    limits = {"read_seconds": 5.0, "sleep": slept, "now": lambda: NOW, **fault.limits}
    with Loopback() as server:
        server.script(FILE, *fault.steps)
        server.file(f"/wrong/{PIN.file_name}", flipped(HALF))
        server.script(f"/half/{PIN.file_name}", early(HALF))
        server.script(f"/lies/{PIN.file_name}", plain(bytes(HALF), bare=True, ETag='"one"'))
        server.script("/index/toy-plugin/", plain(json.dumps({"files": [1]}).encode()))
        server.script("/endless/toy-plugin/", plain(PAGE + bytes(17 << 20), bare=True))
        sources = env(server, PJRT_HUB_MIRRORS=",".join(map(server.url, fault.mirrors)))
        told = None
        try:
            obtain(PIN, cache, env=sources, patience=Patience(**limits))
        except (DownloadError, DigestMismatchError) as error:
            told = error
    entry = cache.lookup(PIN)
    right = entry is not None and entry.library_path.read_bytes() == MEMBERS[LIBRARY]
    wrong = [audit.verdict.reason for audit in cache.verify() if not audit.verdict]
    good = not wrong and right == (told is None)
    outcomes[name] = "wrong bytes" if not good else "healed" if right else "error"
    assert good, wrong
    if fault.outcome:
        assert told is not None
        assert fault.outcome in str(told)
        assert told.hint
    assert all(0 <= seconds <= 60 for seconds in slept)
    assert len(slept) <= 4 * len(fault.mirrors)
    assert not math.isnan(sum(slept))
