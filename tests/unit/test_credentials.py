"""Users and passwords: where they come from, which hosts get them, and that no text shows them."""

import base64
import logging
import os
import ssl
import stat
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from fetching import BARE, FILE, PIN, WHEEL, Slept, assert_whole
from loopback import Answer, Loopback, Request, Socks

from pjrt_hub.errors import PjrtHubError, StoreError
from pjrt_hub.finding.store.cache.cache import ROW_NAME, Cache
from pjrt_hub.finding.store.transfer import installers
from pjrt_hub.finding.store.transfer.credentials import Credentials, Secrets, split
from pjrt_hub.finding.store.transfer.fetch import obtain
from pjrt_hub.finding.store.transfer.index import releases
from pjrt_hub.finding.store.transfer.installers import Sources
from pjrt_hub.finding.store.transfer.transport import Patience, Refused, Transport
from pjrt_hub.finding.store.transfer.unpinned import receive

TOKEN = "hunter2-and-more"
LOGIN = f"me:{TOKEN}@"
#: The value of the Authorization header for the login.
BASIC = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()


def reply(code: int) -> bytes:
    """A SOCKS proxy's reply: code 0 if connected, else the reason of RFC 1928."""
    return bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0])


def with_login(url: str, login: str = f"me:{TOKEN}") -> str:
    return url.replace("://", f"://{login}@")


@pytest.fixture
def guarded(server) -> str:
    """The address of a mirror that requires the password for the wheel."""

    def answer(request: Request) -> Answer:
        if request.headers.get("authorization") == BASIC:
            return Answer(WHEEL)
        return Answer(b"", "401 Unauthorized", {"WWW-Authenticate": "Basic"})

    server.routes[FILE] = answer
    return server.url("/files")


def fetch(cache: Cache, **env: str) -> None:
    limits = Patience(sleep=Slept(), tries=2, read_seconds=10, connect_seconds=10)
    obtain(PIN, cache, env={**BARE, "PIP_NO_INDEX": "1", **env}, patience=limits)


def keyring_command(folder: Path, text: str) -> str:
    """A value of PATH that begins with a folder with a program `keyring`."""
    script = folder / "keyring"
    script.write_text(f"#!{sys.executable}\nimport sys\n{text}\n")
    script.chmod(stat.S_IRWXU)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def keyring(monkeypatch) -> list[tuple[str, str | None]]:
    """A stub of the package `keyring` that knows one host; the list records its queries."""
    asked: list[tuple[str, str | None]] = []

    def get_credential(service: str, user: str | None) -> object:
        asked.append((service, user))
        known = service.startswith("127.0.0.1")
        return types.SimpleNamespace(username="me", password=TOKEN) if known else None

    module = types.ModuleType("keyring")
    module.get_credential = get_credential  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return asked


def test_a_login_is_taken_out_of_an_address():
    assert split("https://h/a") == ("https://h/a", "", None)
    assert split("https://me@h:8/a?b") == ("https://h:8/a?b", "me", None)
    assert split("https://me:p%40ss@h/a") == ("https://h/a", "me", "p@ss")


def test_the_package_keyring_is_asked_after_a_401(server, guarded, cache, keyring):
    fetch(cache, PJRT_HUB_MIRRORS=guarded)
    assert_whole(cache)
    assert keyring == [(urlsplit(guarded).netloc, None)]
    assert ["authorization" in request.headers for request in server.asked(FILE)] == [False, True]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PIP_KEYRING_PROVIDER", "disabled"),
        ("PIP_KEYRING_PROVIDER", "subprocess"),
        ("PIP_NO_INPUT", "1"),
    ],
)
def test_the_package_keyring_is_left_alone(guarded, cache, keyring, variable, value):
    with pytest.raises(StoreError, match="it wants a login"):
        fetch(cache, PJRT_HUB_MIRRORS=guarded, **{variable: value})
    assert keyring == []


@pytest.mark.parametrize("variable", ["PIP_KEYRING_PROVIDER", "UV_KEYRING_PROVIDER"])
def test_the_command_keyring_is_asked(guarded, cache, tmp_path, variable):
    text = f"if sys.argv[1:3] == ['get', {urlsplit(guarded).netloc!r}]: print('{TOKEN}')"
    given = {"PATH": keyring_command(tmp_path, f"{text}\nelse: sys.exit(1)")}
    fetch(cache, PJRT_HUB_MIRRORS=with_login(guarded, "me"), **given, **{variable: "subprocess"})
    assert_whole(cache)


