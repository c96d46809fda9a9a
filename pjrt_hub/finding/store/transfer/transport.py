"""One HTTP request, under the store's rules: TLS, redirects, statuses, secrets.

Owns the allowed requests and the meaning of answers; must not know pins, ranges or the cache.
A source that cannot give the file raises `Refused`; one that may give it later, `Dropped`.
"""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from pjrt_hub.base import log
from pjrt_hub.errors import OfflineError, StoreError
from pjrt_hub.finding.contract.variables import is_on
from pjrt_hub.finding.store.transfer import certificates
from pjrt_hub.finding.store.transfer.credentials import Credentials, Secrets, redact, split
from pjrt_hub.finding.store.transfer.installers import Sources

if TYPE_CHECKING:
    import logging

    import httpx

#: The statuses after which another attempt may succeed.
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 5
_LARGEST_PAGE = 16 << 20
_PROXIES = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY or pip's `proxy`"
_PROXY_WANTS_LOGIN = (
    f"the proxy wants a login that it knows: write it into {_PROXIES}, as in "
    "http://user:password@proxy:3128"
)
#: The ends of httpcore's messages when a SOCKS proxy would refuse the next attempt, too.
_SOCKS_IS_FINAL = ("not allowed by ruleset.", "not supported.")
DEADLINE_VARIABLE = "PJRT_HUB_DOWNLOAD_SECONDS"
#: This is held while OpenSSL reads files, so that forks wait. A child shares the position in an
#: open file, and its exit would move that position.
_reading = threading.RLock()


class Refused(Exception):
    """This source does not have the file; a retry would not help."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status  # The status of the server's answer, if there was one.


class Late(Refused):
    """The overall time is over, for this source and for every other one."""


class Dropped(Exception):
    """This attempt failed; a retry may succeed."""

    def __init__(self, message: str, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds  # The wait that the server asked for (Retry-After).


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a slow or failing source; times are in seconds."""

    tries: int = 5  # Attempts in a row below `useful_nbytes`, before a source is given up.
    useful_nbytes: int = 1 << 20  # The bytes with which an attempt restarts the count.
    connect_seconds: float = 10.0  # The limit for making a connection.
    read_seconds: float = 20.0  # The limit for a time without a byte.
    floor_nbytes: int = 300_000  # The bytes that must come in each `floor_seconds`.
    floor_seconds: float = 30.0
    longest_wait_seconds: float = 60.0  # The limit between attempts, whatever the server asks.
    lock_seconds: float = 1800.0  # The wait for another process that fetches the file.
    overall_seconds: float = math.inf  # The limit for all sources and attempts.
    deadline: float = math.inf  # The end of that time, by `clock`; `start` sets it.
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time  # A date in Retry-After is compared with this.

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Patience:
        """Return the defaults, with `PJRT_HUB_DOWNLOAD_SECONDS`.

        A variable that is not a number of seconds raises StoreError.
        """
        text = env.get(DEADLINE_VARIABLE, "")
        if not text:
            return cls()
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < math.inf:
            raise StoreError(
                f"{DEADLINE_VARIABLE} is {text!r}, not a number of seconds",
                hint="set it to the longest time that one download may take, or unset it",
            )
        return cls(overall_seconds=seconds)

    def start(self) -> Patience:
        """Return the same limits, with the overall time running from now on."""
        return replace(self, deadline=self.clock() + self.overall_seconds)

    def remaining(self) -> float:
        """Return the rest of the overall time, in seconds; raise Late if there is none."""
        seconds = self.deadline - self.clock()
        if seconds <= 0:
            raise Late(f"it took longer than the {self.overall_seconds:g} s of {DEADLINE_VARIABLE}")
        return seconds

    def wait(self, failures: int, asked_seconds: float | None) -> None:
        """Sleep before the attempt that follows the given number of failures in a row."""
        import random

        back_off = 0.25 * 2 ** (failures - 1) * random.uniform(0.8, 1.2)
        seconds = back_off if asked_seconds is None else asked_seconds
        self.sleep(min(max(seconds, 0.0), self.longest_wait_seconds, self.remaining()))


