"""Everything that pjrt-hub uses of JAX and that is not public: its tables, settings and loader.

Differences between releases of JAX are handled here and nowhere else.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from pjrt_hub.base.abi import ApiVersion
from pjrt_hub.errors import FrameworkError

#: This is the oldest release of JAX that the tests run on; 0.4.31 sends compile options that the
#: CPU plugin refuses.
OLDEST = (0, 4, 33)
#: From each of these releases on, jaxlib is built for this minor version of the PJRT API. It says
#: so itself when `ENABLE_PJRT_COMPATIBILITY=0` makes it refuse every other version.
_API_MINORS = (
    ((0, 4, 33), 54),
    ((0, 4, 35), 55),
    ((0, 4, 38), 58),
    ((0, 5, 3), 67),
    ((0, 6, 2), 70),
    ((0, 7, 2), 76),
    ((0, 8, 3), 85),
    ((0, 10, 2), 112),
)


def require() -> None:
    """Raise FrameworkError if JAX is missing or older than `OLDEST`."""
    oldest = ".".join(map(str, OLDEST))
    try:
        import jax
        import jax._src.xla_bridge
    except ImportError as exc:
        raise FrameworkError(
            f"JAX cannot be imported: {exc}", hint=f"install it: pip install 'jax>={oldest}'"
        ) from exc
    if jax.__version_info__ < OLDEST:
        raise FrameworkError(
            f"JAX {jax.__version__} is too old: plugins of pjrt-hub need {oldest} or newer",
            hint=f"install another release: pip install 'jax>={oldest}'",
        )


def release() -> str:
    """Return the release of JAX, as text."""
    import jax

    return str(jax.__version__)


def api_version() -> ApiVersion:
    """Return the PJRT API that jaxlib was built for; for an unknown release, an older one's."""
    from jaxlib import version

    here = version.__version_info__
    return ApiVersion(0, max((minor for first, minor in _API_MINORS if first <= here), default=0))


def has_begun() -> bool:
    """Return whether JAX has made its clients, after which it sees no new registration."""
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def platforms() -> frozenset[str]:
    """Return the names of the platforms that are registered in JAX now."""
    from jax._src import xla_bridge

    return frozenset(xla_bridge._backend_factories)


def plugin_modules() -> frozenset[str]:
    """Return the modules, of its namespace and of entry points, in which JAX looks for plugins."""
    from importlib.metadata import entry_points

    found = {point.value for point in entry_points(group="jax_plugins")}
    try:
        import jax_plugins
    except ImportError:
        return frozenset(found)
    return frozenset(found | {each.name for each in pkgutil.iter_modules(jax_plugins.__path__)})


def register(
    name: str, priority: int, make_client: Callable[[], Any], make_topology: Callable[..., Any]
) -> None:
    """Put a platform into JAX's table.

    JAX raises errors of the platform, because the user asked for it, and does not warn that it is
    experimental: whether a plugin works in JAX depends on its conformance and not on its name.
    """
    from jax._src import xla_bridge

    xla_bridge.register_backend_factory(
        name,
        make_client,
        priority=priority,
        fail_quietly=False,
        experimental=False,
        make_topology=make_topology,
    )


def load(name: str, capsule: object, *, profiles: bool) -> None:
    """Make a table known to jaxlib by the name of a platform.

    `profiles` says whether the plugin has a profiler, which JAX's profiler is then to start. A name
    that another plugin has raises FrameworkError.
    """
    from jax._src.lib import xla_client

    if xla_client.pjrt_plugin_loaded(name):
        raise FrameworkError(
            f"JAX has loaded another plugin under the name {name!r}",
            hint="give this one another name: pjrt_hub.jax.register(platform, name=...), or "
            "PJRT_HUB_JAX=name=platform",
        )
    xla_client.load_pjrt_plugin_with_c_api(name, capsule)
    if profiles:
        from jax._src.lib import _profiler

        _profiler.register_plugin_profiler(capsule)


def make_client(name: str, options: Mapping[str, Any]) -> Any:
    """Make jaxlib's client of a loaded plugin, with the key-value store of `jax.distributed`.

    The plugin is already initialized, and its version is checked, so `initialize_pjrt_plugin`,
    which does both in its own way, is not called.
    """
    from jax._src import distributed, xla_bridge
    from jax._src.lib import xla_client

    shared = distributed.global_state.client
    if shared is None:
        return xla_client.make_c_api_client(name, dict(options), None)
    takes = inspect.signature(xla_client.make_c_api_client).parameters
    more: dict[str, Any] = {}
    if "transfer_server_factory" in takes:
        more["transfer_server_factory"] = xla_bridge._make_transfer_server_factory()
    for each in {"force_dcn_cross_host_transfers", "sort_devices_by_process_index"} & takes.keys():
        more[each] = getattr(xla_bridge, each.upper()).value
    return xla_client.make_c_api_client(name, dict(options), shared, **more)


def make_topology(capsule: object, name: str, options: Mapping[str, Any]) -> Any:
    """Make jaxlib's topology of a loaded plugin."""
    from jax._src.lib import xla_client

    return xla_client.make_c_api_device_topology(capsule, name, **options)


def stablehlo_version() -> tuple[int, ...]:
    """Return the StableHLO version of programs that are compiled without a client.

    With a client, jaxlib writes the version that the plugin reads; for a topology, it writes the
    version that it had twelve weeks before its release.
    """
    from jaxlib.mlir.dialects import stablehlo

    requirement = stablehlo.StablehloCompatibilityRequirement.WEEK_12
    text = stablehlo.get_version_from_compatibility_requirement(requirement)
    return tuple(int(part) for part in str(text).split("."))


def leaves_out(name: str) -> bool:
    """Return whether JAX skips the platform silently, and ends in an AssertionError if it is alone.

    It does so with the name "cuda" if there is no device file of an NVIDIA GPU.
    """
    from jax._src import hardware_utils

    return name == "cuda" and not hardware_utils.has_visible_nvidia_gpu()


def platforms_setting() -> str:
    """Return the setting `jax_platforms`, which the variable JAX_PLATFORMS sets."""
    import jax

    return str(jax.config.jax_platforms or "")


def place_in_job() -> dict[str, int]:
    """Return the create options that tell a plugin this process's place in `jax.distributed`."""
    from jax._src import distributed

    state = distributed.global_state
    if state.client is None:
        return {}
    place = {"node_id": state.process_id, "num_nodes": state.num_processes}
    if (partition := getattr(state, "partition_index", None)) is not None:
        place["partition_index"] = partition
    return place


def create_options() -> Mapping[str, Any] | str:
    """Return the setting `jax_pjrt_client_create_options`: "name:value;name:value", or a dict."""
    from jax._src import config

    value: Mapping[str, Any] | str | None = config.jax_pjrt_client_create_options.value
    return value or {}


def all_create_options(platform: str) -> dict[str, Any]:
    """Return the create options of all of JAX's settings, such as the one of visible devices."""
    from jax._src import xla_bridge

    options = dict(xla_bridge._options_from_jax_configs(platform))
    if platform == "cpu" and (devices := cpu_devices()) > 0:
        options.setdefault("cpu_device_count", devices)
    return options


def cpu_devices() -> int:
    """Return the setting `jax_num_cpu_devices`, which came with JAX 0.5; -1 where it is not set."""
    import jax

    return int(getattr(jax.config, "jax_num_cpu_devices", -1))
