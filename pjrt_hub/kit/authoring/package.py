"""The importable package around a library, which every framework finds.

Owns its files as text, filled in from templates/; must not write any.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from pjrt_hub.errors import PjrtHubError
from pjrt_hub.finding.contract import table
from pjrt_hub.finding.contract.manifest import DEFAULT_PRIORITY
from pjrt_hub.finding.contract.names import canonical, is_name, look_alike
from pjrt_hub.finding.contract.option import UNKNOWN, Option
from pjrt_hub.kit.authoring.identity import LibraryIdentity, first_party

#: The Python type of each type of create option.
_PYTHON_TYPES = {
    "string": "str",
    "int64": "int",
    "int64_list": "list[int]",
    "float": "float",
    "bool": "bool",
    UNKNOWN: "Any",
}
#: The files of the package that have a template.
_FILES = ("__init__.py", "options.py", "jax_plugin.py", "torch_plugin.py", "pjrt_plugin.toml")


@dataclass(frozen=True, slots=True)
class Package:
    """A plugin's package."""

    name: str  # The plugin's name, also in JAX, and without underscores in torch_xla.
    platform: str  # The platform that the plugin drives.
    version: str
    license: str  # An SPDX expression, or empty.
    identity: LibraryIdentity | None  # The library's identity; None while there is no library.
    platform_tag: str
    source: str = ""  # The C or C++ file that the library is built from, or empty.

    @property
    def distribution(self) -> str:
        """The name under which the package is installed: "mychip-pjrt"."""
        return canonical(f"{self.name}-pjrt")

    @property
    def module(self) -> str:
        """The name under which the package is imported: "mychip_pjrt"."""
        return f"{self.name}_pjrt"

    @property
    def file_name(self) -> str:
        """The name of the library's file: "mychip_pjrt.so"."""
        return f"{self.module}.so"

    @property
    def description(self) -> str:
        """A description of the package, in one line."""
        return f"A PJRT plugin for {self.platform}"

    def files(self) -> dict[str, str]:
        """Return the files beside the library: name -> text."""
        return {**{name: self.fill(f"{name}.in") for name in _FILES}, "py.typed": ""}

    def metadata(self) -> str:
        """Return the text of a wheel's METADATA."""
        return self.fill("METADATA.in") + self.fill("README.md.in").partition("\n## ")[0]

    def registrations(self) -> str:
        """Return the text of a wheel's entry_points.txt: a section for each framework."""
        return self.fill("entry_points.txt.in")

    @property
    def torch_name(self) -> str:
        """The plugin's name in torch_xla, which cuts device types at an underscore."""
        return self.name.replace("_", "")

    def fill(self, template: str) -> str:
        """Return the text of a file of templates/, filled in."""
        text = files(__package__).joinpath("templates", template).read_text("utf-8")
        options = self.identity.options if self.identity else ()
        return Template(text).substitute(
            name=self.name,
            upper=self.name.upper(),
            torch_name=self.torch_name,
            device_type=self.torch_name.upper(),
            platform=self.platform,
            distribution=self.distribution,
            package=self.module,
            file_name=self.file_name,
            version=self.version,
            description=self.description,
            priority=DEFAULT_PRIORITY,
            platform_tag=self.platform_tag,
            license=_license(self.license),
            license_header=f"License-Expression: {self.license}\n" if self.license else "",
            **self._build(),
            digest=f'sha256 = "{self.identity.sha256}"\n' if self.identity else "",
            api=self._api(),
            options="".join(map(_option, options)),
            fields="".join(f"\n    {each.name}: {_PYTHON_TYPES[each.type]}" for each in options)
            + "\n" * bool(options),
        )

    def _build(self) -> dict[str, str]:
        """Return the templates' fields that say how the library is built from its source."""
        plus = self.source.endswith(".cc")
        return {
            "source": self.source,
            "built": f", built of `native/{self.source}`" if self.source else "",
            "language": "CXX" if plus else "C",
            "compiler": "c++" if plus else "cc",
            "compiler_variable": "CXX" if plus else "CC",
            "standard": "c++17" if plus else "c11",
            "ignored": "*.so\n" if self.source else "",
        }

    def _api(self) -> str:
        if self.identity is None:
            return ""
        version, extensions = self.identity.api_version, list(self.identity.extensions)
        api = {"minimum": version, "maximum": version, "extensions": extensions}
        return table.write({"api": api})


def refuse_name(name: str) -> None:
    """Refuse a name that a new plugin cannot have, or that could be taken for another's."""
    if not _can_name(name):
        rule = "a name is of ASCII [a-z0-9_], begins with a letter and has at most 32 of them"
        if keyword.iskeyword(name):
            rule = "it is a word of Python's own; choose another"
        meant = canonical(name.replace(" ", "_")).replace("-", "_")
        hint = f"did you mean {meant!r}? {rule}" if _can_name(meant) else rule
        raise PjrtHubError(f"{name!r} cannot name a plugin", hint=hint)
    taken = reserved_names()
    if name in taken:
        raise PjrtHubError(
            f"{name!r} is the name of another plugin or platform",
            hint="choose the name of your hardware or company; `--platform` says what it drives",
        )
    if other := look_alike(name, taken):
        raise PjrtHubError(
            f"{name!r} could be mistaken for {other!r}", hint="choose a name that differs by more"
        )


def _can_name(text: str) -> bool:
    return is_name(text) and text.isidentifier() and not keyword.iskeyword(text)


def platform_name(asked: str, told: str, name: str) -> str:
    """Choose a new plugin's platform: the author's, else the library's, else the plugin's name."""
    if asked and not is_name(asked):
        raise PjrtHubError(
            f"{asked!r} cannot name a platform",
            hint="a name is of ASCII [a-z0-9_] and has at most 32 of them",
        )
    return asked or (told.lower() if is_name(told.lower()) else name)


def license_expression(asked: str) -> str:
    """Return an SPDX expression as SPDX writes it, "MIT" for "mit"; empty stays empty."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return canonicalize_license_expression(asked) if asked else ""
    except InvalidLicenseExpression as exc:
        raise PjrtHubError(
            f"{asked!r} is not an SPDX expression: {exc}",
            hint="give one such as Apache-2.0, MIT OR BSD-3-Clause, or LicenseRef-Mine",
        ) from None


def reserved_names() -> frozenset[str]:
    """Return the names of well-known plugins and platforms."""
    return frozenset(
        word for each in first_party() for word in (each.name, each.platform, *each.aliases)
    )


def _license(expression: str) -> str:
    if expression:
        return f'license = "{expression}"'
    return '# license = "Apache-2.0"  # an SPDX expression; put the text into a file LICENSE'


def _option(option: Option) -> str:
    """Return the manifest's table for an option."""
    lines = {
        "type": option.type,
        "minimum": option.minimum,
        "maximum": option.maximum,
        "doc": option.doc or None,
    }
    body = table.write({key: value for key, value in lines.items() if value is not None})
    remark = "# How the library takes it did not show: write its type here.\n"
    return f"\n[options.{option.name}]\n{remark if option.type == UNKNOWN else ''}{body}"