class Pace:
    """A check of the speed at which one answer's body comes."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since, self._came = patience.clock(), 0

    def came(self, nbytes: int) -> None:
        """Count received bytes; raise Dropped if they come too slowly, Late if the time is over."""
        limits, now = self._patience, self._patience.clock()
        self._came += nbytes
        limits.remaining()
        if now - self._since >= limits.floor_seconds:
            if self._came < limits.floor_nbytes:
                raise Dropped(
                    f"fewer than {limits.floor_nbytes:,} bytes came in {limits.floor_seconds:.0f} s"
                )
            self._since, self._came = now, 0


@dataclass(frozen=True, slots=True)
class Page:
    """A page of an index: its address after redirects, its bytes and its type."""

    url: str
    content: bytes
    content_type: str


class Transport:
    """An HTTP client; close it, or use it in a `with` block.

    Proxies are httpx's (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY of the process). SSL_CERT_FILE
    and SSL_CERT_DIR name the certificates to trust, NETRC or HOME the .netrc of passwords; the
    configuration of the user's installer comes first. `PJRT_HUB_OFFLINE` forbids all requests.
    Certificates or a proxy that cannot be used raise StoreError.
    """

    def __init__(
        self, env: Mapping[str, str], *, sources: Sources | None = None, patience: Patience
    ) -> None:
        import httpx

        sources = sources or Sources()
        self.patience = patience
        self._is_offline = is_on(env, "PJRT_HUB_OFFLINE")
        self._credentials = Credentials(env, sources.keyring, sources.indexes)
        self._trusted_hosts = sources.trusted_hosts
        self._secrets = Secrets()
        for proxy in (sources.proxy or "", *getproxies().values()):
            self._secrets.add_address(proxy)
        _hush()
        with _reading:
            context = certificates.trust(env, sources)
        try:
            self._client = httpx.Client(
                verify=context,
                proxy=sources.proxy or None,
                # Each request has a connection of its own, which `_Bell` can end.
                limits=httpx.Limits(max_keepalive_connections=0),
                follow_redirects=False,
                headers={"Accept-Encoding": "identity", "User-Agent": "pjrt-hub"},
            )
        except (ImportError, ValueError, httpx.InvalidURL) as exc:
            # The message of httpx may hold a part of the address, and so a password.
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
        """Send a GET and return the answer, of status 200, 206 or 416, with its body unread.

        Raises:
            OfflineError: `PJRT_HUB_OFFLINE` is set.
            Refused: the address is not allowed, or the answer is final.
            Dropped: the connection failed, here or while the block reads, or the server is busy.
        """
        import httpx

        if self._is_offline:
            raise OfflineError(
                f"{redact(url)} is needed, and PJRT_HUB_OFFLINE forbids the network",
                hint="unset PJRT_HUB_OFFLINE, or set PJRT_HUB_MIRRORS to a folder that holds the "
                "file",
            )
        try:
            with self._private():
                response = self._follow(url, dict(headers or {}))
                try:
                    self._check(response)
                    yield response
                finally:
                    response.close()
        except (Refused, Dropped) as exc:
            exc.args = (self.hide(str(exc)),)  # A server may repeat a secret that it was sent.
            raise
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):
            raise Refused("not a usable address") from None
        except _failures() as exc:
            self.patience.remaining()
            # The cause is left out: it may quote the server, and a traceback would show that.
            raise self._failure(exc, url) from None

    def hide(self, text: str) -> str:
        """Remove from a text the logins and queries that were sent."""
        return self._secrets.hide(text)

    def redact(self, url: str) -> str:
        """Return an address for errors, even if a server built it from a login."""
        return self.hide(redact(url))

    def page(self, url: str, *, accept: str) -> Page:
        """Read a page of an index, with the same patience as a download.

        `accept` lists the media types that are understood. A page that cannot be had raises
        Refused.
        """
        failures = 0
        while True:
            try:
                with self.stream(url, {"Accept": accept}) as response:
                    kind = response.headers.get("content-type", "text/html")
                    return Page(str(response.url), self._content(response), kind)
            except Dropped as drop:
                failures += 1
                if failures >= self.patience.tries:
                    raise Refused(f"{drop} ({failures} times)") from drop
                self.patience.wait(failures, drop.wait_seconds)

    def _content(self, response: httpx.Response) -> bytes:
        """Return a page's bytes; some servers compress pages unasked."""
        encoding = _encoding(response)
        unpack = zlib.decompressobj(31) if encoding in ("gzip", "x-gzip") else None
        if encoding and unpack is None:
            refuse_encoding(response)
        content, pace = bytearray(), Pace(self.patience)
        for chunk in response.iter_raw():
            pace.came(len(chunk))
            room = _LARGEST_PAGE + 1 - len(content)
            try:
                content += unpack.decompress(chunk, room) if unpack else chunk
            except zlib.error as exc:
                raise Refused(f"the compressed body is malformed: {exc}") from exc
            if len(content) > _LARGEST_PAGE:
                raise Refused(f"the page is larger than {_LARGEST_PAGE:,} bytes")
        if unpack and not unpack.eof:
            raise Dropped("the compressed page ends early")
        return bytes(content)

    def _follow(self, url: str, headers: dict[str, str]) -> httpx.Response:
        for _ in range(_MOST_REDIRECTS + 1):
            if reason := forbidden(url):
                if urlsplit(url).hostname in self._trusted_hosts:
                    reason += "; trusted-host is not followed here"
                raise Refused(reason)
            response = self._send(url, headers)
            following = response.next_request
            if response.status_code not in _REDIRECTS or following is None:
                return response
            response.close()
            log.step("store", "%s leads to %s", self.redact(url), self.redact(str(following.url)))
            # A login stays with its host; the next host's login is looked up anew.
            url = str(following.url)
        raise Refused(f"more than {_MOST_REDIRECTS} redirects")

    def _send(self, url: str, headers: dict[str, str]) -> httpx.Response:
        """Send one request; ask the keyring if the server wants an unknown login."""
        self._secrets.add_address(url)
        bare, user, password = split(url)
        login = (user, password) if password is not None else self._credentials.find(bare, user)
        response = self._ask(bare, headers, login)
        if response.status_code != 401 or login or not (login := self._credentials.ask(bare, user)):
            return response
        response.close()
        return self._ask(bare, headers, login)

    def _ask(
        self, url: str, headers: dict[str, str], login: tuple[str, str] | None
    ) -> httpx.Response:
        import httpx

        if login:
            self._secrets.add_login(*login)
        limits, left = self.patience, self.patience.remaining()
        bell = _Bell(min(limits.connect_seconds + limits.read_seconds, left))
        request = self._client.build_request(
            "GET",
            url,
            headers=headers,
            timeout=httpx.Timeout(
                min(limits.read_seconds, left), connect=min(limits.connect_seconds, left)
            ),
            extensions={"trace": bell.see},
        )
        with bell:
            return self._client.send(request, stream=True, auth=login)

    @contextmanager
    def _private(self) -> Iterator[None]:
        """Suppress the logs of httpx and httpcore, whose addresses and headers hold secrets."""
        token = _ours.set(True)
        try:
            yield
        finally:
            _ours.reset(token)

    def _failure(self, exc: Exception, url: str) -> Refused | Dropped:
        """Turn the failure of an unanswered request into an error."""
        import httpx

        if reason := self._tls_failure(exc, url):
            return Refused(reason)
        said = self.hide(str(exc))
        if "location header" in said:  # httpx parses the header itself, and quotes it.
            return Refused("it redirects to an address that cannot be read")
        if isinstance(exc, httpx.ProxyError):
            status = int(found.group()) if (found := re.match(r"\d{3}\b", said)) else None
            if status == 407 or said.startswith(("Invalid username", "Requested NO AUTH")):
                return Refused(_PROXY_WANTS_LOGIN, status)
            if said.startswith("Requested USERNAME"):
                return Refused(f"the proxy takes no user and password, which {_PROXIES} gives it")
            is_final = status not in (None, *_TRANSIENT) or said.endswith(_SOCKS_IS_FINAL)
            return (Refused if is_final else Dropped)(f"the proxy did not connect: {said}")
        if not isinstance(exc, httpx.TransportError):
            return Dropped(f"the proxy did not answer as SOCKS does: {said}")
        return Dropped(self.hide(_describe(exc)))

    def _tls_failure(self, exc: BaseException, url: str) -> str:
        """Return why TLS will not work with this server, or an empty string."""
        import ssl

        import httpx

        if not isinstance(exc, httpx.ConnectError):
            return ""
        host = urlsplit(url).hostname or ""
        cause: BaseException | None = exc
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return (
                    f"the server's certificate is not trusted ({cause.verify_message}); "
                    "SSL_CERT_FILE or PIP_CERT can name your own authority"
                    + ("; trusted-host is not followed here" * (host in self._trusted_hosts))
                )
            if isinstance(cause, ssl.SSLError) and not isinstance(
                cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
            ):
                return f"the server does not speak TLS as it should ({cause.reason})"
            cause = cause.__cause__ or cause.__context__
        return ""

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (200, 206, 416):
            return
        spoken = f"the server answered {status} {response.reason_phrase}".rstrip()
        if status in _TRANSIENT:
            asked = response.headers.get("retry-after", "").strip()
            seconds = self._retry_after(asked)
            if asked and seconds is None:
                spoken += f" (its Retry-After {asked[:40]!r} cannot be read)"
            elif seconds is not None and seconds > self.patience.longest_wait_seconds:
                spoken += (
                    f" (it asks to wait {seconds:.0f} s, "
                    f"and {self.patience.longest_wait_seconds:.0f} s is the most)"
                )
            raise Dropped(spoken, seconds)
        if status == 407:
            raise Refused(_PROXY_WANTS_LOGIN, status)
        if status in (401, 403):
            spoken += {
                401: ": it wants a login, from the index's address, .netrc or keyring",
                403: ": it does not let this login, or nobody, have the file",
            }[status]
        raise Refused(spoken, status)

    def _retry_after(self, text: str) -> float | None:
        """Read the header's two forms, seconds or a date; return None for junk."""
        from email.utils import parsedate_to_datetime

        if text.isascii() and text.isdecimal():
            return float(text[:9])
        with suppress(ValueError, TypeError, OverflowError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - self.patience.now())
        return None


