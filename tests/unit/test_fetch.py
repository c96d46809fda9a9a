"""Downloads against a server that misbehaves: right bytes or a typed error, never anything else."""

from __future__ import annotations

import hashlib
import io
import os
import ssl
import tarfile
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
import wheels
from fetching import (
    FILE,
    HONEST_416,
    MEMBERS,
    PIN,
    WHEEL,
    Slept,
    Steps,
    assert_empty,
    assert_whole,
    env,
    get,
)
from loopback import Answer, Loopback, Request, partial

from pjrt_hub.errors import DigestMismatchError, DownloadError, OfflineError, StoreError
from pjrt_hub.finding.store.cache.cache import Cache
from pjrt_hub.finding.store.catalog import Member
from pjrt_hub.finding.store.transfer.credentials import redact
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.transport import Patience, forbidden


def test_a_miss_is_fetched_and_published(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.file(FILE, WHEEL)
    steps = Steps()
    entry = get(server, cache, slept, progress=steps)
    assert entry.artifact == PIN
    assert_whole(cache)
    assert steps.starts == [(len(WHEEL), 0)]
    assert (steps.nbytes, steps.finished) == (len(WHEEL), 1)
    (request,) = server.asked(FILE)
    assert request.headers["accept-encoding"] == "identity"
    assert slept == []
    assert list((cache.root / "v1/partial").iterdir()) == []


@pytest.mark.parametrize("cut", [0, 1, len(WHEEL) // 2, len(WHEEL) - 1])
@pytest.mark.parametrize("bare", [False, True], ids=["length", "close-delimited"])
def test_a_dropped_connection_is_resumed(
    server: Loopback, cache: Cache, slept: Slept, cut: int, bare: bool
) -> None:
    server.file(FILE, WHEEL)
    honest = server.routes[FILE]
    first = Answer(WHEEL[:cut] if bare else WHEEL, headers={"ETag": '"one"'}, bare=bare, cut=cut)
    server.script(FILE, first, honest)
    get(server, cache, slept)
    assert_whole(cache)
    assert len(slept) == 1
    again = server.asked(FILE)[1]
    if "range" in again.headers:  # a reset may take what was sent along
        assert 0 < again.start <= cut
        assert again.headers["if-range"] == '"one"'
    assert server.sent <= len(WHEEL) * 1.05 + cut


def test_a_server_that_ignores_ranges_is_read_from_the_start(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    server.script(FILE, Answer(WHEEL, stall_seconds=0.1, cut=len(WHEEL) // 2), Answer(WHEEL))
    steps = Steps()
    get(server, cache, slept, progress=steps)
    assert_whole(cache)
    assert steps.starts[-1] == (len(WHEEL), 0)
    assert steps.nbytes == len(WHEEL)


def wrong_offset(request: Request) -> Answer:
    start = max(request.start - 7, 0)
    return Answer(WHEEL[start:], "206 Partial Content", partial(start, WHEEL))


def wrong_total(request: Request) -> Answer:
    headers = {"Content-Range": f"bytes {request.start}-{len(WHEEL) - 1}/{len(WHEEL) + 1}"}
    return Answer(WHEEL[request.start :], "206 Partial Content", headers)


def no_range(request: Request) -> Answer:
    return Answer(WHEEL[request.start :], "206 Partial Content")


def range_as_200(request: Request) -> Answer:
    return Answer(WHEEL[request.start :], headers=partial(request.start, WHEEL))


def other_body_same_range(request: Request) -> Answer:
    rest = bytes(len(WHEEL) - request.start)
    return Answer(rest, "206 Partial Content", partial(request.start, WHEEL))


@pytest.mark.parametrize(
    "second", [wrong_offset, wrong_total, no_range, range_as_200, other_body_same_range, HONEST_416]
)
def test_a_wrong_answer_to_a_range_starts_over(
    server: Loopback, cache: Cache, slept: Slept, second: object
) -> None:
    half = Answer(WHEEL[: len(WHEEL) // 2], bare=True)
    server.script(FILE, half, second, Answer(WHEEL))
    get(server, cache, slept)
    assert_whole(cache)
    third = server.asked(FILE)[2]
    assert "range" not in third.headers


LIES = {
    "another file of another size": Answer(b"x" * 1000),
    "a proxy's page": Answer(b"<html>log in</html>", headers={"Content-Type": "text/html"}),
    "a length that is too small": Answer(WHEEL, headers={"Content-Length": "1000"}),
    "a length that is too large": Answer(WHEEL, headers={"Content-Length": str(2 * len(WHEEL))}),
    "more than the pin": Answer(WHEEL + b"!", bare=True),
    "an encoding": Answer(WHEEL, headers={"Content-Encoding": "gzip"}),
    "404": Answer(b"", "404 Not Found"),
    "416 at once": HONEST_416,
}
TOLD = {
    "another file of another size": "it offers 1000 bytes",
    "a proxy's page": "perhaps of a proxy or a login",
    "a length that is too small": "it offers 1000 bytes",
    "a length that is too large": f"the pin says {len(WHEEL):,} bytes",
    "more than the pin": f"it sends more than the pinned {len(WHEEL):,} bytes",
    "an encoding": "the encoding 'gzip', which was not asked for",
    "404": "the server answered 404 Not Found",
    "416 at once": "416 to a request without a range",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_at_once(server: Loopback, cache: Cache, slept: Slept, lie: str) -> None:
    server.script(FILE, LIES[lie])
    with pytest.raises(DownloadError) as caught:
        get(server, cache, slept)
    assert TOLD[lie] in str(caught.value)
    assert f"no source gave {PIN.file_name} (Toy.Plugin 1.0" in str(caught.value)
    assert "PJRT_HUB_MIRRORS" in caught.value.hint
    assert caught.value.url == server.url(FILE)
    assert slept == []
    assert_empty(cache)
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_wrong_bytes_of_the_right_size_are_named_and_dropped(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    wrong = bytes([WHEEL[0] ^ 1]) + WHEEL[1:]
    server.file(FILE, wrong)
    with pytest.raises(DigestMismatchError) as caught:
        get(server, cache, slept)
    assert caught.value.expected == f"sha256:{PIN.sha256}"
    assert caught.value.actual == f"sha256:{hashlib.sha256(wrong).hexdigest()}"
    assert "Toy.Plugin 1.0" in str(caught.value)
    assert "nothing was kept" in str(caught.value)
    assert len(server.asked(FILE)) == 1
    assert_empty(cache)
    assert list((cache.root / "v1/partial").iterdir()) == []


def test_the_next_mirror_is_asked_after_wrong_bytes(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    server.file(FILE, bytes(len(WHEEL)))
    server.file("/second/" + PIN.file_name, WHEEL)
    both = f"{server.url('/files')}, {server.url('/second/')}"
    get(server, cache, slept, env=env(server, PJRT_HUB_MIRRORS=both))
    assert_whole(cache)


def test_five_tries_without_progress_are_the_end_and_keep_the_partial(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    server.file(FILE, WHEEL)
    honest = server.routes[FILE]
    server.script(FILE, Answer(WHEEL[:4000], bare=True), Answer(b"", "503 Busy"))
    with pytest.raises(DownloadError, match=f"5 times in a row, at 4,000 of {len(WHEEL):,}"):
        get(server, cache, slept)
    assert len(server.asked(FILE)) == 5
    assert len(slept) == 4
    assert slept == sorted(slept)
    server.routes[FILE] = honest
    server.requests.clear()
    steps = Steps()
    get(server, cache, slept, progress=steps)
    assert [request.start for request in server.asked(FILE)] == [4000]
    assert steps.starts == [(len(WHEEL), 4000)]
    assert_whole(cache)


def test_useful_progress_starts_the_count_again(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    step = len(WHEEL) // 9

    def piecewise(request: Request) -> Answer:
        body = WHEEL[request.start : request.start + step]
        if not request.start:
            return Answer(body, bare=True)
        return Answer(body, "206 Partial Content", partial(request.start, WHEEL), bare=True)

    server.routes[FILE] = piecewise
    limits = Patience(sleep=slept, useful_nbytes=step)
    get(server, cache, slept, patience=limits)
    assert_whole(cache)
    assert len(server.asked(FILE)) == -(-len(WHEEL) // step)


def test_an_endless_restart_ends(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.script(FILE, Answer(WHEEL[: len(WHEEL) // 2], bare=True))
    with pytest.raises(DownloadError, match="closed the connection early, 5 times"):
        get(server, cache, slept)
    assert len(server.asked(FILE)) <= 6


RETRY_AFTER = {
    "7": 7.0,
    "100000": 60.0,
    "-5": None,
    "soon": None,
    "": None,
    formatdate(1_000_000_030, usegmt=True): 30.0,
    formatdate(999_000_000, usegmt=True): 0.0,
}


@pytest.mark.parametrize("text", RETRY_AFTER)
@pytest.mark.parametrize("status", ["429 Slow Down", "503 Busy"])
def test_retry_after_is_honoured_up_to_a_minute(
    server: Loopback, cache: Cache, slept: Slept, text: str, status: str
) -> None:
    server.script(FILE, Answer(b"", status, {"Retry-After": text}), Answer(WHEEL))
    limits = Patience(sleep=slept, now=lambda: 1_000_000_000.0)
    get(server, cache, slept, patience=limits)
    (waited,) = slept
    if RETRY_AFTER[text] is None:
        assert 0.2 <= waited <= 0.3
    else:
        assert waited == RETRY_AFTER[text]


def test_silence_ends_at_the_read_timeout(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.script(
        FILE, Answer(WHEEL[:100], headers={"Content-Length": str(len(WHEEL))}, stall_seconds=30)
    )
    limits = Patience(sleep=slept, read_seconds=1, tries=2)
    with pytest.raises(DownloadError, match="the server fell silent, 2 times in a row, at 100 of"):
        get(server, cache, slept, patience=limits)


def test_a_drip_is_a_drop(server: Loopback, cache: Cache, slept: Slept) -> None:
    ticks = iter(range(0, 10_000, 10))
    server.script(FILE, Answer(WHEEL))
    limits = Patience(sleep=slept, clock=lambda: float(next(ticks)), floor_nbytes=1 << 40, tries=2)
    with pytest.raises(DownloadError, match=r"fewer than .* bytes came in 30 s, 2 times"):
        get(server, cache, slept, patience=limits)


REDIRECTS = {
    "http://example.invalid/x": "plain http to example.invalid is refused",
    "file:///etc/hostname": "only https is asked",
    "/files/": "",
}


@pytest.mark.parametrize("target", REDIRECTS)
def test_redirects_keep_to_the_rules(
    server: Loopback, cache: Cache, slept: Slept, target: str
) -> None:
    honest = "/real/" + PIN.file_name
    server.file(honest, WHEEL)
    location = honest if not REDIRECTS[target] else target
    server.script(FILE, Answer(b"", "302 Found", {"Location": location}))
    if not REDIRECTS[target]:
        get(server, cache, slept)
        assert_whole(cache)
        return
    with pytest.raises(DownloadError) as caught:
        get(server, cache, slept)
    assert REDIRECTS[target] in str(caught.value)
    assert_empty(cache)


def test_a_loop_of_redirects_ends(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.script(FILE, Answer(b"", "302 Found", {"Location": FILE}))
    with pytest.raises(DownloadError, match="more than 5 redirects"):
        get(server, cache, slept)
    assert len(server.asked(FILE)) == 6


def test_plain_http_elsewhere_and_secrets() -> None:
    assert forbidden("https://host/simple/") == ""
    assert forbidden("http://127.0.0.1:80/") == ""
    assert forbidden("http://[::1]/") == ""
    assert "give its https address" in forbidden("http://host.example/simple")
    assert "ftp://host/x" in forbidden("ftp://u:p@host/x")
    assert redact("https://me:token@h:8/a/b?sig=token#x") == "https://h:8/a/b?***"


def test_errors_tell_no_secrets(server: Loopback, cache: Cache, slept: Slept) -> None:
    secret = server.url("/files").replace("http://", "http://me:hunter2@")
    with pytest.raises(DownloadError) as caught:
        get(server, cache, slept, env=env(server, PJRT_HUB_MIRRORS=secret))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in caught.value.url
    assert "authorization" in server.asked(FILE)[0].headers


@pytest.mark.parametrize("variable", ["", "SSL_CERT_FILE", "PIP_CERT"])
def test_only_a_trusted_server_is_heard(
    certificate: Path, cache: Cache, slept: Slept, variable: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Loopback(context) as server:
        server.file(FILE, WHEEL)
        if variable:
            trusting = env(server, **{variable: str(certificate)})
            get(server, cache, slept, env=trusting)
            assert_whole(cache)
        else:
            with pytest.raises(DownloadError, match="certificate is not trusted") as caught:
                get(server, cache, slept)
            assert "SSL_CERT_FILE" in str(caught.value)
            assert server.requests == []
            assert slept == []


def test_unreadable_certificates_are_named(server: Loopback, cache: Cache, slept: Slept) -> None:
    with pytest.raises(StoreError, match=r"cannot read the certificates /no/such\.pem") as caught:
        get(server, cache, slept, env=env(server, PIP_CERT="/no/such.pem"))
    assert "PIP_CERT" in caught.value.hint


def test_a_machine_without_certificates_is_told_so(
    server: Loopback, cache: Cache, slept: Slept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(httpx, "create_ssl_context", missing)
    with pytest.raises(StoreError, match="cannot read the certificates of this machine") as caught:
        get(server, cache, slept)
    assert "SSL_CERT_FILE" in caught.value.hint


def chunked(body: bytes) -> bytes:
    return f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def test_chunked_bodies_are_read_and_their_truncation_seen(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    head = {"Transfer-Encoding": "chunked", "ETag": '"one"'}
    server.file(FILE, WHEEL)
    honest = server.routes[FILE]
    cut = Answer(chunked(WHEEL)[: len(WHEEL) // 3], headers=head, bare=True)
    server.script(FILE, cut, honest)
    get(server, cache, slept)
    assert_whole(cache)
    assert server.asked(FILE)[1].start > 0
    cache.clear()
    server.script(FILE, Answer(chunked(WHEEL), headers=head, bare=True))
    get(server, cache, slept)
    assert_whole(cache)


def test_a_complete_partial_of_wrong_bytes_is_not_blamed_on_the_server(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    left = cache.root / "v1/partial" / f"{PIN.sha256}.left.abcdefgh"
    left.mkdir(parents=True)
    (left / "archive").write_bytes(bytes(len(WHEEL)))
    server.file(FILE, WHEEL)
    get(server, cache, slept)
    assert_whole(cache)
    assert "range" not in server.asked(FILE)[0].headers


def test_a_partial_with_a_wrong_prefix_is_read_again_once(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    left = cache.root / "v1/partial" / f"{PIN.sha256}.left.abcdefgh"
    left.mkdir(parents=True)
    (left / "archive").write_bytes(bytes(1000))
    server.file(FILE, WHEEL)
    get(server, cache, slept)
    assert_whole(cache)
    assert [request.start for request in server.asked(FILE)] == [1000, 0]


def test_a_complete_partial_needs_no_network(cache: Cache, slept: Slept) -> None:
    left = cache.root / "v1/partial" / f"{PIN.sha256}.left.abcdefgh"
    left.mkdir(parents=True)
    (left / "archive").write_bytes(WHEEL)
    obtain(PIN, cache, env={}, patience=Patience(sleep=slept))
    assert_whole(cache)


def test_a_directory_is_a_mirror(cache: Cache, tmp_path: Path, slept: Slept) -> None:
    (tmp_path / PIN.file_name).write_bytes(WHEEL)
    variables = {"PJRT_HUB_MIRRORS": str(tmp_path)}
    obtain(PIN, cache, env=variables, patience=Patience(sleep=slept))
    assert_whole(cache)


def test_a_directory_with_other_bytes_is_refused(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / PIN.file_name
    path.write_bytes(bytes(len(WHEEL)))
    with pytest.raises(DigestMismatchError):
        obtain(PIN, cache, env={"PJRT_HUB_MIRRORS": path.parent.as_uri(), "PIP_NO_INDEX": "1"})
    assert_empty(cache)


def test_an_address_of_the_row_is_tried(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.file("/elsewhere.whl", WHEEL)
    row = PIN._replace(urls=(server.url("/elsewhere.whl"),))
    obtain(row, cache, env={}, patience=Patience(sleep=slept))
    assert len(server.asked("/elsewhere.whl")) == 1


def test_offline_asks_nobody(server: Loopback, cache: Cache, slept: Slept) -> None:
    server.file(FILE, WHEEL)
    with pytest.raises(OfflineError, match="the network is forbidden") as caught:
        get(server, cache, slept, offline=True)
    assert "pjrt-hub fetch toy" in caught.value.hint
    with pytest.raises(OfflineError, match="the network is forbidden"):
        get(server, cache, slept, env={**env(server), "PJRT_HUB_OFFLINE": "1"})
    assert server.requests == []
    assert not cache.root.exists()
    get(server, cache, slept)
    assert get(server, cache, slept, offline=True).root == cache.entry_root(PIN)


def test_a_page_of_the_right_size_is_told_by_the_digests(cache: Cache, tmp_path: Path) -> None:
    page = b"<html>Sign in</html>".ljust(len(WHEEL))
    (tmp_path / PIN.file_name).write_bytes(page)
    with pytest.raises(DigestMismatchError) as caught:
        obtain(PIN, cache, env={"PJRT_HUB_MIRRORS": str(tmp_path), "PIP_NO_INDEX": "1"})
    actual = hashlib.sha256(page).hexdigest()
    assert str(caught.value) == (
        f"Toy.Plugin 1.0, of the plugin 'toy', from {(tmp_path / PIN.file_name).as_uri()} is not "
        f"the pinned file: {len(WHEEL):,} bytes came with sha256 {actual}, the pin of "
        f"{PIN.file_name} says {len(WHEEL):,} bytes with sha256 {PIN.sha256}; nothing was kept\n\n"
        "hint: it is a page, perhaps of a proxy or a login: set PJRT_HUB_MIRRORS to a place that "
        "holds the original, and run `pjrt-hub fetch toy` again"
    )


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_deadline_that_is_none_is_told(cache: Cache, text: str) -> None:
    with pytest.raises(StoreError, match="PJRT_HUB_DOWNLOAD_SECONDS is") as caught:
        obtain(PIN, cache, env={"PJRT_HUB_DOWNLOAD_SECONDS": text})
    assert "unset it" in caught.value.hint


def test_the_deadline_of_the_environment_ends_a_download_and_keeps_the_partial(
    server: Loopback, cache: Cache, slept: Slept
) -> None:
    head = {"Content-Length": str(len(WHEEL)), "ETag": '"one"'}
    server.script(FILE, Answer(WHEEL[:5000], headers=head, stall_seconds=60))
    late = env(server, PJRT_HUB_DOWNLOAD_SECONDS="2.5")
    with pytest.raises(DownloadError, match=r"longer than the 2\.5 s of PJRT_HUB_DOWNLOAD_SECONDS"):
        obtain(PIN, cache, env=late)
    server.file(FILE, WHEEL)
    server.requests.clear()
    get(server, cache, slept)
    assert [request.start for request in server.asked(FILE)] == [5000]
    assert_whole(cache)


def test_back_off_has_jitter() -> None:
    slept = Slept()
    limits = Patience(sleep=slept)
    for _ in range(50):
        limits.wait(1, None)
    assert len(set(slept)) > 40
    assert 0.2 <= min(slept) < max(slept) <= 0.3


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "so"])
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_addresses_of_other_archives(
    server: Loopback, cache: Cache, tmp_path: Path, slept: Slept, kind: str, scheme: str
) -> None:
    library = MEMBERS[wheels.LIBRARY]
    members = {wheels.LIBRARY: library, wheels.SIBLING: MEMBERS[wheels.SIBLING]}
    if kind == "so":
        members = {"toy.so": library}
        body = library
    elif kind == "zip":
        body = wheels.build(members)
    else:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        body = out.getvalue()
    name = f"toy.{kind}"
    (tmp_path / name).write_bytes(body)
    server.file(f"/{name}", body)
    url = server.url(f"/{name}") if scheme == "http" else (tmp_path / name).as_uri()
    pinned = tuple(Member(p, len(b), hashlib.sha256(b).hexdigest()) for p, b in members.items())
    row = PIN._replace(
        file_name=name,
        size=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        members=pinned,
        library=pinned[0].path,
        urls=(url,),
    )
    entry = obtain(row, cache, env={}, patience=Patience(sleep=slept))
    assert entry.library_path.read_bytes() == library


def test_a_pipe_is_no_file(cache: Cache, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "toy.whl")
    row = PIN._replace(urls=((tmp_path / "toy.whl").as_uri(),))
    with pytest.raises(DownloadError, match="it is not a file"):
        obtain(row, cache, env={"PIP_NO_INDEX": "1", "PATH": ""})