def test_the_command_keyring_tells_the_user_too(tmp_path):
    asked = ["--mode=creds", "get", "https://h/simple", ""]
    text = f"if sys.argv[1:] == {asked}: print('me\\nsecret')\nelse: sys.exit(1)"
    env = {"PATH": keyring_command(tmp_path, text)}
    known = Credentials(env, "subprocess", ("https://x@h/simple", "/local"))
    assert known.find("https://h/simple/toy/") is None
    assert known.ask("https://h/simple/toy/") == ("me", "secret")
    assert known.find("https://h/files/x") == ("me", "secret")
    assert known.find("https://h:8/files/x") is None
    assert known.ask("https://other/") is None


@pytest.mark.parametrize("text", ["sys.exit(1)", "print()", "print('one line')", "print('\\xff')"])
def test_a_keyring_of_no_use_is_passed_over(tmp_path, text):
    known = Credentials({"PATH": keyring_command(tmp_path, text)}, "subprocess")
    assert known.ask("https://h/") is None


def test_a_password_does_not_follow_a_redirect_to_another_host(server, cache):
    with Loopback() as other:
        other.file("/elsewhere.whl", WHEEL)
        server.script(FILE, Answer(b"", "302 Found", {"Location": other.url("/elsewhere.whl")}))
        fetch(cache, PJRT_HUB_MIRRORS=with_login(server.url("/files")))
        assert server.asked(FILE)[0].headers["authorization"] == BASIC
        assert "authorization" not in other.requests[0].headers
    assert_whole(cache)


def test_the_logins_of_uvs_indexes():
    env = {
        **BARE,
        "UV_INDEX": "my-own=https://h.example/simple https://other.example/simple",
        "UV_INDEX_MY_OWN_USERNAME": "me",
        "UV_INDEX_MY_OWN_PASSWORD": "p@ss",
        "UV_DEFAULT_INDEX": "https://main.example/simple",
        "PIP_NO_INDEX": "",
    }
    found = installers.read_sources(env, directory=Path("/nonexistent"))
    mine, other, *_ = found.indexes
    assert (mine, other) == ("https://me:p%40ss@h.example/simple", "https://other.example/simple")
    assert "p%40ss" not in repr(found)


@pytest.mark.parametrize(
    ("variable", "host"),
    [("PIP_TRUSTED_HOST", "h.invalid:80"), ("UV_INSECURE_HOST", "http://h.invalid")],
)
def test_a_trusted_host_is_not_trusted(cache, variable, host):
    with pytest.raises(StoreError, match="trusted-host is not followed here"):
        fetch(cache, PJRT_HUB_MIRRORS="http://h.invalid/files", **{variable: host})


@pytest.mark.parametrize("variable", ["PIP_CLIENT_CERT", "SSL_CLIENT_CERT"])
def test_a_client_certificate_that_cannot_be_read(cache, variable):
    with pytest.raises(StoreError, match=r"client certificate /no/such\.pem") as caught:
        fetch(cache, PJRT_HUB_MIRRORS="https://127.0.0.1:1/", **{variable: "/no/such.pem"})
    assert "PIP_CLIENT_CERT" in caught.value.hint