def refuse_encoding(response: httpx.Response) -> None:
    """Refuse a compressed body: we asked for none, and it hides its real size."""
    if encoding := _encoding(response):
        raise Refused(f"the server sent the encoding {encoding!r}, which was not asked for")


def _encoding(response: httpx.Response) -> str:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return "" if encoding == "identity" else str(encoding)


def forbidden(url: str) -> str:
    """Return why an address must not be asked, or an empty string."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return ""
    if parts.scheme == "http" and parts.hostname:
        if _is_loopback(parts.hostname):
            return ""
        return f"plain http to {parts.hostname} is refused: give its https address"
    return f"only https is asked, not {redact(url)}"


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Bell:
    """A timer that ends a connection whose answer does not begin in time, even if bytes trickle."""

    def __init__(self, seconds: float) -> None:
        self._timer = None if seconds == math.inf else threading.Timer(seconds, self._shut_down)
        self._socket: socket.socket | None = None

    def __enter__(self) -> None:
        if self._timer:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, kind: object, *exc: object) -> None:
        if self._timer:
            self._timer.cancel()
        if kind and self._socket is not None:  # httpcore leaves it open after a SOCKS failure.
            self._socket.close()

    def see(self, event: str, info: Mapping[str, Any]) -> None:
        """Follow httpcore's trace, and remember a connection that was made."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket") or self._socket

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                # SSLSocket's own method would drop TLS while another thread reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


_ours: ContextVar[bool] = ContextVar("ours", default=False)


@cache
def _hush() -> None:
    import logging

    import httpx  # This creates its loggers.  # noqa: F401

    def keep(record: logging.LogRecord) -> bool:
        return not _ours.get()

    names = ("connection", "http11", "proxy", "socks")
    for name in ("httpx", *(f"httpcore.{part}" for part in names)):
        logging.getLogger(name).addFilter(keep)


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions of unanswered requests; httpx passes on those of `socksio`."""
    import httpx

    socksio = sys.modules.get("socksio")
    return (httpx.TransportError, *((socksio.SOCKSError,) if socksio else ()))


def _describe(exc: httpx.TransportError) -> str:
    import httpx

    if isinstance(exc, httpx.ConnectTimeout):
        return "the connection timed out"
    if isinstance(exc, httpx.TimeoutException):
        return "the server fell silent"
    if isinstance(exc, httpx.ConnectError):
        return f"cannot connect: {exc}"
    return f"the connection was dropped: {exc}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_reading.acquire, after_in_parent=_reading.release, after_in_child=_reading.release
    )
