"""One HTTP request, under the store's rules: TLS, redirects, statuses, secrets (layer 2).

Owns what may be asked and what an answer means; must not know pins, ranges or the cache.
A source that cannot give the file raises `Refused`; one that may, later, raises `Dropped`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from pjrt_hub.errors import StoreError

if TYPE_CHECKING:
    import ssl

    import httpx

#: Statuses that another attempt may cure.
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 5
_LARGEST_PAGE = 32 << 20


class Refused(Exception):
    """This source will not give the file; trying it again would not help."""


class Dropped(Exception):
    """This attempt failed, and another one may not.

    Attributes:
        wait_seconds: what the server asked for (Retry-After), or None.
    """

    def __init__(self, message: str, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a slow or failing source; times are in seconds.

    Attributes:
        tries: attempts in a row that bring less than `useful_nbytes`, before a source is given up.
        useful_nbytes: what an attempt must bring to start the count again.
        connect_seconds: for a connection.
        read_seconds: without a single byte.
        floor_nbytes: what must come in each `floor_seconds`.
        floor_seconds: the window of that floor.
        longest_wait_seconds: cap of a wait between two attempts, whatever the server asks for.
        lock_seconds: for another process that fetches the same file.
        sleep: waits that many seconds.
        clock: a monotonic time.
        now: the time since the epoch, which a Retry-After date is compared with.
    """

    tries: int = 5
    useful_nbytes: int = 1 << 20
    connect_seconds: float = 10.0
    read_seconds: float = 20.0
    floor_nbytes: int = 300_000
    floor_seconds: float = 30.0
    longest_wait_seconds: float = 60.0
    lock_seconds: float = 1800.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time

    def wait(self, failures: int, asked_seconds: float | None) -> None:
        """Sleeps before the attempt that follows the given number of failures in a row."""
        import random

        back_off = 0.25 * 2 ** (failures - 1) * random.uniform(0.8, 1.2)
        seconds = back_off if asked_seconds is None else asked_seconds
        self.sleep(min(max(seconds, 0.0), self.longest_wait_seconds))


@dataclass(frozen=True, slots=True)
class Page:
    """A page of an index: where it came from in the end, its bytes and its type."""

    url: str
    content: bytes
    content_type: str


class Transport:
    """An HTTP client; close it, or use it in a `with` block.

    Proxies are httpx's (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY of the process).

    Args:
        env: SSL_CERT_FILE and SSL_CERT_DIR name the certificates to trust, NETRC or HOME the
            .netrc of passwords.
        certificates: a file that goes before those, such as the one that pip is configured with.
        proxy: goes before httpx's, such as the one that pip is configured with.
        patience: the limits.

    Raises:
        StoreError: the certificates or the proxy cannot be used.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        certificates: str | None,
        proxy: str | None = None,
        patience: Patience,
    ) -> None:
        import httpx

        self.patience = patience
        self._passwords = _netrc(env)
        try:
            self._client = httpx.Client(
                verify=_trust(env, certificates),
                proxy=proxy or None,
                timeout=httpx.Timeout(patience.read_seconds, connect=patience.connect_seconds),
                follow_redirects=False,
                headers={"Accept-Encoding": "identity", "User-Agent": "pjrt-hub"},
            )
        except (ImportError, ValueError, httpx.InvalidURL) as exc:
            # httpx's words may hold a part of the address, and that a password.
            socks = isinstance(exc, ImportError)
            raise StoreError(
                "the proxy cannot be used: "
                + ("SOCKS needs the package socksio" if socks else "its address is malformed"),
                hint="run `pip install socksio`, or unset ALL_PROXY"
                if socks
                else "correct HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY or pip's `proxy`",
            ) from exc

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()

    @contextmanager
    def stream(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """Sends a GET and gives the answer, of status 200, 206 or 416, with its body unread.

        Raises:
            Refused: the address is not allowed, or the answer is final.
            Dropped: the connection failed, here or while the block reads, or the server is busy.
        """
        import httpx

        try:
            request = self._client.build_request("GET", url, headers=dict(headers or {}))
        except (httpx.InvalidURL, ValueError) as exc:
            raise Refused(f"not a usable address: {exc}") from exc
        try:
            response = self._follow(request)
            try:
                self._check(response)
                yield response
            finally:
                response.close()
        except httpx.DecodingError as exc:
            raise Refused(f"the compressed body is malformed: {exc}") from exc
        except httpx.TransportError as exc:
            if _is_certificate_failure(exc):
                raise Refused(
                    f"the server's certificate is not trusted ({exc}); "
                    "SSL_CERT_FILE or PIP_CERT can name your own authority"
                ) from exc
            raise Dropped(_spoken(exc)) from exc

    def page(self, url: str, *, accept: str) -> Page:
        """Reads a page of an index, with the same patience as a download.

        Args:
            url: its address.
            accept: the media types that are understood, as the Accept header lists them.

        Raises:
            Refused: it cannot be had.
        """
        failures = 0
        while True:
            try:
                with self.stream(url, {"Accept": accept}) as response:
                    content = bytearray()
                    # Some servers compress pages unasked.
                    for chunk in response.iter_bytes():
                        content += chunk
                        if len(content) > _LARGEST_PAGE:
                            raise Refused(f"the page is larger than {_LARGEST_PAGE:,} bytes")
                    kind = response.headers.get("content-type", "text/html")
                    return Page(str(response.url), bytes(content), kind)
            except Dropped as drop:
                failures += 1
                if failures >= self.patience.tries:
                    raise Refused(f"{drop} ({failures} times)") from drop
                self.patience.wait(failures, drop.wait_seconds)

    def _follow(self, request: httpx.Request) -> httpx.Response:
        import httpx

        for _ in range(_MOST_REDIRECTS + 1):
            if reason := forbidden(str(request.url)):
                raise Refused(reason)
            password = None if request.url.userinfo else self._passwords.get(request.url.host)
            auth = password or httpx.USE_CLIENT_DEFAULT
            response = self._client.send(request, stream=True, auth=auth)
            if response.status_code not in _REDIRECTS or response.next_request is None:
                return response
            response.close()
            # httpx has dropped the credentials where the next host is another one.
            request = response.next_request
        raise Refused(f"more than {_MOST_REDIRECTS} redirects")

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (200, 206, 416):
            return
        spoken = f"the server answered {status} {response.reason_phrase}".rstrip()
        if status in _TRANSIENT:
            raise Dropped(spoken, self._retry_after(response.headers.get("retry-after", "")))
        raise Refused(spoken)

    def _retry_after(self, text: str) -> float | None:
        """Reads the header's two forms, seconds or a date; junk is None."""
        from email.utils import parsedate_to_datetime

        if text.strip().isdecimal():
            return float(text)
        with suppress(ValueError, TypeError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - self.patience.now())
        return None