def test_a_client_certificate_is_shown(cache, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    with Loopback(context) as server:
        server.file(FILE, WHEEL)
        asked = {"PJRT_HUB_MIRRORS": server.url("/files"), "SSL_CERT_FILE": str(certificate)}
        with pytest.raises(StoreError):
            fetch(cache, **asked)
        fetch(cache, PIP_CLIENT_CERT=str(certificate), **asked)
    assert_whole(cache)


def to(location: str) -> Answer:
    return Answer(b"", "302 Found", {"Location": location})


#: Name -> the answer of a server with that address, which makes a fetch fail.
FAILURES: dict[str, Callable[[str], Answer]] = {
    "401": lambda url: Answer(b"", "401 Unauthorized"),
    "404": lambda url: Answer(b"", "404 Not Found"),
    "503": lambda url: Answer(b"", "503 Busy", {"Retry-After": "soon"}),
    "dropped": lambda url: Answer(WHEEL[:1000], bare=True),
    "silent": lambda url: Answer(raw=b"", stall_seconds=3),
    "junk": lambda url: Answer(raw=b"SSH-2.0\r\n"),
    "other bytes": lambda url: Answer(bytes(len(WHEEL))),
    "a page": lambda url: Answer(b"<html>", bare=True),
    "another size": lambda url: Answer(b"x"),
    "encoded": lambda url: Answer(WHEEL, headers={"Content-Encoding": "br"}),
    "to http": lambda url: to(f"http://me:{TOKEN}@h.invalid/x?sig={TOKEN}"),
    "to nonsense": lambda url: to(f"http://me:x@h:{TOKEN}/"),
    "a loop": lambda url: to(with_login(f"{url}{FILE}?sig={TOKEN}")),
    "right bytes": lambda url: Answer(WHEEL),
}
#: The secret in the header's encoding, without the padding, which a message could cut off.
ENCODED = BASIC.removeprefix("Basic ").rstrip("=")


def echoed(request: Request) -> str:
    """The secrets that a hostile server sees: the login encoded, decoded, and quoted."""
    header = request.headers.get("authorization", "").removeprefix("Basic ")
    login = base64.b64decode(header).decode() or TOKEN
    return f"{header}/{login}/{quote(login, safe='')}"


def page(text: str, kind: str = "text/html") -> Answer:
    return Answer(text.encode(), headers={"Content-Type": kind})


NAME = PIN.file_name
ECHOES: dict[str, Callable[[str], Answer]] = {
    "reason": lambda said: Answer(b"", f"404 no {said} here"),
    "retry": lambda said: Answer(b"", "503 Busy", {"Retry-After": said}),
    "encoding": lambda said: Answer(WHEEL, headers={"Content-Encoding": said}),
    "type": lambda said: Answer(b"x", headers={"Content-Type": said}),
    "range": lambda said: Answer(WHEEL, "206 Partial Content", {"Content-Range": said}),
    "status line": lambda said: Answer(raw=f"{said}\r\n".encode()),
    "header line": lambda said: Answer(raw=f"HTTP/1.1 200 OK\r\n {said}\r\n\r\n".encode()),
    "redirect": lambda said: to(f"http://h.invalid/{said}"),
    "redirect to a file": lambda said: to(f"file:///{said}"),
    "page": lambda said: page(f'{{"meta": {{"api-version": "{said}"}}}}', "x/json"),
    "yanked": lambda said: page(f'<a href="{NAME}" data-yanked="{said}">it</a>'),
    "file": lambda said: page(f'<a href="/{said}/{NAME}">it</a>'),
}


HOWS = ["user and password", "netrc", "keyring", "query"]
CASES = [(answer, how) for answer in FAILURES for how in HOWS]
CASES += [(answer, how) for answer in ECHOES for how in ("user and password", "query")]


@pytest.mark.parametrize(("answer", "how"), CASES)
@pytest.mark.slow
@pytest.mark.night
def test_no_failure_and_no_spiteful_server_shows_a_secret(
    server, cache, tmp_path, keyring, caplog, capfd, monkeypatch, answer, how
):
    monkeypatch.setattr("pjrt_hub.finding.store.transfer.installers._pip_command", lambda env: None)
    caplog.set_level(logging.DEBUG)
    query = f"?sig={TOKEN}" if how == "query" else ""

    def reply(request: Request) -> Answer:
        if answer in FAILURES:
            return FAILURES[answer](server.url())
        return ECHOES[answer](echoed(request))

    for path in (FILE, "/files/", "/files/toy-plugin/"):
        server.routes[path] = server.routes[path + query] = reply
    mirror = server.url(f"/files{query}")
    if how == "user and password":
        mirror = with_login(mirror)
    env = {**BARE, "PIP_NO_INDEX": "1", "PJRT_HUB_MIRRORS": mirror}
    if how == "netrc":
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {TOKEN}\n")
        env["NETRC"] = str(tmp_path / "netrc")
    pin = PIN._replace(urls=(server.url(f"{FILE}{query}"),) if query else ())
    limits = Patience(sleep=Slept(), tries=2, read_seconds=0.2, connect_seconds=0.2)
    cache.root.mkdir(exist_ok=True)
    told = []
    for attempt in (
        lambda: obtain(pin, cache, env=env, patience=limits),
        lambda: releases("toy-plugin", env, patience=limits),
        lambda: receive(mirror, cache.root, env=env, patience=limits),
    ):
        try:
            attempt()
            told.append("")
        except PjrtHubError as error:
            told.append("".join(traceback.format_exception(error)))
            while error is not None:  # this also covers the error's causes
                told[-1] += f"{error} {error!r} {error.__dict__}"
                error = error.__cause__  # type: ignore[assignment]
    assert bool(told[0]) == (answer != "right bytes")
    records = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    shown = "".join((*told, records, caplog.text, *capfd.readouterr()))
    # The row of a cache entry may hold addresses, because they came from a registry.
    for path in cache.root.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 16 and path.name != ROW_NAME:
            shown += path.read_text("utf-8", "replace")
    assert TOKEN not in shown
    assert ENCODED not in shown


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("the name of me", "the name of ***"),
        ("pw passwords", "*** passwords"),
        ("bWU6cHc=", "***"),
        ("nothing", "nothing"),
    ],
)
def test_a_short_secret_is_hidden_as_a_word(text, hidden):
    secrets = Secrets()
    secrets.add_login("me", "pw")
    assert secrets.hide(text) == hidden


