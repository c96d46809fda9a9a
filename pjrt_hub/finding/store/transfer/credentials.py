"""Users and passwords for package indexes, from .netrc and keyring, which are asked as pip asks.

Owns which password goes to which host. Must not show one: no `repr` here contains a secret.
"""

from __future__ import annotations

import os
import re
import subprocess
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pjrt_hub.base import safe_path

#: This is long enough for a person to unlock the keyring.
_KEYRING_SECONDS = 60
#: A secret of fewer characters may occur by chance in any word.
_SHORT = 6
Login = tuple[str, str]


class Credentials:
    """The passwords that the user's installer would use.

    NETRC or HOME lead to the .netrc, PATH to the command `keyring`, which may store a login by an
    index's address instead of its host. `keyring` is pip's `keyring-provider`: "auto", "import",
    "subprocess" or "disabled".
    """

    def __init__(self, env: Mapping[str, str], keyring: str, indexes: tuple[str, ...] = ()) -> None:
        self._env = env
        self._keyring = keyring
        self._indexes = tuple(index for index in indexes if "://" in index)
        self._netrc = _netrc(env)
        self._found: dict[str, Login | None] = {}

    def find(self, url: str, user: str = "") -> Login | None:
        """Return the known login for an address, and for a user if one is given; ask no keyring."""
        host = urlsplit(url).hostname or ""
        login = self._found.get(_origin(url)) or self._netrc.get(host)
        return login if login and user in ("", login[0]) else None

    def ask(self, url: str, user: str = "") -> Login | None:
        """Return the keyring's login for an address; ask once for each host."""
        origin = _origin(url)
        if origin not in self._found:
            services = [bare for bare in map(_bare, self._indexes) if _origin(bare) == origin]
            services.append(urlsplit(url).netloc)
            answers = (self._from_keyring(service, user) for service in services)
            self._found[origin] = next(filter(None, answers), None)
        return self._found[origin]

    def _from_keyring(self, service: str, user: str) -> Login | None:
        for provider, ask in (("import", _ask_keyring_here), ("subprocess", self._command)):
            if self._keyring in ("auto", provider) and (login := ask(service, user)):
                return login
        return None

    def _command(self, service: str, user: str) -> Login | None:
        command = safe_path.which("keyring", self._env)
        if command is None:
            return None
        get = ["get", service, user] if user else ["--mode=creds", "get", service, ""]
        env = {**safe_path.environment(self._env), "PYTHONIOENCODING": "utf-8"}
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            told = safe_path.ask([command, *get], env, _KEYRING_SECONDS)
            login, password, *_ = [user] * bool(user) + told.splitlines()
            return (login, password) if login and password else None
        return None


class Secrets:
    """The secrets sent to servers and proxies, in all forms in which answers may repeat them."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add_address(self, url: str) -> None:
        """Remember the login and the query of an address."""
        try:
            _, user, password = split(url)
            query = urlsplit(url).query
        except ValueError:  # The request reports a malformed address.
            return
        if user or password:
            self.add_login(user, password or "")
        self._texts.update(value for part in query.split("&") for value in part.split("=", 1)[1:])
        self._texts.update(unquote(value) for value in tuple(self._texts))

    def add_login(self, user: str, password: str) -> None:
        """Remember a user and a password, and their Authorization header."""
        header = b64encode(f"{user}:{password}".encode()).decode()
        texts = (user, password, header, header.rstrip("="))
        self._texts.update(form for text in texts for form in (text, quote(text, safe="")))

    def hide(self, text: str) -> str:
        """Replace each secret in the text by `***`; short ones only as whole words."""
        for secret in sorted(self._texts - {""}, key=len, reverse=True):
            edge = r"\b" if len(secret) < _SHORT else ""
            text = re.sub(rf"{edge}{re.escape(secret)}{edge}", "***", text)
        return text


def split(url: str) -> tuple[str, str, str | None]:
    """Split an address into the part without its login, the user, and the password or None."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, "", None
    user, colon, password = login.partition(":")
    return (
        urlunsplit(parts._replace(netloc=host)),
        unquote(user),
        unquote(password) if colon else None,
    )


def redact(url: str) -> str:
    """Return an address for errors: no user, no password, no query, no fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "***" if parts.query else "", ""))


def _bare(url: str) -> str:
    try:
        return split(url)[0]
    except ValueError:  # The request reports a malformed address.
        return ""


def _ask_keyring_here(service: str, user: str) -> Login | None:
    try:
        import keyring  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    # A keyring's back end may raise anything; that counts as no answer.
    with suppress(Exception):
        get: Callable[..., object] = keyring.get_credential
        found = get(service, user or None)
        login = getattr(found, "username", None), getattr(found, "password", None)
        if isinstance(login[0], str) and isinstance(login[1], str):
            return login[0], login[1]
    return None


def _netrc(env: Mapping[str, str]) -> dict[str, Login]:
    """Read users and passwords by host, from the files that pip uses too.

    The `default` entry is left out: a password goes to the host that it is for, and to no other.
    """
    import netrc

    home = env.get("HOME")
    path = env.get("NETRC") or (os.path.join(home, ".netrc") if home else os.devnull)
    try:
        hosts = netrc.netrc(path).hosts
    except (OSError, ValueError, netrc.NetrcParseError):  # The file is absent, or pip fails, too.
        return {}
    return {
        host: (login, password)
        for host, (login, _, password) in hosts.items()
        if host != "default" and login and password
    }


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"
