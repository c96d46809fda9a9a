"""The PJRT C API: declarations, calls and the one place that loads a plugin.

May import `errors` and `abi` only; nothing outside this package touches `ffi`.
"""

try:
    import pjrt_hub.running.capi._pjrt  # noqa: F401  (here, so that its absence is told once)
except ModuleNotFoundError as exc:
    if exc.name != "pjrt_hub.running.capi._pjrt":
        raise
    from pathlib import Path

    checkout = Path(__file__).resolve().parents[3]
    raise ImportError(
        f"pjrt_hub was imported from {checkout}, a checkout whose C part is not compiled\n\n"
        f"hint: start Python in another folder, or compile it: pip install -e {checkout}",
        name=exc.name,
    ) from exc