def refused(proxy: str, url: str, said: str) -> tuple[Refused, Slept]:
    """Request a page through a proxy, which must fail with these words and reveal no secret."""
    slept = Slept()
    limits = Patience(sleep=slept, tries=3)
    with (
        Transport(BARE, sources=Sources(proxy=proxy), patience=limits) as transport,
        pytest.raises(Refused, match=said) as caught,
    ):
        transport.page(url, accept="*/*")
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    return caught.value, slept


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_login_is_not_asked_again(server, scheme):
    """The proxy answers 407 to a plain request and to the CONNECT of a TLS request."""
    refusal = Answer(b"", f"407 Login of {TOKEN} needed", {"Proxy-Authenticate": "Basic"})
    url = f"{scheme}://127.0.0.1:1/files/{NAME}"
    server.routes[url] = server.routes["127.0.0.1:1"] = lambda request: refusal
    said = r"the proxy wants a login that it knows: .* HTTPS_PROXY"
    error, slept = refused(with_login(server.url()), url, said)
    assert (error.status, len(server.requests), slept) == (407, 1, [])


@pytest.mark.parametrize(("status", "times"), [("403 Forbidden", 1), ("502 Bad Gateway", 3)])
def test_a_proxy_that_does_not_connect_is_named(server, status, times):
    server.routes["127.0.0.1:1"] = lambda request: Answer(b"", status)
    refused(server.url(), "https://127.0.0.1:1/", f"the proxy did not connect: {status}")
    assert len(server.requests) == times


@pytest.mark.parametrize(
    ("answers", "login", "said", "times"),
    [
        ((b"\x05\xff",), "", "the proxy wants a login that it knows: .* ALL_PROXY", 1),
        ((b"\x05\x02",), "", "the proxy wants a login that it knows", 1),
        ((b"\x05\x02", b"\x01\x01"), LOGIN, "the proxy wants a login that it knows", 1),
        ((b"\x05\xff",), LOGIN, "the proxy takes no user and password", 1),
        ((b"\x05\x02", b"\x01\x00", reply(2)), LOGIN, "did not connect: .* by ruleset", 1),
        ((b"\x05\x00", reply(8)), "", "did not connect: .* type not supported", 1),
        ((b"\x05\x00", reply(5)), "", "did not connect: .* Connection refused", 3),
        ((b"\x05\x00", reply(9)), "", "did not answer as SOCKS does", 3),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "", "did not answer as SOCKS does", 3),
        ((b"",), "", "did not answer as SOCKS does", 3),
    ],
)
def test_a_socks_proxy_is_asked_again_where_that_may_help(answers, login, said, times):
    with Socks(*answers) as proxy:
        refused(proxy.url(login), "https://127.0.0.1:1/", said)
    assert proxy.connections == times


def test_nothing_that_holds_a_secret_shows_it(tmp_path):
    (tmp_path / "netrc").write_text(f"machine h login me password {TOKEN}\n")
    simple, links, proxy = (with_login(f"https://h/{each}") for each in ("simple", "links", ""))
    sources = Sources(indexes=(simple,), find_links=(links,), proxy=proxy)
    env = {"NETRC": str(tmp_path / "netrc")}
    with Transport(env, sources=sources, patience=Patience()) as transport:
        known = Credentials(env, "disabled", sources.indexes)
        assert known.find("https://h/simple") == ("me", TOKEN)
        for thing in (sources, transport, known):
            assert TOKEN not in repr(thing)