def refuse_encoding(response: httpx.Response) -> None:
    """Refuses a compressed body: we asked for none, and it hides how large it is.

    Raises:
        Refused: it is compressed.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise Refused(f"the server sent the encoding {encoding!r}, which was not asked for")


def forbidden(url: str) -> str:
    """Says why an address must not be asked, or gives an empty string."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return ""
    if parts.scheme == "http" and parts.hostname:
        if _is_loopback(parts.hostname):
            return ""
        return f"plain http to {parts.hostname} is refused: give its https address"
    return f"only https is asked, not {redacted(url)}"


def redacted(url: str) -> str:
    """An address as an error may show it: no user, no password, no query, no fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _trust(env: Mapping[str, str], certificates: str | None) -> ssl.SSLContext:
    import ssl

    import httpx

    named, folder = certificates or env.get("SSL_CERT_FILE"), env.get("SSL_CERT_DIR")
    try:
        if named or folder:
            return ssl.create_default_context(cafile=named or None, capath=folder or None)
        return httpx.create_ssl_context(trust_env=False)
    except OSError as exc:
        raise StoreError(
            f"cannot read the certificates {named or folder}: {exc.strerror or exc}",
            hint="correct PIP_CERT, SSL_CERT_FILE or SSL_CERT_DIR, or unset it",
        ) from exc


def _netrc(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """User and password by host, where pip looks for them too.

    The `default` entry is left out: a password goes to the host that it is for, and to no other.
    """
    import netrc

    path = env.get("NETRC") or os.path.join(env.get("HOME", ""), ".netrc")
    try:
        hosts = netrc.netrc(path).hosts
    except (OSError, ValueError, netrc.NetrcParseError):  # absent, or of no use to pip either
        return {}
    return {
        host: (login, password)
        for host, (login, _, password) in hosts.items()
        if host != "default" and login and password
    }


def _is_certificate_failure(exc: BaseException | None) -> bool:
    import ssl

    while exc is not None:
        if isinstance(exc, ssl.SSLCertVerificationError):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


def _spoken(exc: httpx.TransportError) -> str:
    import httpx

    if isinstance(exc, httpx.ConnectTimeout):
        return "the connection timed out"
    if isinstance(exc, httpx.TimeoutException):
        return "the server fell silent"
    if isinstance(exc, httpx.ConnectError):
        return f"cannot connect: {exc}"
    return f"the connection was dropped: {exc}"
