"""The policy of a plugin that was found: what its manifest, the cache and the environment say."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.door import preflight
from pjrt_hub.door.preflight import Contact
from pjrt_hub.finding.contract import cuda
from pjrt_hub.finding.contract.variables import is_on
from pjrt_hub.finding.discovery.registry_rows import row_of
from pjrt_hub.finding.discovery.source import Candidate
from pjrt_hub.finding.store.cache.program_cache import ProgramCache
from pjrt_hub.running.capi.values import NamedValue
from pjrt_hub.running.compilation.policy import Policy, Workplace

if TYPE_CHECKING:
    from pjrt_hub.errors import PjrtError
    from pjrt_hub.running.program.option import Flag

_LIMIT = "PJRT_HUB_ISOLATE_SECONDS"
#: A compilation that takes more than a day is taken to hang.
_COMPILE_SECONDS = 86400.0
#: XLA's CUDA plugins say this if they find neither ptxas nor libnvJitLink, or no libdevice.
_NO_COMPILER = re.compile(r"No PTX compilation provider|libdevice not found")


class FoundPolicy(Policy):
    """A policy that asks the manifest for options and flags, and tries clients at first contact."""

    def __init__(
        self, candidate: Candidate, contact: Contact, named_flags: Collection[str]
    ) -> None:
        """Keep what was found when the plugin was loaded.

        The plugin's child processes run with the contact's `env`. The manifest's flags do not
        override `named_flags`, the flags of XLA that the user sets.
        """
        super().__init__(candidate.name)
        self._candidate, self._manifest, self._contact = candidate, candidate.manifest, contact
        here = self._here = contact.world
        self._named = dict.fromkeys(named_flags, True)
        #: Isolated compilations see the environment in which the plugin was loaded.
        self._environment = dict(here.env)
        root = here.cache.root if here.cache else None
        self.compile_cache = programs = ProgramCache.from_env(self._environment, root)
        if programs and "cache" in here.env.get("PJRT_HUB_LAYERS", ""):
            programs.evict()  # The layer `cache`, which is in C, only adds to them.
        self.caches_by_default = is_on(here.env, "PJRT_HUB_COMPILE_CACHE")
        self.isolates_by_default = is_on(here.env, "PJRT_HUB_ISOLATE")

    def check_create_options(
        self, options: Mapping[str, NamedValue], version: ApiVersion
    ) -> Mapping[str, NamedValue]:
        """Check the create options of the candidate, the environment and the user."""
        return self._candidate.check_options(options, self._here.env, version)

    def check_topology_options(
        self, name: str, options: Mapping[str, NamedValue], version: ApiVersion
    ) -> tuple[str, Mapping[str, NamedValue]]:
        """Check a machine's name and options against the manifest, which lists the machines."""
        return self._manifest.topology_options(name, options, self._contact.path, version)

    def takes_option(self, name: str) -> bool:
        """Return whether the manifest has the option; a library without a manifest may take any."""
        is_described = self._manifest.path is not None
        return not is_described or any(name == each.name for each in self._manifest.options)

    def try_client(self, options: Mapping[str, NamedValue]) -> None:
        """Make a client in a child process, unless one was made there before."""
        preflight.try_client(self._contact, options)

    def compile_flags(
        self, given: Mapping[str, Flag], version: ApiVersion, code: bytes
    ) -> Mapping[str, Flag]:
        """Return the manifest's flags, except those that the user sets anywhere."""
        return self._manifest.compile_flags_beside({**self._named, **given}, version, code)

    def compile_hint(self, error: PjrtError) -> str:
        """Return the command that brings NVIDIA's compilers, if these are what is missing."""
        if not _NO_COMPILER.search(error.message):
            return ""
        name, row = self._candidate.name, row_of(self._here, self._candidate)
        how = f"pip install 'pjrt-hub[{name if name in cuda.EXTRAS else 'cuda'}]'"
        if row is not None and row.requires:
            how = f"pjrt-hub fetch {name}"
        return (
            f"`{how}` brings ptxas and libdevice, without which this plugin compiles nothing; "
            f"`pjrt-hub doctor {name} --for compile` says where it looks for them"
        )

    def sha256(self) -> str | None:
        """Return the library's digest if an earlier first contact remembered it."""
        probes = preflight.memory(self._here)
        return probes.sha256(self._contact.path) if probes else None

    def workplace(self) -> Workplace:
        """Return a workplace with the environment in which the plugin was loaded."""
        limit = preflight.seconds(_LIMIT, self._environment.get(_LIMIT), _COMPILE_SECONDS)
        return Workplace(self._environment, self._contact.dependencies, limit)
