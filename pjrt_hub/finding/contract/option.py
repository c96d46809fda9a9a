"""Options of a plugin: names, types, defaults; and its default compile flags.

Owns the check before the call: a wrong type aborts the process inside some plugins
(std::bad_variant_access through the C ABI), so it must never reach one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.finding.contract.names import did_you_mean
from pjrt_hub.finding.contract.table import Table

OptionValue = str | int | float | bool | tuple[int, ...]
FlagValue = str | bool | int | float
#: The type of an option about which nothing is known: a value is sent as its Python type.
UNKNOWN = "unknown"
OPTION_TYPES = ("string", "int64", "int64_list", "float", "bool", UNKNOWN)
LIMITS = ("minimum", "maximum")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


class Option(NamedTuple):
    """One option that a plugin takes."""

    name: str  # The option's name as the plugin spells it.
    type: str  # One of `OPTION_TYPES`.
    default: OptionValue | None = None  # The value if the user sets none; None sends nothing.
    doc: str = ""
    since: ApiVersion | None = None  # The first PJRT API version of this plugin known to take it.
    minimum: int | None = None  # The least integer that the plugin survives.
    maximum: int | None = None  # The greatest integer that the plugin survives.
    variables: tuple[str, ...] = ()  # Environment variables; the first one that is set counts.

    @classmethod
    def read(cls, name: str, options: Table) -> Option:
        """Read the option `name` of a table of options."""
        table = options.table(name)
        kind = table.text("type")
        if kind not in OPTION_TYPES:
            table.fail("type", f"one of {', '.join(OPTION_TYPES)}")
        limits = {key: table.integer(key) for key in LIMITS if key in table.data}
        doc, since = table.text("doc", ""), table.version("since")
        variables = table.texts("variables")
        option = cls(name, kind, None, doc, since, **limits, variables=variables)
        default = table.any("default")
        table.finish()
        if default is None:
            return option
        try:
            return option._replace(default=option.convert(default))
        except (TypeError, ValueError):
            table.fail("default", f"a value of type {kind}" + ", within its limits" * bool(limits))

    def as_table(self) -> dict[str, object]:
        """Return the table that `read` reads."""
        told = {**self._asdict(), "since": str(self.since or ""), "variables": [*self.variables]}
        del told["name"]
        if isinstance(self.default, tuple):
            told["default"] = list(self.default)
        return {
            key: value
            for key, value in told.items()
            if value is not None and (key == "default" or value not in ("", []))
        }

    def convert(self, value: object) -> OptionValue:
        """Convert `value` to this option's type; if that is unknown, keep its Python type.

        Nothing is parsed and nothing is rounded. Another type raises TypeError; an integer that
        does not fit into 64 bits, or is beyond a limit, ValueError.
        """
        if self.type == UNKNOWN:
            return _infer(self.name, value)
        if self.type == "string" and isinstance(value, str):
            return value
        if self.type == "bool" and isinstance(value, bool):
            return value
        if self.type == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if self.type == "int64":
            return self._int64(value)
        is_other = isinstance(value, str | bytes | Mapping)
        if self.type == "int64_list" and isinstance(value, Iterable) and not is_other:
            return tuple(self._int64(item) for item in value)
        raise self._mismatch(value)

    def parse(self, text: str) -> OptionValue:
        """Parse the text of a setting: "4", "true", "0,1".

        A text that is no value of this type raises TypeError; other errors are those of `convert`.
        """
        if self.type == "string":
            return text
        if self.type == UNKNOWN:
            return parse(text)
        if self.type == "bool":
            if text.lower() not in _TRUTHS:
                raise self._mismatch(text)
            return _TRUTHS[text.lower()]
        try:
            if self.type == "float":
                return self.convert(float(text))
            numbers = [int(item) for item in text.split(",")]
        except ValueError:
            raise self._mismatch(text) from None
        if self.type == "int64_list":
            return self.convert(numbers)
        if len(numbers) != 1:
            raise self._mismatch(text)
        return self.convert(numbers[0])

    def from_environment(self, env: Mapping[str, str]) -> OptionValue | None:
        """Return the value that a variable sets, or None; an empty variable sets nothing.

        A text that is no value of this type raises ValueError.
        """
        for name in self.variables:
            if text := env.get(name):
                try:
                    return self.parse(text)
                except (TypeError, ValueError) as exc:
                    raise ValueError(f"the variable {name} is {text!r}: {exc}") from None
        return None

    def _int64(self, value: Any) -> int:
        if isinstance(value, bool):
            raise self._mismatch(value)
        try:
            number = operator.index(value)
        except TypeError:
            raise self._mismatch(value) from None
        if not -(1 << 63) <= number < 1 << 63:
            raise ValueError(f"option {self.name!r}: {number} does not fit into 64 bits")
        if self.minimum is not None and number < self.minimum:
            raise ValueError(
                f"option {self.name!r} is {number}; it must be at least {self.minimum}"
            )
        if self.maximum is not None and number > self.maximum:
            raise ValueError(f"option {self.name!r} is {number}; it must be at most {self.maximum}")
        return number

    def _mismatch(self, value: object) -> TypeError:
        return TypeError(
            f"option {self.name!r} is of type {self.type}, found {value!r} "
            f"of type {type(value).__name__}"
        )


def read_all(options: Table) -> tuple[Option, ...]:
    """Read a table of options, sorted by name."""
    return tuple(Option.read(name, options) for name in sorted(options.data))


def check(
    options: Iterable[Option],
    given: Mapping[str, object],
    *,
    plugin: str,
    what: str,
    api: ApiVersion | None = None,
) -> dict[str, OptionValue]:
    """Return the options' defaults, overridden by `given`, which is checked.

    Defaults of options that are newer than the plugin's version `api` are left out. A given option
    that is newer, or that the plugin does not have, raises ValueError; a value of another type, or
    a name that is not a str, TypeError.
    """
    known = {option.name: option for option in options}
    result: dict[str, OptionValue] = {}
    for option in known.values():
        fits = option.since is None or api is None or option.since <= api
        if option.default is not None and fits:
            result[option.name] = option.default
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"a {what} is named {name!r}, a {type(name).__name__}: names are text")
        if name not in known:
            raise ValueError(_unknown(plugin, what, name, known))
        since = known[name].since
        if since is not None and api is not None and since > api:
            raise ValueError(f"option {name!r} is known since PJRT API {since}, {plugin} has {api}")
        result[name] = known[name].convert(value)
    return result


def parse(text: str) -> str | int | float | bool:
    """Parse a text of unknown type: "4", "0.5", "true", "abc".

    An integer that fits into 64 bits becomes an int; other numbers become floats.
    """
    if _INTEGER.fullmatch(text) and len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def infer_all(given: Mapping[str, object]) -> dict[str, OptionValue]:
    """Return the options for a plugin without a manifest, with their Python types."""
    return {name: _infer(name, value) for name, value in given.items()}


def _infer(name: str, value: object) -> OptionValue:
    if isinstance(value, str | bool | float):
        return value
    kind = "int64_list" if isinstance(value, list | tuple) else "int64"
    return Option(name, kind).convert(value)


def _unknown(plugin: str, what: str, name: str, known: Mapping[str, Option]) -> str:
    meant = did_you_mean(name, known)
    return f"{plugin} has no {what} {name!r}; it has {', '.join(sorted(known)) or 'none'}" + (
        f" ({meant})" if meant else ""
    )


class CompileFlag(NamedTuple):
    """A compile flag that applies unless the user sets it."""

    name: str  # The flag's name as XLA spells it, without dashes.
    value: FlagValue  # The plugin parses a str as the flag's own type.
    doc: str = ""  # Why the flag is set.
    since: ApiVersion | None = None  # The first PJRT API version of this plugin that takes it.
    until: ApiVersion | None = None  # The last version that needs it.
    unless: tuple[str, ...] = ()  # Other flags; if the user sets one, this flag is left out.
    unless_used: tuple[str, ...] = ()  # A program with one of these operations does not get it.

    @classmethod
    def read(cls, name: str, flags: Table) -> CompileFlag:
        """Read the flag `name` of a table of flags."""
        if not name or not name.replace("_", "").isalnum():
            flags.fail(name, "a flag's name without dashes, such as 'xla_cpu_enable_fast_math'")
        table = flags.table(name)
        value = table.any("value")
        if not isinstance(value, FlagValue):
            table.fail("value", "a string, a boolean or a number")
        flag = cls(
            name,
            value,
            doc=table.text("doc", ""),
            since=table.version("since"),
            until=table.version("until"),
            unless=table.texts("unless"),
            unless_used=table.texts("unless_used"),
        )
        table.finish()
        return flag

    def fits(self, given: Container[str], api: ApiVersion, code: bytes) -> bool:
        """Check whether the flag fits a user's flags, a plugin's version and a program's code.

        The code is searched for operations: text, bytecode and HLO protos all spell their names.
        """
        is_early = self.since is not None and api < self.since
        is_late = self.until is not None and api > self.until
        if is_early or is_late or any(name in given for name in (self.name, *self.unless)):
            return False
        return not any(name.encode() in code for name in self.unless_used)


def read_compile_flags(flags: Table) -> tuple[CompileFlag, ...]:
    """Read a table of flags, sorted by name."""
    return tuple(CompileFlag.read(name, flags) for name in sorted(flags.data))
