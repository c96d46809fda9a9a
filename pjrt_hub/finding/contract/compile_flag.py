"""Compile flags of a plugin: its default XLA flags.

Owns `[compile_flags.NAME]` of a manifest; must not compile, nor know what a user asked for.
"""

from __future__ import annotations

from collections.abc import Container

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.frozen import frozen
from pjrt_hub.finding.contract.table import Table

FlagValue = str | bool | int | float


@frozen
class CompileFlag:
    """A flag for compilations in which the user does not set it.

    Attributes:
        name: as XLA spells it, without dashes.
        value: a str is parsed by the plugin as the flag's own type.
        doc: one line: why.
        since: the first PJRT API version of this plugin that takes it, or None.
        until: the last one, or None.
        unless: other flags, any of which the user may set to do without this one.
        unless_used: operations, "maximum": a program that uses one of them does without it.
    """

    name: str
    value: FlagValue
    doc: str = ""
    since: ApiVersion | None = None
    until: ApiVersion | None = None
    unless: tuple[str, ...] = ()
    unless_used: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, flags: Table) -> CompileFlag:
        """Read the flag `name` of a table of flags.

        Raises:
            ManifestError: it is malformed.
        """
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
        """Check whether it fits a user's flags, a program and a plugin of this version.

        Text, bytecode and HLO protos all spell the operations that they use.
        """
        is_early = self.since is not None and api < self.since
        is_late = self.until is not None and api > self.until
        if is_early or is_late or any(name in given for name in (self.name, *self.unless)):
            return False
        return not any(name.encode() in code for name in self.unless_used)


def read_all(flags: Table) -> tuple[CompileFlag, ...]:
    """Read a table of flags, by name.

    Raises:
        ManifestError: one is malformed.
    """
    return tuple(CompileFlag.read(name, flags) for name in sorted(flags.data))
