"""Plugins: a loaded library and the making of clients.

Must not find plugins, and does not know which create options one takes: its policy does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import UnimplementedError, UnsupportedByPluginError
from pjrt_hub.running.array import display
from pjrt_hub.running.capi import handle, library, values
from pjrt_hub.running.capi.call import interruptible
from pjrt_hub.running.client.client import Client
from pjrt_hub.running.compilation.policy import DefaultFlags, Policy

if TYPE_CHECKING:
    from pjrt_hub.running.client.topology import Topology
    from pjrt_hub.running.distributed.kv_store import Distributed
    from pjrt_hub.running.extensions.custom_calls import CustomCalls
    from pjrt_hub.running.extensions.profiler import Profiler
    from pjrt_hub.running.program.option import Flag

_sharing = Lock()


class Plugin:
    """A loaded and initialized PJRT plugin.

    Attributes:
        name: the name that it was chosen by.
        api: its function table.
        policy: the settings that came with it, such as those of its manifest.
    """

    __module__ = "pjrt_hub"

    def __init__(self, api: library.Api, policy: Policy | None = None) -> None:
        """Wrap a loaded library; `pjrt_hub.load(path)` verifies, loads and wraps one.

        Args:
            api: its function table, initialized.
            policy: by default that of a library without a manifest.

        Raises:
            TypeError: `api` is not a function table, but for example a path.
        """
        if not isinstance(api, library.Api):
            raise TypeError(
                f"a Plugin is made of a library that was loaded, not of {api!r}\n\n"
                "hint: pjrt_hub.load(path) verifies and loads one"
            )
        self.api = api
        self.policy = policy or Policy()
        self.name = self.policy.name or api.path.name
        api.known_sha256 = self.policy.sha256
        self.policy.default_flags = DefaultFlags(
            lambda given, code: self.policy.compile_flags(given, api.version, code)
        )

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
    def compile_flags(self) -> Mapping[str, Flag]:
        """The XLA flags added to compilations whose `CompileOptions.flags` do not set them.

        Some do not apply to every program: `exe.compile_options` shows the ones used.
        """
        return self.policy.default_flags.beside({})

    @property
    def extensions(self) -> Mapping[str, int]:
        """The extensions of its table: name to the size of the node in bytes."""
        return self.api.extensions

    @property
    def ffi(self) -> CustomCalls:
        """The custom calls of the plugin: functions that programs call by name."""
        from pjrt_hub.running.extensions.custom_calls import CustomCalls

        return CustomCalls(self.api)

    def profiler(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        host_level: int = 2,
        device_level: int = 1,
        hlo: bool = True,
    ) -> Profiler:
        """Make a profiler.

        Args:
            path: of the file to write; TensorBoard looks for "*.xplane.pb".
            host_level: what to record of the plugin's threads: 0 nothing, 1 little, 2 much, 3 all.
            device_level: 0 nothing, 1 what runs on the device; more if the plugin knows it.
            hlo: keep the programs' HLO.

        Raises:
            UnsupportedByPluginError: the plugin has no profiler.
        """
        from pjrt_hub.running.extensions.profiler import Profiler

        return Profiler(self.api, path, host_level=host_level, device_level=device_level, hlo=hlo)

    def client(
        self,
        options: Mapping[str, values.NamedValue] | None = None,
        *,
        distributed: Distributed | None = None,
        shared: bool = False,
    ) -> Client:
        """Make a client (`PJRT_Client_Create`); Ctrl-C ends the wait.

        Args:
            options: create options by name.
            distributed: the place of this process among those that it shares the platform with.
            shared: whether to return the client that this process shares, made if there is none.

        Raises:
            TypeError: an option has another type than the plugin takes.
            ValueError: the plugin has no such option, or the shared client has another value of it.
            PjrtError: the plugin cannot make a client, for example without its hardware.
            PluginError: the plugin died or hung in the process where a client was tried first.
            PjrtHubError: the client did not join the other processes.
        """
        given = dict(options or {})
        if distributed is not None:
            given = {**distributed.create_options(self.policy.takes_option), **given}
        if not shared:
            return self._make_client(given, distributed)
        with _sharing:  # Concurrent callers get the same client.
            client = self._shared_client(given, distributed)
            client = client or self._make_client(given, distributed)
            client._is_shared = True
            return client

    def _shared_client(
        self, options: Mapping[str, values.NamedValue], distributed: Distributed | None
    ) -> Client | None:
        """Return the open client that this process shares; ValueError if the request differs."""
        for client in tuple(handle.clients.values()):
            if not (isinstance(client, Client) and client._is_shared and client.api is self.api):
                continue
            check, version = self.policy.check_create_options, self.api_version
            has, asked = check(client.options, version), check(options, version)
            if differing := [name for name in options if asked[name] != has.get(name)]:
                what = ", ".join(
                    f"{name}={has.get(name)!r}, not {asked[name]!r}" for name in differing
                )
                raise ValueError(
                    f"the shared {client!r} was made with {what}\n\n"
                    "hint: ask for it without these options, or for one of your own, shared=False"
                )
            place = (client.process_index, client.process_count)
            if distributed and place != (distributed.process_id, distributed.num_processes):
                raise ValueError(
                    f"the shared {client!r} is of process {place[0]} of {place[1]}, not "
                    f"{distributed.process_id} of {distributed.num_processes}\n\n"
                    "hint: make it with `distributed` before anything asks for it without"
                )
            return client
        return None

    def _make_client(
        self, given: Mapping[str, values.NamedValue], distributed: Distributed | None
    ) -> Client:
        exchange = None
        if distributed is not None:
            from pjrt_hub.running.distributed.kv_store import Exchange

            exchange = Exchange(distributed.store)
        # Some plugins abort on a wrong type, so the options are checked before the call.
        checked = self.policy.check_create_options(given, self.api_version)
        if exchange is None:  # A client that is made on trial would join the other processes.
            self.policy.try_client(checked)
        callbacks = exchange.arguments() if exchange else {}
        address = interruptible(
            lambda: self.api.call("PJRT_Client_Create", create_options=checked, **callbacks),
            lambda late: self.api.give_back("PJRT_Client_Destroy", client=late),
        )
        client = Client(self, address, given)
        if distributed is not None and exchange is not None:
            try:
                distributed.check(client, exchange)
            except BaseException:
                client.close()
                raise
        return client

    def topology(
        self, name: str = "", options: Mapping[str, values.NamedValue] | None = None
    ) -> Topology:
        """Describe a machine that need not be present (`PJRT_TopologyDescription_Create`).

        Args:
            name: the machine's name: "v5e:2x2", "H100", ...; `pjrt_hub.targets` lists them.
            options: topology options by name.

        Raises:
            TargetNotFoundError: nothing describes a machine of that name.
            TypeError: an option has another type than the plugin takes.
            ValueError: no such option, or a shape that no machine has.
            UnsupportedByPluginError: the plugin describes only devices that are there.
            PjrtError: the plugin knows no such machine.
        """
        from pjrt_hub.running.client.topology import Topology

        # Some plugins abort on a wrong type or shape, so these are checked before the call.
        given = self.policy.check_topology_options(name, options or {}, self.api_version)
        try:
            address = interruptible(
                lambda: self.api.call(
                    "PJRT_TopologyDescription_Create",
                    topology_name=given[0],
                    create_options=given[1],
                ),
                lambda late: self.api.give_back("PJRT_TopologyDescription_Destroy", topology=late),
            )
        except UnimplementedError as exc:
            raise UnsupportedByPluginError(
                f"the plugin {self.path.name} describes no devices that are not there: "
                f"{exc.message}",
                function="PJRT_TopologyDescription_Create",
                since="0.57",
                have=str(self.api_version),
                hint="use client.topology, which describes what is there",
            ) from exc
        return Topology(self.api, address, policy=self.policy)

    def deserialize_topology(self, serialized: bytes) -> Topology:
        """Read the bytes of `Topology.serialize` (`PJRT_TopologyDescription_Deserialize`, 0.75).

        Args:
            serialized: the bytes, from a plugin for this platform.

        Raises:
            PjrtError: the bytes are damaged, or another plugin's.
        """
        from pjrt_hub.running.client.topology import Topology

        data = bytes(memoryview(serialized))  # `bytes(5)` alone would be five zeros.
        address = self.api.call("PJRT_TopologyDescription_Deserialize", serialized_topology=data)
        return Topology(self.api, address, policy=self.policy)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a plugin is loaded into its process and cannot be pickled\n\nhint: load it in the "
            "other process; programs, options, executables, topologies and buffers can be pickled"
        )

    @display.table
    def _repr_html_(self) -> Mapping[str, Any]:
        facts = {"Plugin": self.name, "PJRT API": self.api_version, "library": self.path}
        return {**facts, **self.attributes, "extensions": ", ".join(self.extensions)}

    def __repr__(self) -> str:
        return f"<Plugin {self.name} API {self.api_version} {self.path}>"
