"""TOML tables: reading them with checks, and writing them.

Owns the one error text for malformed plugin data: file, key, what was found, what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pjrt_hub.base import digest
from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import ManifestError
from pjrt_hub.finding.contract import plain
from pjrt_hub.finding.contract.names import did_you_mean

_MAX_NBYTES = 1 << 20
_PLAIN_MAX_NBYTES = 1 << 16
_LONG_KEY = re.compile(
    r"""(?m)(?:^|[{,])[ \t]*+\[{0,2}+[ \t]*+"""
    r"""(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}"""
)
#: This file maps the text of each TOML file that the package ships to its content as JSON. The
#: build writes it (tools/parsed.py), because importing `tomllib` and reading the files would take a
#: tenth of a start.
PARSED = Path(__file__).with_name("parsed.json")

#: The lists of tables that are written as sections, `[[artifact]]`; others are written inline.
SECTIONS = ("packages", "artifact", "library", "preload")


def parse(raw: bytes) -> dict[str, Any]:
    """Parse TOML, or return the result that the build stored; raise ValueError for other text."""
    text = raw.decode("utf-8")
    if (known := _parsed_files().get(text)) is not None:
        found: dict[str, Any] = json.loads(known)
        return found
    # The parser's time for a line grows with the square of the number of a key's parts.
    if _LONG_KEY.search(text):
        raise ValueError("a key of more than 100 parts")
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError as exc:  # A deeply nested value causes this.
        raise ValueError(str(exc)) from exc


@cache
def _parsed_files() -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(PARSED.read_bytes())
    except (OSError, ValueError):
        # An unbuilt checkout has no such file; parsing just takes longer.
        return {}
    return found


def write(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Format a table as TOML: its values, then its tables; lists in `SECTIONS` become sections."""
    values = sections = ""
    for key, value in table.items():
        inner = (*path, key)
        if isinstance(value, dict):
            text = write(value, inner)
            head = f"\n[{'.'.join(inner)}]\n" if text and not text.startswith("\n") else ""
            sections += head + text
        elif key in SECTIONS and isinstance(value, list):
            head = f"\n[[{'.'.join(inner)}]]\n"
            sections += "".join(head + write(each, inner) for each in value)
        else:
            values += f"{key} = {_value(value)}\n"
    return values + sections


def _value(value: object, indent: str = "") -> str:
    """Format a string, a number, a list or an inline table."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{key} = {_value(each, indent)}' for key, each in value.items())} }}"
        )
    if isinstance(value, list) and value and isinstance(value[0], dict):
        inner = indent + "  "
        return "[\n" + "".join(f"{inner}{_value(each, inner)},\n" for each in value) + f"{indent}]"
    # JSON's strings and lists are also TOML, except for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class Table:
    """A table of a file; it remembers which keys were read, so that all others are errors.

    With `lenient`, they are passed over, as in files that other programs read, too.
    """

    def __init__(
        self, data: Mapping[str, Any], path: Path, place: str = "", lenient: bool = False
    ) -> None:
        self.data = data
        self.path = path
        self.lenient = lenient
        self._place = place
        self._read: set[str] = set()

    @classmethod
    def read(cls, path: Path, *, lenient: bool = False) -> Table:
        """Read a file of TOML, of at most 1 MiB; raise ManifestError for any other.

        With `lenient`, it is plain TOML, of at most 64 KiB.
        """
        try:
            raw = digest.content(path, _PLAIN_MAX_NBYTES if lenient else _MAX_NBYTES)
        except OSError as exc:
            raise ManifestError(f"{path}: cannot be read: {exc.strerror}") from None
        return cls.parse(raw, path, lenient=lenient)

    @classmethod
    def parse(cls, raw: bytes, path: Path, *, lenient: bool = False) -> Table:
        """Read the text of a file, which need not be there yet."""
        try:
            return cls(plain.parse(raw) if lenient else parse(raw), path, "", lenient)
        except ValueError as exc:
            raise ManifestError(f"{path}: {'' if lenient else 'not TOML: '}{exc}") from None

    def fail(self, key: str, expected: str) -> NoReturn:
        """Raise the error for one key."""
        found = f"found {plain.show(self.data[key])}" if key in self.data else "not there"
        where = f"{self.path}: {self._name(key)}"
        raise ManifestError(f"{where}: {found}, expected {expected}") from None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; `default` if the key is absent, an error if there is no default."""
        value = self._take(key, str, "a string", default)
        return str(value)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer."""
        value = self._take(key, int, "an integer", default)
        return int(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of strings, empty if the key is absent."""
        value = self._take(key, list, "an array of strings", [])
        if not all(isinstance(item, str) for item in value):
            self.fail(key, "an array of strings")
        return tuple(value)

    def version(self, key: str) -> ApiVersion | None:
        """Return a PJRT API version, None if the key is absent."""
        if key not in self.data:
            return None
        text = self.text(key)
        try:
            return ApiVersion.parse(text)
        except ValueError:
            self.fail(key, "a PJRT API version such as '0.81'")

    def any(self, key: str) -> Any:
        """Return a value of any type, None if the key is absent."""
        self._read.add(key)
        return self.data.get(key)

    def table(self, key: str) -> Table:
        """Return a table, empty if the key is absent."""
        data = self._take(key, dict, "a table", {})
        return Table(data, self.path, self._name(key), self.lenient)

    def tables(self, key: str) -> Iterator[Table]:
        """Yield an array of tables, empty if the key is absent."""
        value = self._take(key, list, f"an array of tables ([[{self._name(key)}]])", [])
        for number, item in enumerate(value):
            if not isinstance(item, dict):
                self.fail(key, f"an array of tables ([[{self._name(key)}]])")
            yield Table(item, self.path, f"{self._name(key)}[{number}]", self.lenient)

    def finish(self) -> None:
        """Raise ManifestError for a key that was not read, so that typos do not pass."""
        for key in () if self.lenient else sorted(self.data.keys() - self._read):
            meant = did_you_mean(key, self._read)
            raise ManifestError(
                f"{self.path}: {self._name(key)}: unknown key, "
                f"expected one of {', '.join(sorted(self._read))}",
                hint=meant,
            )

    def _take(self, key: str, kind: type, expected: str, default: Any) -> Any:
        self._read.add(key)
        value = self.data.get(key, default)
        # bool is a subclass of int, but `priority = true` is a mistake.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fail(key, expected)
        return value

    def _name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key
