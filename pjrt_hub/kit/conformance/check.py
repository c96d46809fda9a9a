"""What a check is: a function with a name and requirements; and the list of all checks.

Must not run any check.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pjrt_hub.base.abi import ApiVersion
    from pjrt_hub.kit.conformance.subject import Subject

    Run = Callable[[Subject], None]

_Function = TypeVar("_Function", bound="Run")

#: Every other area relies on the checks of this one.
BASICS = "basics"

#: A report has the areas in this order, and others after them.
AREAS = (
    *(BASICS, "plugin", "extensions", "client", "devices", "memories", "topology", "compile"),
    *("execute", "buffers", "transfers", "events", "errors", "donation", "external", "runtime"),
    *("hosts", "serialization", "kv_store", "analysis", "leaks", "ops"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        needs: "process" for starting a process from one that has not loaded the plugin, "library"
            for a library that is not loaded, "plugin" for a loaded plugin, "client" for a client
            with a device, "devices:2" for a client with two, "topology" for a topology.
        proves: the C functions that the check uses in the simplest way. If it fails, they do not
            work, and it stands for every check that calls one of them.
    """

    name: str  # The area, then what the check asserts: "buffers.delete".
    title: str  # What is done and what must follow, in one line.
    run: Run  # Returns if the plugin passes; otherwise it raises.
    since: int = 0  # The lowest minor version of the PJRT API that the check needs.
    extension: str | None = None  # The extension that the plugin must have.
    needs: str = "client"
    seconds: float = 20  # The time limit.
    number: int = 0  # The number of the C API's promise that the check tests, or 0.
    proves: tuple[str, ...] = ()

    @property
    def area(self) -> str:
        """The check's area, which is the part of the name before the first dot."""
        return self.name.partition(".")[0]

    @property
    def loads(self) -> bool:
        """Whether the plugin must be loaded before the check, which does not load it itself."""
        return self.needs not in ("process", "library")

    @property
    def num_devices(self) -> int:
        """How many devices the check's client must have; 0 if the check needs no client."""
        if self.needs == "client":
            return 1
        return int(self.needs.removeprefix("devices:")) if "devices:" in self.needs else 0

    def missing_requirement(self, version: ApiVersion, extensions: Container[str]) -> str:
        """Say what a plugin with this version and extensions lacks for the check, if anything."""
        if self.since > version.minor:
            return f"it came with PJRT API 0.{self.since}, the plugin has {version}"
        if self.extension and self.extension not in extensions:
            return f"the plugin has no extension {self.extension}"
        return ""


_CHECKS: dict[str, Check] = {}


def check(
    *, area: str | None = None, name: str | None = None, title: str | None = None, **fields: Any
) -> Callable[[_Function], _Function]:
    """Register a function as a check, with the fields of `Check`.

    By default the area is the module's name, the name the function's, and the title the first line
    of its docstring.
    """

    def register(function: _Function) -> _Function:
        # A `partial` keeps its function in `func`.
        module = getattr(function, "func", function).__module__
        full = f"{area or module.rpartition('.')[2]}.{name or function.__name__}"
        if full in _CHECKS:
            raise ValueError(f"there are two checks called {full}")
        text = title or (function.__doc__ or "").strip().partition("\n")[0]
        _CHECKS[full] = Check(full, text.rstrip("."), function, **fields)
        return function

    return register


@cache
def checks() -> tuple[Check, ...]:
    """Return every check, area by area, in the order of their files."""
    import importlib
    import pkgutil

    package = importlib.import_module("pjrt_hub.kit.conformance.checks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    places = {area: place for place, area in enumerate(AREAS)}
    return tuple(
        sorted(_CHECKS.values(), key=lambda each: (places.get(each.area, len(AREAS)), each.area))
    )


def select(areas: Iterable[str] = (), names: Iterable[str] = ()) -> tuple[Check, ...]:
    """Select checks by area or by name, where `*` stands for anything; by default all.

    The basics are added to an area: without them, a single cause would look like many. ValueError:
    there is no such area or check.
    """
    from fnmatch import fnmatchcase

    areas, names = tuple(areas), tuple(names)
    known = checks()
    for each in areas:
        _require_known("area", each, [check.area for check in known])
    for each in names:
        if not any(fnmatchcase(check.name, each) for check in known):
            _require_known("check", each, [check.name for check in known])
    return tuple(
        check
        for check in known
        if not (areas or names)
        or check.area in areas
        or (areas and check.area == BASICS)
        or any(fnmatchcase(check.name, each) for each in names)
    )


def _require_known(what: str, name: str, known: Iterable[str]) -> None:
    from pjrt_hub.finding.contract.names import did_you_mean

    if name not in (known := set(known)):
        raise ValueError(
            f"there is no {what} called {name!r}; {did_you_mean(name, known)}".strip("; ")
        )
