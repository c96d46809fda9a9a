"""Plugins (layer 2): a loaded library and the making of clients.

Owns the check of create options, because a wrong type aborts some plugins; must not find plugins.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pjrt_hub._capi import library, values
from pjrt_hub._capi.call import interruptible
from pjrt_hub.abi import ApiVersion
from pjrt_hub.runtime.client import Client

#: How a manifest names a type, to the Python types that fit it.
_FITTING: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "int64": (int,),
    "int64_list": (list, tuple),
    "float": (float, int),
    "bool": (bool,),
}


class Plugin:
    """A loaded and initialized PJRT plugin.

    Attributes:
        name: what it was chosen as.
        api: its function table.
        option_types: the create options that it takes, name to "string", "int64", "int64_list",
            "float" or "bool"; None where nobody described them.
        default_options: the options of a client that the caller does not give.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        option_types: Mapping[str, str] | None = None,
        default_options: Mapping[str, values.NamedValue] | None = None,
    ) -> None:
        """Loads the library.

        Raises:
            PluginLoadError: it cannot be loaded.
            IncompatiblePluginError: its API version cannot be driven.
        """
        self.api = library.load(path)
        self.name = name or self.api.path.name
        self.option_types = option_types
        self.default_options = dict(default_options or {})

    @property
    def path(self) -> Path:
        """The library's absolute path."""
        return self.api.path

    @property
    def api_version(self) -> ApiVersion:
        """The PJRT API version that it announces."""
        return self.api.version

    @property
    def attributes(self) -> Mapping[str, values.NamedValue]:
        """XLA and StableHLO versions and whatever else it reports (`PJRT_Plugin_Attributes`)."""
        return self.api.attributes

    @property
    def extensions(self) -> Mapping[str, int]:
        """The extensions of its table: name to the size of the node in bytes."""
        return self.api.extensions

    def client(self, options: Mapping[str, values.NamedValue] | None = None) -> Client:
        """Makes a client (`PJRT_Client_Create`); Ctrl-C ends the waiting.

        Args:
            options: create options by name; see `option_types`.

        Raises:
            TypeError: an option has another type than the plugin takes.
            ValueError: the plugin has no such option.
            PjrtError: the plugin cannot make a client, for example without its hardware.
        """
        chosen = {**self.default_options, **self._checked(options or {})}
        address = interruptible(
            lambda: self.api.call("PJRT_Client_Create", create_options=chosen),
            lambda late: self.api.call("PJRT_Client_Destroy", client=late),
        )
        return Client(self, address)

    def _checked(self, options: Mapping[str, Any]) -> dict[str, values.NamedValue]:
        types = self.option_types
        if types is None:
            return dict(options)
        checked: dict[str, values.NamedValue] = {}
        for name, value in options.items():
            if name not in types:
                near = difflib.get_close_matches(name, types, 1)
                guess = f"did you mean {near[0]!r}? " if near else ""
                raise ValueError(
                    f"the plugin {self.name} has no create option {name!r}\n\n"
                    f"hint: {guess}it takes {', '.join(sorted(types)) or 'none'}"
                )
            kind = types[name]
            fits = isinstance(value, _FITTING[kind])
            if isinstance(value, bool) and kind != "bool":
                fits = False
            if kind == "int64_list" and fits:
                fits = all(isinstance(each, int) and not isinstance(each, bool) for each in value)
            if not fits:
                raise TypeError(
                    f"the create option {name!r} of the plugin {self.name} is {value!r}; "
                    f"it must be of type {kind}"
                )
            checked[name] = float(value) if kind == "float" else value
        return checked

    def __repr__(self) -> str:
        return f"<Plugin {self.name} API {self.api_version} {self.path}>"
