"""The PJRT C API: declarations, calls and the one place that loads a plugin.

May import `errors` and `abi` only; nothing outside this package touches `ffi`.
"""

try:
    import pjrt_hub.running.capi._pjrt  # noqa: F401  (Imported here to report its absence once.)
except ModuleNotFoundError as exc:
    if exc.name != "pjrt_hub.running.capi._pjrt":
        raise
    import sys
    from pathlib import Path

    from pjrt_hub.errors import PluginLoadError

    if sys.platform != "linux":
        system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise PluginLoadError(
            f"pjrt-hub loads plugins and runs programs on Linux only, and this is {system}",
            path=__file__,
            hint="find, lock, fetch and bundle plugins here, and run programs on Linux",
        ) from None
    checkout = Path(__file__).resolve().parents[3]
    raise ImportError(
        f"pjrt_hub was imported from {checkout}, a checkout whose C part is not compiled\n\n"
        f"hint: start Python in another folder, or compile it: pip install -e {checkout}",
        name=exc.name,
    ) from None
